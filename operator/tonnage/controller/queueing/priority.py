"""Priorities of the work queue: the workers reserved for each, and the order between them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final


class Priority(IntEnum):
    """Why a key is in the queue, most urgent first."""

    NEW_GENERATION = 0
    """A user changed a spec, and no status has observed that generation yet."""
    EVENT = 1
    """A watch event, or a delay that has ended."""
    RESYNC = 2
    """The periodic resync."""


_WEIGHTS: Final[Mapping[Priority, int]] = {
    Priority.NEW_GENERATION: 4,
    Priority.EVENT: 3,
    Priority.RESYNC: 1,
}


@dataclass(frozen=True, slots=True)
class WorkerShares:
    """How the priorities share the workers.

    `kept` workers process keys of one priority only; the others process all. `weights` is how many
    keys of each priority start in a round in which all have ready keys. The default keeps no worker
    and sets no limit.
    """

    workers: float = math.inf
    kept: Mapping[Priority, int] = field(default_factory=dict)
    weights: Mapping[Priority, int] = field(default_factory=lambda: _WEIGHTS)

    def __post_init__(self) -> None:
        total = sum(self.kept.values())
        open_to_all = self.workers - total
        if open_to_all < 0 or (open_to_all < 1 and not all(map(self.kept.get, Priority))):
            raise ValueError(f"{total} of {self.workers} workers kept: a priority has none")
        if not all(self.weights.get(priority, 0) > 0 for priority in Priority):
            raise ValueError(f"a priority without weight would starve: {dict(self.weights)}")

    @classmethod
    def among(cls, workers: int) -> "WorkerShares":
        """Of eight workers, keep two for new generations, two for events and one for resyncs.

        Fewer than four workers cannot keep one per priority and leave one for all. Two keep one for
        events, which report lost nodes; three also keep one for new generations.
        """
        kept = {
            Priority.NEW_GENERATION: max(workers // 4, int(workers >= 3)),
            Priority.EVENT: max(workers // 4, int(workers >= 2)),
            Priority.RESYNC: max(workers // 8, int(workers >= 4)),
        }
        return cls(workers, kept)

    def may_start(self, priority: Priority, running: Mapping[Priority, int]) -> bool:
        """Whether one more key of this priority leaves the other priorities their kept workers."""
        taken = 0
        for other in Priority:
            count = running.get(other, 0) + (other is priority)
            taken += max(count, self.kept.get(other, 0))
        return taken <= self.workers


class WeightedFairOrder:
    """Picks the priority that starts next, among those that have a ready key.

    Start-time fair queueing (Goyal et al., SIGCOMM 1996) with costs of 1. Each priority has a
    virtual time of its next start; the smallest is first. A start adds a stride, which is shorter
    for a greater weight. A priority without ready keys keeps its time, so it comes first once it
    has one; then its time continues from the latest start, so it makes up for one missed start and
    never for more.

    Invariant: between two starts of a priority p that is always a candidate, a priority q starts at
    most floor(weight(q) / weight(p)) + 1 times. The same holds until the first start of p.
    """

    def __init__(self, weights: Mapping[Priority, int]) -> None:
        common = math.lcm(*weights.values())
        self._strides = {priority: common // weight for priority, weight in weights.items()}
        self._next = dict.fromkeys(Priority, 0)
        self._latest = 0

    def pick(self, candidates: Iterable[Priority]) -> Priority:
        """Pick the priority that starts now; at equal times the more urgent one."""
        priority = min(candidates, key=lambda candidate: (self._next[candidate], candidate))
        self._latest = max(self._latest, self._next[priority])
        self._next[priority] = self._latest + self._strides[priority]
        return priority
