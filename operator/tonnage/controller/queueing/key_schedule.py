"""The order of the work queue: decides which key is next, and never waits.

Invariants:

- No two workers process a key at once. A key added while a worker processes it is processed again
  afterwards. No added key is lost, and none is in the queue twice.
- A bounded number of other keys overtake a ready key that may start: those that
  WeightedFairOrder lets pass between priorities, times those of FairQueue between namespaces.
- Workers that WorkerShares keeps for a priority never start keys of another one.

The rules are those of client-go's workqueue, with one exception: taking a key cancels its delay,
because the store that the reconcile reads already has what the delay was for.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tonnage.controller.queueing.delayed_keys import DelayedKeys
from tonnage.controller.queueing.fair_queue import FairQueue
from tonnage.controller.queueing.priority import Priority, WeightedFairOrder, WorkerShares

K = TypeVar("K")

NO_SHARES: Final = WorkerShares()


def one_namespace(_: object) -> Hashable:
    """Put all keys into one namespace: first in, first out."""
    return None


@dataclass(frozen=True, slots=True)
class _Ready:
    priority: Priority
    since: float


class KeySchedule(Generic[K]):
    """Keys that are ready, delayed, or being processed. No operation takes more than O(log n)."""

    def __init__(
        self,
        clock: Callable[[], float],
        shares: WorkerShares = NO_SHARES,
        namespace_of: Callable[[K], Hashable] = one_namespace,
    ) -> None:
        self._clock = clock
        self._shares = shares
        self._order = WeightedFairOrder(shares.weights)
        self._queues = {priority: FairQueue(namespace_of) for priority in Priority}
        self._ready: dict[K, _Ready] = {}
        self._processing: dict[K, Priority] = {}
        self._running: Counter[Priority] = Counter()  # the values of _processing
        self._dirty: dict[K, Priority] = {}
        self._delays: DelayedKeys[K] = DelayedKeys()

    @property
    def depth(self) -> int:
        """How many keys are ready."""
        return len(self._ready)

    def add(self, key: K, priority: Priority = Priority.EVENT) -> bool:
        """Make the key ready; return whether it was not ready before.

        A key that is ready at a lower priority moves up and keeps its waiting time.
        """
        if key in self._processing:
            dirty = self._dirty.get(key)
            self._dirty[key] = priority if dirty is None else min(dirty, priority)
            return dirty is None
        ready = self._ready.get(key)
        if ready is None:
            self._ready[key] = _Ready(priority, self._clock())
            self._queues[priority].push(key)
            return True
        if priority < ready.priority:
            self._queues[ready.priority].remove(key)
            self._ready[key] = _Ready(priority, ready.since)
            self._queues[priority].push(key)
        return False

    def priority_in_process(self, key: K) -> Priority | None:
        """The priority at which a worker processes the key; None if no worker does."""
        return self._processing.get(key)

    def add_after(self, key: K, seconds: float, priority: Priority = Priority.EVENT) -> None:
        """Make the key ready later. Of several delays the earliest applies, and the highest of
        their priorities."""
        self._delays.add(key, self._clock() + max(0.0, seconds), priority)

    def take(self) -> tuple[K, float] | None:
        """Take the next key, and the seconds since it was ready; None if no key may start."""
        self._promote_due()
        candidates = [
            priority
            for priority, queue in self._queues.items()
            if queue and self._shares.may_start(priority, self._running)
        ]
        if not candidates:
            return None
        priority = self._order.pick(candidates)
        key = self._queues[priority].pop()
        ready = self._ready.pop(key)
        self._processing[key] = priority
        self._running[priority] += 1
        self._delays.discard(key)
        return key, self._clock() - ready.since

    def done(self, key: K) -> None:
        """Record that the key was processed. A key that was added meanwhile is ready now."""
        priority = self._processing.pop(key, None)
        if priority is None:
            return
        self._running[priority] -= 1
        dirty = self._dirty.pop(key, None)
        if dirty is not None:
            self.add(key, dirty)

    def seconds_to_next(self) -> float | None:
        """Seconds until a delayed key is due; None if no key is delayed."""
        due = self._delays.earliest()
        return None if due is None else max(0.0, due - self._clock())

    def _promote_due(self) -> None:
        now = self._clock()
        while (delayed := self._delays.pop_due(now)) is not None:
            self.add(*delayed)
