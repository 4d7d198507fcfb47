"""Priorities of the work queue: the workers kept for each, and the order between them."""

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
    """A watch event, or a delay that is over."""
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

    `kept` workers process keys of their own priority only; the rest is for all. `weights` say how
    many keys of each priority start in a round in which all of them have ready keys. The default
    keeps no worker and sets no limit.
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
        """Two of eight workers are kept for new generations, two for events, one for resyncs.

        Fewer than four cannot give each priority one and leave one for all. Two keep one for
        events, which tell of lost nodes, and three another one for new generations.
        """
        kept = {
            Priority.NEW_GENERATION: max(workers // 4, int(workers >= 3)),
            Priority.EVENT: max(workers // 4, int(workers >= 2)),
            Priority.RESYNC: max(workers // 8, int(workers >= 4)),
        }
        return cls(workers, kept)

    def may_start(self, priority: Priority, running: Mapping[Priority, int]) -> bool:
        """Whether one more key of this priority leaves the others the workers kept for them."""
        taken = 0
        for each in Priority:
            count = running.get(each, 0) + (each is priority)
            taken += max(count, self.kept.get(each, 0))
        return taken <= self.workers


class WeightedFairOrder:
    """Which priority starts next, among those that have something to start.

    Start-time fair queueing (Goyal et al., SIGCOMM 1996) with costs of 1. Each priority has a
    virtual time at which it starts next; the smallest is first. A start moves it on by a stride,
    which is the shorter the greater the weight of the priority. A priority that had nothing to
    start keeps its time, so it comes first once it has; then its time moves on from that of the
    latest start, so it makes up for one missed start only and never for more.

    Invariant: between two starts of a priority p that is always a candidate, a priority q has at
    most floor(weight(q) / weight(p)) + 1. The same holds until its first start.
    """

    def __init__(self, weights: Mapping[Priority, int]) -> None:
        common = math.lcm(*weights.values())
        self._strides = {priority: common // weight for priority, weight in weights.items()}
        self._next = dict.fromkeys(Priority, 0)
        self._latest = 0

    def pick(self, candidates: Iterable[Priority]) -> Priority:
        """Choose the priority that starts now; at equal times the more urgent one."""
        priority = min(candidates, key=lambda each: (self._next[each], each))
        self._latest = max(self._latest, self._next[priority])
        self._next[priority] = self._latest + self._strides[priority]
        return priority
