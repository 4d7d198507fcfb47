"""Requests to placement and its decisions."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Final

from tonnage.api.inference import DEFAULT_ENGINE, InferenceDeploymentSpec
from tonnage.catalog.model import Accelerator
from tonnage.catalog.rules import Settings
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.calibration.corrections import UNCORRECTED, Corrections
from tonnage.fit.model import DoesNotFit, MemoryFit, Parallelism
from tonnage.fleet.model import Pool
from tonnage.fleet.resources import NOTHING, Resources
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments, FailedStart
from tonnage.placement.load import Demanded, FullReplica
from tonnage.placement.namespace import Quota
from tonnage.placement.pricing import PriceSource
from tonnage.placement.reasons import RejectedReason
from tonnage.throughput.model import ThroughputEstimate


class Verdict(StrEnum):
    """The result for one pool."""

    CHOSEN = "Chosen"
    FEASIBLE = "Feasible"
    REJECTED = "Rejected"


@dataclass(frozen=True, slots=True)
class PlacedFor:
    """What running replicas were placed for: each holds so many `tokens` at once.

    They stay where a later operator, or other facts of the model, would judge that they do not fit.
    `same_demand`: the load and the bounds of the spec are the same, too; then `replicas` stay.
    """

    tokens: int
    same_demand: bool
    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class RunningSecondary:
    """A secondary placement: replicas of the same object on another pool than the kept one. `held`
    replicas of this parallelism hold GPUs there, with these adjustments and this engine."""

    pool: str
    parallelism: Parallelism
    held: int
    adjustments: EngineAdjustments = UNADJUSTED
    placed_for: PlacedFor | None = None
    engine: str = DEFAULT_ENGINE


@dataclass(frozen=True, slots=True)
class ReplicaPods:
    """The pods of a spec. `requests` is what one requests besides GPUs with an option, `usage` what
    it uses of quotas, by their keys, and `refuse` why its namespace refuses one whatever others
    use, None where it does not. Where `key` is equal, they answer the same for equal options, and
    `requests` whatever nodes the pool has."""

    key: Hashable
    requests: "Callable[[Option], Resources]"
    usage: "Callable[[Option], Mapping[str, int]]" = lambda option: {}
    refuse: "Callable[[Option], Rejection | None]" = lambda option: None


BARE_PODS: Final = ReplicaPods(None, lambda option: NOTHING)
"""Pods that request nothing but GPUs, and that every namespace takes."""


@dataclass(frozen=True, slots=True)
class Request:
    """One InferenceDeployment to be placed.

    `keep` is the pool and parallelism that its replicas run with now, where placement prefers them
    to any migration; `held` replicas hold GPUs there, also on cordoned nodes: the kept option's
    `capacity` is never less. `failed_starts` are starts that ran out of memory, oldest first: none
    of them is an option again. `kept_adjustments` is what the replicas run with now. `corrections`
    are calibrated from all starts, `kept_corrections` those at the time of the kept choice: they
    apply to the kept pool, so that no calibration migrates running replicas. `placed_for` is what
    these were placed for, None where the spec has changed since. `demanded` are the
    replicas that the measured load demands, None without a measurement. `secondary` are secondary
    placements: their parallelism is kept, too, but the choice does not depend on them.
    `failed_pools` are the pools, by name, on which the replicas did not come up, with the cause:
    only replicas that are still there may stay. `quotas` are those of the namespace that
    count its pods, without what these use. `has_leader_worker_set`: the cluster has the kind that
    runs a replica on several nodes, `has_compute_domains` the one that connects these over NVLink.
    `channel_pools` are the pools, by name, whose running replicas have channels of a ComputeDomain.
    Where the spec leaves the engine to the operator, `kept_engine` is that of the kept replicas,
    and `refused_engines` are those that cannot serve the spec on any pool, with the reason.
    """

    owner: tuple[str, str]
    spec: InferenceDeploymentSpec
    checkpoint: Checkpoint
    keep: tuple[str, Parallelism] | None = None
    held: int = 0
    failed_starts: tuple[FailedStart, ...] = ()
    kept_adjustments: EngineAdjustments = UNADJUSTED
    corrections: Corrections = UNCORRECTED
    kept_corrections: Corrections = UNCORRECTED
    demanded: Demanded | None = None
    secondary: tuple[RunningSecondary, ...] = ()
    failed_pools: Mapping[str, str] = field(default_factory=dict)
    placed_for: PlacedFor | None = None
    quotas: tuple[Quota, ...] = ()
    pods: ReplicaPods = BARE_PODS
    has_leader_worker_set: bool = False
    has_compute_domains: bool = False
    channel_pools: frozenset[str] = frozenset()
    kept_engine: str = DEFAULT_ENGINE
    refused_engines: Mapping[str, str] = field(default_factory=dict)

    def for_engine(self, name: str) -> "Request":
        """The request as one for this engine, whose replicas alone are kept."""
        secondary = tuple(one for one in self.secondary if one.engine == name)
        request = replace(self, spec=self.spec.with_engine(name), secondary=secondary)
        if name == self.kept_engine:
            return request
        return replace(request, keep=None, held=0, kept_adjustments=UNADJUSTED, placed_for=None)


@dataclass(frozen=True, slots=True)
class Option:
    """A pool with a parallelism that fits: its devices, performance and cost.

    `replicas` are wanted; `capacity` of them can run now, with the object's own GPUs,
    `grown_capacity` once a node autoscaler has added all nodes. `cost_per_hour` is that of all
    wanted replicas in US dollars, None without a known price; `price_source` is the origin of the
    price. `price_per_gpu_hour` is that of one device of the pool, `estimate` that of one replica
    with its part of the requests. Options are compared with at least one replica, so that a
    deployment that is scaled to zero gets a pool as well. `notes` are remarks for the user;
    `overridden` are the compatibility rules that the user overrides, `settings` what the server
    needs there, `adjustments` engine settings that Tonnage set because starts with higher values
    ran out of memory. `avoided`: it fits tightly, and the user prefers any other option.
    `unverified` are the compatibility rules that warn of the model there. `full` is one full
    replica, where the number of replicas follows the load. `placement` is the placement's name
    where that is not the accelerator's id, because another pool of this accelerator is in use as
    well. `needed` are the replicas that the measured load needs there, not rounded; None where
    they equal `replicas`. `others` is what a replica requests besides GPUs. `engine` runs it;
    `engine_reason` is why this one and no other, None where the spec names it.
    """

    pool: Pool
    parallelism: Parallelism
    fit: MemoryFit
    replicas: int
    capacity: int
    grown_capacity: int
    cost_per_hour: Decimal | None
    price_source: PriceSource
    estimate: ThroughputEstimate | None
    price_per_gpu_hour: Decimal | None = None
    notes: tuple[str, ...] = ()
    overridden: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    avoided: bool = False
    unverified: tuple[str, ...] = ()
    adjustments: EngineAdjustments = UNADJUSTED
    full: FullReplica | None = None
    placement: str | None = None
    needed: Fraction | None = None
    others: Resources = NOTHING
    engine: str = DEFAULT_ENGINE
    engine_reason: str | None = None
    gpus: int = field(init=False, repr=False)
    """GPUs of the compared replicas."""
    compared_cost: Decimal | None = field(init=False, repr=False)
    """US dollars per hour of the compared replicas."""

    def __post_init__(self) -> None:
        # Each option is created once and compared with many others.
        gpus, price = max(1, self.replicas) * self.parallelism.gpus, self.price_per_gpu_hour
        object.__setattr__(self, "gpus", gpus)
        object.__setattr__(self, "compared_cost", None if price is None else price * gpus)

    @property
    def accelerator(self) -> Accelerator:
        """The device of the pool; a pool of unknown devices is never an option."""
        accelerator = self.pool.accelerator
        assert accelerator is not None, f"pool {self.pool.name} is an option without an accelerator"
        return accelerator

    @property
    def placement_name(self) -> str:
        """Name of the placement within its owner: that of the option, else the accelerator's id,
        with the nodes of a replica where it has several.

        Not the pool's name: pods must not roll because a platform team declares, under its own
        name, a pool of the same nodes.
        """
        if self.placement is not None:
            return self.placement
        nodes = self.parallelism.nodes
        return f"{self.accelerator.id}-{nodes}nodes" if nodes > 1 else self.accelerator.id

    @property
    def place(self) -> str:
        """Where it runs, for messages: the pool, and the engine where the operator chose it."""
        return self.pool.name if self.engine_reason is None else f"{self.pool.name} / {self.engine}"

    @property
    def kv_cache_tokens(self) -> int:
        """Tokens that the KV caches of all data-parallel ranks of one replica hold at once."""
        return self.fit.account.kv_cache_tokens * self.parallelism.data

    @property
    def tokens_per_second(self) -> float | None:
        """Generated tokens per second of the compared replicas, None without an estimate."""
        if self.estimate is None:
            return None
        return self.estimate.tokens_per_second * max(1, self.replicas)

    @property
    def awaited_nodes(self) -> int:
        """Nodes that a node autoscaler has to add for as many of the wanted replicas as the pool
        can ever run; 0 where it needs none, or can add none."""
        awaited_replicas = min(self.replicas, self.grown_capacity) - self.capacity
        if awaited_replicas <= 0:
            return 0
        return self.pool.nodes.nodes_to_add(
            self.parallelism.footprint, self.others, awaited_replicas
        )


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a pool is rejected: a CamelCase reason and a sentence.

    `shortage` is the missing memory where no parallelism fits, `option` the nearest option where
    one fits.
    """

    reason: RejectedReason
    message: str
    shortage: DoesNotFit | None = None
    option: Option | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pool's verdict with one CamelCase reason, one sentence with numbers, and the option behind
    it where there is one. `shortage` is the missing memory where no parallelism fits."""

    pool: Pool
    verdict: Verdict
    reason: str
    message: str
    option: Option | None = None
    shortage: DoesNotFit | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """All judged pools, best first; `chosen` is the chosen option, None without one.

    `reason` is one of condition Placed, `message` explains the choice in one sentence. A choice
    without capacity for all replicas has InsufficientGPUs, and the nodes that it waits for.
    """

    candidates: tuple[Candidate, ...]
    chosen: Option | None
    reason: str
    message: str
