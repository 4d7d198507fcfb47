"""What is asked of placement and what it answers."""

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.model import Accelerator
from tonnage.catalog.rules import Settings
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.corrections import UNCORRECTED, Corrections
from tonnage.fit.model import DoesNotFit, MemoryFit, Parallelism
from tonnage.fleet.model import Pool
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments, Tried
from tonnage.placement.load import Demanded, FullReplica
from tonnage.placement.pricing import PriceSource
from tonnage.placement.reasons import RejectedReason
from tonnage.throughput.model import ThroughputEstimate


class Verdict(StrEnum):
    """What became of a pool."""

    CHOSEN = "Chosen"
    FEASIBLE = "Feasible"
    REJECTED = "Rejected"


@dataclass(frozen=True, slots=True)
class RunningBeside:
    """Replicas of the same object that run on a pool beside the one that is kept: so many of this
    split have GPUs there, with these adjustments."""

    pool: str
    parallelism: Parallelism
    held: int
    adjustments: EngineAdjustments = UNADJUSTED


@dataclass(frozen=True, slots=True)
class Request:
    """One InferenceDeployment's wish. `keep` names the pool and split that its replicas run on now,
    when that is to be preferred to any move; `held` of them have GPUs there already, also on nodes
    that take no new pods (cordoned): the kept option's room is never less. `tried` are starts that
    died of memory, oldest first: none of them is an option again. `kept_adjustments` is what the
    replicas run with now. `corrections` are what all starts have taught, `kept_corrections` what
    had been learnt when the kept option was chosen: the pool of that is judged by these, so that no
    lesson moves replicas that run. `demanded` are the replicas that the measured load asks for,
    None where nobody measures it. `beside` are replicas on further pools: their splits are kept,
    too, but the choice does not follow them."""

    owner: tuple[str, str]
    spec: InferenceDeploymentSpec
    checkpoint: Checkpoint
    keep: tuple[str, Parallelism] | None = None
    held: int = 0
    tried: tuple[Tried, ...] = ()
    kept_adjustments: EngineAdjustments = UNADJUSTED
    corrections: Corrections = UNCORRECTED
    kept_corrections: Corrections = UNCORRECTED
    demanded: Demanded | None = None
    beside: tuple[RunningBeside, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """A pool with a split that fits: what it would take, deliver and cost.

    `replicas` are wanted, `room` can run (now, own GPUs included), `grown_room` can once a node
    autoscaler has added what it may. `cost_per_hour` is that of all wanted replicas in US dollars,
    None when nobody knows a price; `price_source` says where the price comes from.
    `price_per_gpu_hour` is that of one device of the pool, `estimate` that of one replica at the
    requests that fall to it. Options are compared as if at least one replica were wanted, so that a
    deployment scaled to zero has its place all the same. `notes` are what the user should know of
    it, though nothing forbids it; `overridden` are the compatibility rules that the user set aside
    for it, `settings` what the server needs there, `adjustments` what Tonnage sets of the engine
    since starts without it died of memory. `avoided`: it fits tightly, and the user does
    not accept that where there is a choice. `full` is one of its replicas at its fullest, where the
    load is to be followed. `placement` names its placement where that is not simply the
    accelerator's id, since another pool of the same accelerator is in use beside it. `needed` are
    the replicas that the measured load needs there, not rounded; None where `replicas` are just as
    many.
    """

    pool: Pool
    parallelism: Parallelism
    fit: MemoryFit
    replicas: int
    room: int
    grown_room: int
    cost_per_hour: Decimal | None
    price_source: PriceSource
    estimate: ThroughputEstimate | None
    price_per_gpu_hour: Decimal | None = None
    notes: tuple[str, ...] = ()
    overridden: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    avoided: bool = False
    adjustments: EngineAdjustments = UNADJUSTED
    full: FullReplica | None = None
    placement: str | None = None
    needed: Fraction | None = None
    gpus: int = field(init=False, repr=False)
    """GPUs of the replicas compared by."""
    compared_cost: Decimal | None = field(init=False, repr=False)
    """US dollars an hour of the replicas compared by."""

    def __post_init__(self) -> None:
        # Each option is compared with many others, and made once.
        gpus, price = max(1, self.replicas) * self.parallelism.gpus, self.price_per_gpu_hour
        object.__setattr__(self, "gpus", gpus)
        object.__setattr__(self, "compared_cost", None if price is None else price * gpus)

    @property
    def accelerator(self) -> Accelerator:
        """The device of the pool; a pool of unknown devices is never an option."""
        found = self.pool.accelerator
        assert found is not None, f"pool {self.pool.name} is an option without an accelerator"
        return found

    @property
    def tokens_per_second(self) -> float | None:
        """Generated tokens a second of the replicas compared by, None without an estimate."""
        if self.estimate is None:
            return None
        return self.estimate.tokens_per_second * max(1, self.replicas)

    @property
    def awaited_nodes(self) -> int:
        """Nodes that a node autoscaler has to add before as many of the wanted replicas run as can
        come to run on the pool; 0 where it needs none, or can add none."""
        awaited = min(self.replicas, self.grown_room) - self.room
        if awaited <= 0:
            return 0
        return -(-awaited // (self.pool.largest_node // self.parallelism.gpus))


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a pool is out, in a word and in a sentence.

    `shortage` is what memory lacks where no split fits, `option` the split that came nearest where
    one does.
    """

    reason: RejectedReason
    message: str
    shortage: DoesNotFit | None = None
    option: Option | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pool's verdict with one CamelCase reason, one sentence with numbers, and the option behind
    it where there is one. `shortage` is what memory lacks where no split fits."""

    pool: Pool
    verdict: Verdict
    reason: str
    message: str
    option: Option | None = None
    shortage: DoesNotFit | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Every pool judged, best first; `chosen` is the option taken, None when none was.

    `reason` is one of condition Placed, `message` says in one sentence why that pool or why none:
    with a choice that lacks room InsufficientGPUs, and what it waits for.
    """

    candidates: tuple[Candidate, ...]
    chosen: Option | None
    reason: str
    message: str
