"""How the operator chooses the pool: spec.placement of an InferenceDeployment."""

from enum import StrEnum
from typing import Annotated

from pydantic import Discriminator, Field, StrictBool, Tag

from tonnage.api.schema import (
    STRICT_NUMBER,
    UNION_TAGS,
    ApiModel,
    Duration,
    Money,
    PositiveInt,
)


class PlacementPolicy(StrEnum):
    """How feasible pools are ranked."""

    LOWEST_COST = "LowestCost"
    FEWEST_GPUS = "FewestGPUs"
    HIGHEST_THROUGHPUT = "HighestThroughput"


class TightFit(StrEnum):
    """Whether to avoid plans whose spare memory is within the uncertainty of the calculation."""

    AVOID = "Avoid"
    ACCEPT = "Accept"


class PoolSelector(ApiModel):
    """Selects AcceleratorPools by label."""

    match_labels: Annotated[dict[str, str], Field(max_length=32)] = {}
    """Labels that a pool must have."""


class FallbackReturn(StrEnum):
    """Whether replicas return to their original pool after a fallback."""

    NEVER = "Never"
    WHEN_POSSIBLE = "WhenPossible"


class Fallback(ApiModel):
    """When replicas migrate from a pool that lacks GPUs, or on which they do not come up."""

    after: Duration = "10m"
    """How long replicas wait for GPUs of their pool before they migrate to another pool. Replicas
    of which none has come up leave a pool after the same time, once their plan has failed there
    (`rollout.progressDeadline`). Default: 10m."""
    back: FallbackReturn = FallbackReturn.NEVER
    """Never: replicas stay where they are after a fallback. WhenPossible: they return to the
    original pool once it has had capacity for all of them for `rebalance.stabilizationWindow`.
    Default: Never."""


class RebalancePolicy(StrEnum):
    """Whether running replicas migrate to a cheaper pool."""

    NEVER = "Never"
    WHEN_CHEAPER_BY = "WhenCheaperBy"


class Rebalance(ApiModel):
    """When running replicas migrate to a cheaper pool."""

    policy: RebalancePolicy = RebalancePolicy.NEVER
    """Never, or WhenCheaperBy: migrate to a pool that is cheaper by `percent`. Default: Never."""
    percent: Annotated[int, Field(ge=1, le=99), STRICT_NUMBER] = 20
    """Minimum difference in cost per hour, in percent. Default: 20."""
    stabilization_window: Duration = "30m"
    """How long the other pool must stay cheaper before replicas migrate. Default: 30m."""


class SpreadPolicy(StrEnum):
    """Whether the replicas of an InferenceDeployment can run on several pools at once."""

    NEVER = "Never"
    WHEN_SHORT = "WhenShort"
    BY_COST = "ByCost"


class Spread(ApiModel):
    """How replicas are distributed over several pools."""

    policy: SpreadPolicy | None = None
    """Never: all replicas run on one pool. WhenShort: replicas that exceed the capacity of the
    chosen pool run on other pools. ByCost: pools are filled in the order of `placement.policy`,
    even if one has capacity for all replicas. Default: Never."""
    min_replicas_per_pool: PositiveInt | None = None
    """Minimum number of replicas on each additional pool. Default: 1."""
    max_pools: Annotated[int, Field(ge=2, le=16), STRICT_NUMBER] | None = None
    """Maximum number of pools. Default: 4."""


class MultiNodePolicy(StrEnum):
    """Whether one replica can run on several nodes."""

    AUTO = "Auto"
    NEVER = "Never"


class DataParallelPolicy(StrEnum):
    """Whether the GPUs of one replica can have data-parallel attention."""

    AUTO = "Auto"
    NEVER = "Never"


class MultiNode(ApiModel):
    """Lets one replica run on several nodes, even where one node of the pool is enough."""

    max_nodes: Annotated[int, Field(ge=1, le=16), STRICT_NUMBER] = 4
    """Maximum number of nodes of one replica. Default: 4."""
    allow_tcp: StrictBool = False
    """Whether the nodes can exchange data over TCP, in pools without an interconnect. Default:
    false."""
    tensor_parallel: StrictBool = False
    """Whether a tensor-parallel group can span the nodes, in pools with an interconnect: every
    layer then sends its outputs over it. Default: false."""


MultiNodeChoice = Annotated[
    Annotated[MultiNodePolicy, Tag(UNION_TAGS[0])] | Annotated[MultiNode, Tag(UNION_TAGS[1])],
    Discriminator(lambda value: UNION_TAGS[isinstance(value, dict | MultiNode)]),
]


class PlacementSpec(ApiModel):
    """How the operator chooses the pool."""

    policy: PlacementPolicy = PlacementPolicy.LOWEST_COST
    """How feasible pools are ranked: LowestCost, FewestGPUs or HighestThroughput. Default:
    LowestCost."""
    accelerators: Annotated[list[str], Field(max_length=64)] | None = None
    """Allowed accelerators: IDs as mi300x or h100-sxm-80gb, families as h100, or a vendor (amd,
    nvidia). Default: all."""
    pool_selector: PoolSelector | None = None
    """Allowed AcceleratorPools, by label. Default: all pools."""
    fallback: Fallback = Fallback()
    """When replicas migrate from a pool that lacks GPUs."""
    rebalance: Rebalance = Rebalance()
    """When running replicas migrate to a cheaper pool. Only one InferenceDeployment migrates at a
    time."""
    spread: Spread = Spread()
    """How replicas are distributed over several pools."""
    prefer_growth: StrictBool | None = None
    """Whether pools that must grow first rank like pools with free GPUs: the replicas then wait for
    the node autoscaler of a cheaper pool, at most `fallback.after`. Default: false."""
    multi_node: Annotated[
        MultiNodeChoice | None,
        Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
    ] = None
    """Whether one replica can run on several nodes of a pool with an interconnect. Auto: where no
    node of the pool is enough, on up to 4. Never: on one node only. An object: on up to `maxNodes`
    nodes wherever `policy` ranks that higher, and with `allowTcp` in pools without an interconnect,
    too. Default: Auto."""
    data_parallel: DataParallelPolicy | None = None
    """Whether the GPUs of one replica of a mixture-of-experts model can each have whole attention
    layers and requests of their own, and share the experts (expert parallelism). Auto: wherever
    `policy` ranks that higher. Never: only tensor and pipeline parallelism. Default: Auto."""
    max_cost_per_hour: Money | None = None
    """Maximum cost of all replicas in US dollars per hour. With `workload.longContext`, it applies
    to each endpoint. Default: no limit."""
    tight_fit: TightFit = TightFit.AVOID
    """Avoid: plans whose spare memory is within the uncertainty of the calculation rank below
    others. Accept: they rank like others. Default: Avoid."""
    allow: Annotated[list[str], Field(max_length=64)] = []
    """Names of compatibility rules to override, as in status.candidates. A rule that only warns no
    longer ranks a pool lower."""
