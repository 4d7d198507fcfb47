"""What the statuses of all InferenceDeployments come to, as a few numbers that metrics tell.

Kept object by object and added up as they change, so that reading the sums costs the same for ten
objects and for ten thousand. An object is known by what it adds; nothing else of it is kept. A
status can have been edited by anybody who may, so a word that is none of ours counts as `Other`:
the number of sums stays bounded whatever stands there.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Literal

from tonnage.api.conditions import Condition, ConditionType, Reason
from tonnage.api.status import CandidateStatus, InferenceDeploymentStatus, PlacementStatus
from tonnage.placement.reasons import RejectedReason
from tonnage.reconcile.key import Key
from tonnage.reconcile.retain import read_time

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

MAX_UNPLACED: Final = 100
"""Unplaced objects that are told by name: those that have waited longest."""

MAX_WANTED: Final = 1000
"""Objects whose wanted replicas are told by name: the first ones by namespace and name."""

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
class Unplaced:
    """An object without a pool: the reason of its condition Placed, and since when (Unix time)."""

    key: Key
    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class _Entry:
    """What one object adds. `ratios` are measured by predicted KV cache, by accelerator, `wanted`
    the replicas that its load asks for, where that is followed."""

    sums: Mapping[Series, int]
    unplaced: Unplaced | None
    ratios: tuple[tuple[str, float], ...]
    wanted: int | None


@dataclass(slots=True)
class StatusBook:
    """The statuses that the leader reported or found; `accelerators` are the known names.

    Empty and not `kept` until this process leads and has read what exists.
    """

    accelerators: frozenset[str]
    kept: bool = False
    _entries: dict[Key, _Entry] = field(default_factory=dict)
    _sums: Counter[Series] = field(default_factory=Counter)
    _unplaced: dict[Key, Unplaced] = field(default_factory=dict)
    _ratios: dict[Key, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    _wanted: dict[Key, int] = field(default_factory=dict)

    def prime(self, statuses: Iterable[tuple[Key, InferenceDeploymentStatus]]) -> None:
        """What all objects say of themselves, read when this process began to lead."""
        for key, status in statuses:
            self.learn(key, status)
        self.kept = True

    def learn(self, key: Key, status: InferenceDeploymentStatus) -> None:
        """The object's status is so now."""
        entry = self._read(key, status)
        self.forget(key)
        self._entries[key] = entry
        self._sums.update(entry.sums)
        if entry.unplaced is not None:
            self._unplaced[key] = entry.unplaced
        if entry.ratios:
            self._ratios[key] = entry.ratios
        if entry.wanted is not None:
            self._wanted[key] = entry.wanted

    def forget(self, key: Key) -> None:
        """The object is gone."""
        before = self._entries.pop(key, None)
        if before is not None:
            self._sums.subtract(before.sums)
        self._unplaced.pop(key, None)
        self._ratios.pop(key, None)
        self._wanted.pop(key, None)

    def sums(self, name: Sum) -> Iterator[tuple[tuple[str, ...], int]]:
        """The label values and the amount of each series of a sum.

        A series that was told once is told as 0 when nothing is left of it, and so is each status
        of a condition from the start.
        """
        found = {series[1:]: amount for series, amount in self._sums.items() if series[0] == name}
        if name == "inferencedeployments":
            every = ((str(kind), status) for kind in COUNTED_CONDITIONS for status in _STATUSES)
            found = dict.fromkeys(every, 0) | found
        yield from sorted(found.items())

    def longest_unplaced(self) -> list[Unplaced]:
        """Those that have had no pool for longest, at most MAX_UNPLACED of them."""
        return heapq.nsmallest(
            MAX_UNPLACED, self._unplaced.values(), key=lambda found: (found.since, found.key)
        )

    def wanted_replicas(self) -> list[tuple[Key, int]]:
        """What the load asks for, of at most MAX_WANTED objects that follow it."""
        return heapq.nsmallest(MAX_WANTED, self._wanted.items())

    @property
    def untold_wanted(self) -> int:
        """Objects that follow their load and are too many to be told."""
        return max(0, len(self._wanted) - MAX_WANTED)

    def worst_ratios(self) -> dict[str, float]:
        """By accelerator the ratio of measured to predicted KV cache that is farthest from 1."""
        worst: dict[str, float] = {}
        for accelerator, ratio in chain.from_iterable(self._ratios.values()):
            worst[accelerator] = max(worst.get(accelerator, ratio), ratio, key=_distance)
        return worst

    def _read(self, key: Key, status: InferenceDeploymentStatus) -> _Entry:
        sums: Counter[Series] = Counter()
        conditions = {found.type: found for found in status.conditions}
        for kind in COUNTED_CONDITIONS:
            if kind in conditions:
                sums["inferencedeployments", str(kind), conditions[kind].status] += 1
        ready, placed = conditions.get(ConditionType.READY), conditions.get(ConditionType.PLACED)
        if ready is not None and ready.status != "True":
            sums["not_ready_objects", _known(ready.reason, _REASONS)] += 1
        unplaced = _read_unplaced(key, placed)
        if unplaced is not None:
            sums["unplaced_objects", unplaced.reason] += 1
        for accelerator in {self._name(found) for found in status.placements}:
            sums["placed_objects", accelerator] += 1
        for placement in status.placements:
            self._add_placement(sums, placement)
        sums.update(_count_rejected(status))
        ratios = ((self._name(found), _ratio(found)) for found in status.placements)
        known = tuple((name, ratio) for name, ratio in ratios if ratio)
        wanted = status.scaling.wanted_replicas if status.scaling else None
        return _Entry(sums, unplaced, known, wanted)

    def _add_placement(self, sums: Counter[Series], placement: PlacementStatus) -> None:
        accelerator = self._name(placement)
        sums["placed_replicas", accelerator] += placement.replicas
        sums["ready_replicas", accelerator] += placement.ready_replicas
        if placement.measured_kv_cache_tokens is not None:
            sums["kv_cache_tokens", accelerator, "predicted"] += placement.kv_cache_tokens
            sums["kv_cache_tokens", accelerator, "measured"] += placement.measured_kv_cache_tokens

    def _name(self, placement: PlacementStatus) -> str:
        return _known(placement.accelerator, self.accelerators)


def _read_unplaced(key: Key, placed: Condition | None) -> Unplaced | None:
    if placed is None or placed.status != "False":
        return None
    since = read_time(placed.last_transition_time)
    if since is None:
        return None
    return Unplaced(key, _known(placed.reason, _REASONS), since.timestamp())


def _count_rejected(status: InferenceDeploymentStatus) -> Counter[Series]:
    """Rejected pools by reason, also those that there were too many of to list."""
    rejected: Counter[Series] = Counter(
        ("rejected_candidates", _known(found.reason, _REJECTED))
        for found in status.candidates
        if _is_rejected(found)
    )
    for reason, count in status.omitted_candidates.items():
        if reason in _REJECTED:
            rejected["rejected_candidates", reason] += count
    return rejected


def _is_rejected(candidate: CandidateStatus) -> bool:
    return candidate.verdict == "Rejected"


def _ratio(placement: PlacementStatus) -> float:
    """Measured by predicted, 0 where one of them is not known."""
    measured, predicted = placement.measured_kv_cache_tokens, placement.kv_cache_tokens
    return measured / predicted if measured and measured > 0 and predicted > 0 else 0.0


def _distance(ratio: float) -> float:
    """Half as much is as far off as twice as much."""
    return max(ratio, 1 / ratio)


def _known(word: str, words: frozenset[str]) -> str:
    return word if word in words else OTHER
