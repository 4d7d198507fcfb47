"""Keys that become ready later."""

import heapq
from typing import Final, Generic, TypeVar

from tonnage.controller.queueing.priority import Priority

K = TypeVar("K")

_SPARE_ENTRIES: Final = 64
"""The heap may hold as many outdated entries as there are keys, and this many more."""


class DelayedKeys(Generic[K]):
    """Keeps one delay per key: the earliest of those added, at the highest of their priorities.

    `add` and `discard` take amortized O(log n). An entry that an earlier delay or `discard` has
    outdated stays in the heap until it reaches the top, or until outdated entries outnumber the
    others: a key that is processed 60 times a second, each time with a delay of minutes, leaves
    thousands.
    """

    def __init__(self) -> None:
        self._delays: dict[K, tuple[float, Priority]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._entries = 0

    @property
    def heap_size(self) -> int:
        """Entries in memory, outdated ones too."""
        return len(self._heap)

    def add(self, key: K, due: float, priority: Priority) -> None:
        """Make the key ready at `due` at the latest, and at least at this priority."""
        current = self._delays.get(key)
        if current is not None:
            current_due, current_priority = current
            priority = min(priority, current_priority)
            if current_due <= due:
                self._delays[key] = (current_due, priority)
                return
        self._delays[key] = (due, priority)
        self._entries += 1  # equal times are compared by age, never by key
        heapq.heappush(self._heap, (due, self._entries, key))
        self._compact()

    def discard(self, key: K) -> None:
        """Remove the key's delay, if it has one."""
        self._delays.pop(key, None)

    def earliest(self) -> float | None:
        """When the next key is due; None if no key is delayed."""
        self._drop_outdated()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> tuple[K, Priority] | None:
        """Remove and return the key that is due first; None if none is due yet."""
        due = self.earliest()
        if due is None or due > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        _, priority = self._delays.pop(key)
        return key, priority

    def _drop_outdated(self) -> None:
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._delays) + _SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapq.heapify(self._heap)

    def _is_current(self, entry: tuple[float, int, K]) -> bool:
        due, _, key = entry
        delay = self._delays.get(key)
        return delay is not None and delay[0] == due
