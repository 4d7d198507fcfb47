"""Sums over the statuses of all InferenceDeployments, for metrics.

The leader updates the sums as statuses change, so a scrape costs the same for ten objects and for
ten thousand. It keeps only what each object contributes. Users may edit a status, so an unknown
word counts as `Other`, which bounds the number of series.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Literal

from tonnage.api.conditions import Condition, ConditionType, Reason
from tonnage.api.status import CandidateStatus, InferenceDeploymentStatus, PlacementStatus
from tonnage.placement.reasons import RejectedReason
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.previous import read_time

Sum = Literal[
    "inferencedeployments",
    "placed_objects",
    "placed_replicas",
    "ready_replicas",
    "not_ready_objects",
    "rejected_candidates",
    "unplaced_objects",
    "kv_cache_tokens",
]
Series = tuple[Sum, *tuple[str, ...]]
"""A sum and the values of its labels."""

MAX_UNSCHEDULED: Final = 100
"""Objects without a pool that metrics name: those that have waited longest."""

MAX_WANTED: Final = 1000
"""Objects whose wanted replicas metrics name: the first ones by namespace and name."""

OTHER: Final = "Other"

COUNTED_CONDITIONS: Final = (
    ConditionType.ACCEPTED,
    ConditionType.PLACED,
    ConditionType.AVAILABLE,
    ConditionType.READY,
    ConditionType.SCALING_ACTIVE,
)
_STATUSES: Final = ("True", "False", "Unknown")
_REASONS: Final = frozenset(map(str, Reason))
_REJECTED: Final = frozenset(map(str, RejectedReason))


@dataclass(frozen=True, slots=True)
class UnscheduledObject:
    """An object without a pool: the reason of its condition Placed, and since when (Unix time)."""

    key: Key
    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class _Contribution:
    """What one object contributes. `ratios` is measured/predicted KV cache by accelerator; `wanted`
    is the replicas that its load needs, if it is autoscaled."""

    sums: Mapping[Series, int]
    unscheduled: UnscheduledObject | None
    ratios: tuple[tuple[str, float], ...]
    wanted: int | None


@dataclass(slots=True)
class StatusMetrics:
    """The statuses that the leader wrote or read; `accelerators` are the known names.

    Empty and not `kept` until this process leads and has read the existing objects.
    """

    accelerators: frozenset[str]
    kept: bool = False
    _entries: dict[Key, _Contribution] = field(default_factory=dict)
    _sums: Counter[Series] = field(default_factory=Counter)
    _unscheduled: dict[Key, UnscheduledObject] = field(default_factory=dict)
    _ratios: dict[Key, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    _wanted: dict[Key, int] = field(default_factory=dict)

    def complete(self) -> None:
        """A new leader has recorded the statuses of all objects."""
        self.kept = True

    def record(self, key: Key, status: InferenceDeploymentStatus) -> None:
        """Set the object's status."""
        entry = self._read_contribution(key, status)
        self.forget(key)
        self._entries[key] = entry
        self._sums.update(entry.sums)
        if entry.unscheduled is not None:
            self._unscheduled[key] = entry.unscheduled
        if entry.ratios:
            self._ratios[key] = entry.ratios
        if entry.wanted is not None:
            self._wanted[key] = entry.wanted

    def forget(self, key: Key) -> None:
        """Remove a deleted object."""
        before = self._entries.pop(key, None)
        if before is not None:
            self._sums.subtract(before.sums)
        self._unscheduled.pop(key, None)
        self._ratios.pop(key, None)
        self._wanted.pop(key, None)

    def sums(self, name: Sum) -> Iterator[tuple[tuple[str, ...], int]]:
        """The label values and the amount of each series of a sum.

        A series that was exported once stays at 0, and each status of a condition starts at 0.
        """
        sums = {series[1:]: amount for series, amount in self._sums.items() if series[0] == name}
        if name == "inferencedeployments":
            every = ((str(kind), status) for kind in COUNTED_CONDITIONS for status in _STATUSES)
            sums = dict.fromkeys(every, 0) | sums
        yield from sorted(sums.items())

    def longest_unscheduled(self) -> list[UnscheduledObject]:
        """The objects without a pool for longest, at most MAX_UNSCHEDULED."""
        return heapq.nsmallest(
            MAX_UNSCHEDULED, self._unscheduled.values(), key=lambda obj: (obj.since, obj.key)
        )

    def wanted_replicas(self) -> list[tuple[Key, int]]:
        """The replicas that the load needs, of at most MAX_WANTED autoscaled objects."""
        return heapq.nsmallest(MAX_WANTED, self._wanted.items())

    @property
    def omitted_wanted(self) -> int:
        """How many autoscaled objects `wanted_replicas` leaves out."""
        return max(0, len(self._wanted) - MAX_WANTED)

    def worst_ratios(self) -> dict[str, float]:
        """By accelerator, the ratio of measured to predicted KV cache that is farthest from 1."""
        worst: dict[str, float] = {}
        for accelerator, ratio in chain.from_iterable(self._ratios.values()):
            worst[accelerator] = max(worst.get(accelerator, ratio), ratio, key=_distance)
        return worst

    def _read_contribution(self, key: Key, status: InferenceDeploymentStatus) -> _Contribution:
        sums: Counter[Series] = Counter()
        conditions = {condition.type: condition for condition in status.conditions}
        for kind in COUNTED_CONDITIONS:
            if kind in conditions:
                sums["inferencedeployments", str(kind), conditions[kind].status] += 1
        ready, placed = conditions.get(ConditionType.READY), conditions.get(ConditionType.PLACED)
        if ready is not None and ready.status != "True":
            sums["not_ready_objects", _bounded(ready.reason, _REASONS)] += 1
        unscheduled = _read_unscheduled(key, placed)
        if unscheduled is not None:
            sums["unplaced_objects", unscheduled.reason] += 1
        for accelerator in {self._accelerator_of(placement) for placement in status.placements}:
            sums["placed_objects", accelerator] += 1
        for placement in status.placements:
            self._add_placement(sums, placement)
        sums.update(_count_rejected(status))
        ratios = tuple(
            (self._accelerator_of(placement), ratio)
            for placement in status.placements
            if (ratio := _kv_cache_ratio(placement))
        )
        wanted = status.scaling.wanted_replicas if status.scaling else None
        return _Contribution(sums, unscheduled, ratios, wanted)

    def _add_placement(self, sums: Counter[Series], placement: PlacementStatus) -> None:
        accelerator = self._accelerator_of(placement)
        sums["placed_replicas", accelerator] += placement.replicas
        sums["ready_replicas", accelerator] += placement.ready_replicas
        if placement.measured_kv_cache_tokens is not None:
            sums["kv_cache_tokens", accelerator, "predicted"] += placement.kv_cache_tokens
            sums["kv_cache_tokens", accelerator, "measured"] += placement.measured_kv_cache_tokens

    def _accelerator_of(self, placement: PlacementStatus) -> str:
        return _bounded(placement.accelerator, self.accelerators)


def _read_unscheduled(key: Key, placed: Condition | None) -> UnscheduledObject | None:
    if placed is None or placed.status != "False":
        return None
    since = read_time(placed.last_transition_time)
    if since is None:
        return None
    return UnscheduledObject(key, _bounded(placed.reason, _REASONS), since.timestamp())


def _count_rejected(status: InferenceDeploymentStatus) -> Counter[Series]:
    """Rejected pools by reason, including those that the status omits."""
    rejected: Counter[Series] = Counter(
        ("rejected_candidates", _bounded(candidate.reason, _REJECTED))
        for candidate in status.candidates
        if _is_rejected(candidate)
    )
    for reason, count in status.omitted_candidates.items():
        if reason in _REJECTED:
            rejected["rejected_candidates", reason] += count
    return rejected


def _is_rejected(candidate: CandidateStatus) -> bool:
    return candidate.verdict == "Rejected"


def _kv_cache_ratio(placement: PlacementStatus) -> float:
    """Measured/predicted tokens; 0 if one of them is unknown."""
    measured, predicted = placement.measured_kv_cache_tokens, placement.kv_cache_tokens
    return measured / predicted if measured and measured > 0 and predicted > 0 else 0.0


def _distance(ratio: float) -> float:
    """The factor by which the ratio differs from 1: the same for a half and for two."""
    return max(ratio, 1 / ratio)


def _bounded(word: str, words: frozenset[str]) -> str:
    return word if word in words else OTHER
