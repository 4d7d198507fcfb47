"""Which key is next: the rules of the work queue, without waiting.

Invariants: a key is never handed out twice at once; a key added while it is being processed is
handed out again afterwards; no key that was added is lost. The rules are those of client-go's
workqueue, save one: a key that is handed out takes its own delayed additions with it, because
whatever they were to bring about is read live now.
"""

import heapq
import math
from collections.abc import Callable
from typing import Generic, TypeVar

from tonnage.runtime.others_at_once import OthersAtOnce
from tonnage.runtime.priority import Priority

K = TypeVar("K")


class KeySchedule(Generic[K]):
    """Keys that are ready, delayed, or being processed."""

    def __init__(
        self, clock: Callable[[], float], others_at_once: OthersAtOnce[K] | None = None
    ) -> None:
        self._clock = clock
        self._others: OthersAtOnce[K] = others_at_once or OthersAtOnce()
        # Ordered sets: key -> when it became ready.
        self._ready: dict[Priority, dict[K, float]] = {priority: {} for priority in Priority}
        self._processing: set[K] = set()
        self._dirty: dict[K, Priority] = {}
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._entries = 0

    @property
    def depth(self) -> int:
        """Keys that are ready now."""
        return sum(len(keys) for keys in self._ready.values())

    def add(self, key: K, priority: Priority = Priority.EVENT) -> bool:
        """Make a key ready, once; whether it was not ready before."""
        if key in self._processing:
            known = self._dirty.get(key)
            self._dirty[key] = priority if known is None else min(known, priority)
            return known is None
        known = next((each for each, keys in self._ready.items() if key in keys), None)
        if known is not None and known <= priority:
            return False
        since = self._clock() if known is None else self._ready[known].pop(key)
        self._ready[priority][key] = since
        return known is None

    def add_after(self, key: K, seconds: float) -> None:
        """Make a key ready later; of several delays the earliest counts."""
        due = self._clock() + max(0.0, seconds)
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._entries += 1  # equal times are compared by age, never by key
        heapq.heappush(self._heap, (due, self._entries, key))

    def take(self) -> tuple[K, float] | None:
        """The next key and the seconds it was ready, None when none is, or none may be taken."""
        self._promote_due()
        now = self._clock()
        for priority, keys in self._ready.items():
            if priority is not Priority.NEW_GENERATION and self._others.seconds_to_room(now) > 0:
                return None
            if keys:
                key = next(iter(keys))
                since = keys.pop(key)
                self._processing.add(key)
                if priority is Priority.NEW_GENERATION:
                    self._others.wish_started(now)
                else:
                    self._others.started(key, now)
                self._due.pop(key, None)
                return key, now - since
        return None

    def done(self, key: K) -> None:
        """Let a key be handed out again; one that was added meanwhile is ready now."""
        self._processing.discard(key)
        self._others.done(key, self._clock())
        priority = self._dirty.pop(key, None)
        if priority is not None:
            self.add(key, priority)

    def seconds_to_next(self) -> float | None:
        """Seconds until there may be a key to take without anything being added or done: a delayed
        one, or one that is ready and is held back beside wishes. None where there is neither."""
        self._drop_outdated()
        now = self._clock()
        moments = [self._heap[0][0] - now] if self._heap else []
        if any(
            keys
            for priority, keys in self._ready.items()
            if priority is not Priority.NEW_GENERATION
        ):
            moments.append(self._others.seconds_to_room(now))
        soonest = min(moments, default=math.inf)
        return max(0.0, soonest) if soonest < math.inf else None

    def _promote_due(self) -> None:
        now = self._clock()
        self._drop_outdated()
        while self._heap and self._heap[0][0] <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            self.add(key)
            self._drop_outdated()

    def _drop_outdated(self) -> None:
        """A delay that was overtaken stays in the heap until it comes to its top."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
