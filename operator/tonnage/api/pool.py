"""The AcceleratorPool: nodes that carry the same accelerator, declared or discovered."""

from typing import Annotated

from pydantic import Field, StringConstraints

from tonnage.api.conditions import Condition
from tonnage.api.pod import EnvVar, StringMap, Toleration
from tonnage.api.schema import AS_A_NUMBER, ApiModel, Money, PositiveInt

Image = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class PoolImages(ApiModel):
    """Images for this pool's nodes."""

    vllm: Image | None = None
    """vLLM image, with tag. Default: the vendor's, by version."""


class AcceleratorPoolSpec(ApiModel):
    """What a platform team says about a pool."""

    node_selector: Annotated[StringMap, Field(min_length=1)]
    """Labels of the pool's nodes, as in a Pod."""
    accelerator: Annotated[str, StringConstraints(max_length=63)] | None = None
    """Accelerator id, where the nodes' labels do not tell. Default: recognised from labels."""
    cost_per_gpu_hour: Annotated[Money | None, Field(alias="costPerGPUHour")] = None
    """Price of one GPU for an hour in US dollars. Default: the dated price list."""
    images: PoolImages = PoolImages()
    """Images for this pool's nodes."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = []
    """Taints of these nodes that inference pods tolerate."""
    env: Annotated[list[EnvVar], Field(max_length=64)] = []
    """Environment variables of vLLM on these nodes."""
    max_nodes: PositiveInt | None = None
    """How far a node autoscaler can grow the pool. Default: no growth is assumed."""
    weight: Annotated[int, Field(ge=0, le=1000), AS_A_NUMBER] = 100
    """Preference among pools of equal rank; higher is taken first. Default: 100."""


class GPUCounts(ApiModel):
    """GPUs of a pool."""

    total: int
    """On all nodes, also those that cannot be used now."""
    allocatable: int
    """On nodes that are ready and schedulable."""
    free: int
    """Allocatable, less what pods request and what is reserved for pods to come."""
    largest_free_block: int
    """Most free GPUs on one node: the largest tensor-parallel group that can start now."""


class AcceleratorPoolStatus(ApiModel):
    """What the operator sees of a pool."""

    observed_generation: int | None = None
    """Generation of the spec that this status was computed from."""
    accelerator: str | None = None
    """Accelerator id of the pool's devices."""
    nodes: int = 0
    """Nodes that the pool selects."""
    gpus: GPUCounts | None = None
    """GPUs of these nodes."""
    unusable_nodes: Annotated[list[str], Field(max_length=20)] = []
    """Nodes that are no capacity now, with the reason, as "node: reason"."""
    conditions: Annotated[
        list[Condition],
        Field(
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            }
        ),
    ] = []
    """Ready: the pool's accelerator is recognised and at least one node is usable."""
