"""The status of an InferenceDeployment: placements, their reasons, and replicas."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from tonnage.api.conditions import Condition, StartingList
from tonnage.api.model import PrefetchStatus
from tonnage.api.scaling import FullReplicaStatus, ScalingStatus
from tonnage.api.schema import ReportedModel
from tonnage.api.workload import Context

PriceSourceName = Literal["Pool", "List", "GPUCount"]

UNREPORTED: Final = {"observedGeneration": -1}
"""Default status of a new object. Without it, kstatus reports an object that the operator has not
reconciled yet as current."""

CONDITION_LIST = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
_NAMED_LIST = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


class ModelStatus(ReportedModel):
    """Model properties that the operator read."""

    architecture: str
    """Architecture in config.json, for example LlamaForCausalLM."""
    revision: str | None = None
    """Commit that the operator read the properties from."""
    weights_gi_b: Annotated[float, Field(alias="weightsGiB")]
    """Size of all weights in GiB."""
    max_position_embeddings: int
    """Maximum context length of the model in tokens."""


class MemoryStatus(ReportedModel):
    """Predicted memory of one GPU in GiB."""

    device_gi_b: Annotated[float, Field(alias="deviceGiB")]
    """Device memory, as the driver reports it to the engine."""
    budget_gi_b: Annotated[float, Field(alias="budgetGiB")]
    """Memory that the other terms share. With vLLM: device memory times utilization."""
    weights_gi_b: Annotated[float, Field(alias="weightsGiB")]
    """Weights on this GPU."""
    lora_gi_b: Annotated[float | None, Field(alias="loraGiB")] = None
    """Buffers for LoRA adapters. Absent without adapters."""
    activation_gi_b: Annotated[float, Field(alias="activationGiB")]
    """Peak temporary memory of one step."""
    non_torch_gi_b: Annotated[float, Field(alias="nonTorchGiB")]
    """Memory allocated outside PyTorch."""
    graph_gi_b: Annotated[float, Field(alias="graphGiB")]
    """CUDA or HIP graphs."""
    correction_gi_b: Annotated[float | None, Field(alias="correctionGiB")] = None
    """Correction measured at earlier starts: memory beyond the calculation, negative for less.
    Absent without a measurement."""
    kv_cache_gi_b: Annotated[float, Field(alias="kvCacheGiB")]
    """Memory left for the KV cache."""
    uncertainty_gi_b: Annotated[float | None, Field(alias="uncertaintyGiB")] = None
    """Uncertainty of kvCacheGiB in both directions, for nine of ten starts."""


class MeasuredStatus(ReportedModel):
    """KV cache that the engine measured at startup, of the replica with the smallest."""

    kv_cache_tokens: int
    """Tokens in the KV cache of one replica."""
    kv_cache_gi_b: Annotated[float, Field(alias="kvCacheGiB")]
    """Memory of these tokens on one GPU; memory.kvCacheGiB is the prediction."""
    blocks: int | None = None
    """Blocks of the KV cache (num_gpu_blocks). Absent if the engine does not report it."""
    block_tokens: int | None = None
    """Tokens per block (block_size). Absent if the engine does not report it."""


class EstimateStatus(ReportedModel):
    """Estimated speed and price."""

    tokens_per_second: int
    """Generated tokens per second of all replicas."""
    time_to_first_token: str | None = None
    """Time from a typical request to its first token, for example 420ms."""
    time_per_output_token: str | None = None
    """Time between two tokens of a request, for example 31ms."""
    cost_per_million_tokens: str | None = None
    """US dollars per million generated tokens. Absent without a price."""
    band_percent: int
    """Uncertainty in percent, in both directions, of all of these values but timeToFirstToken."""


class AdjustmentsStatus(ReportedModel):
    """Engine settings that the operator chose because spec.engine does not set them."""

    gpu_memory_utilization: float | None = None
    """Fraction of each GPU's memory that vLLM can use; of SGLang memFractionStatic."""
    max_num_seqs: int | None = None
    """Maximum batch size in requests; of SGLang --max-running-requests."""
    max_num_batched_tokens: int | None = None
    """Maximum number of tokens per step; of SGLang --chunked-prefill-size."""


class ReplicaLayout(ReportedModel):
    """How one replica divides the model."""

    tensor_parallel_size: int
    """Tensor parallel size of one replica."""
    pipeline_parallel_size: int
    """Pipeline parallel size of one replica."""
    data_parallel_size: int | None = None
    """Data parallel size of one replica, whose ranks share the experts. Absent if it is 1."""
    nodes_per_replica: int | None = None
    """Nodes of one replica. Absent if it runs on one node."""


class PlacementStatus(ReplicaLayout):
    """A pool with replicas."""

    name: str
    """Name of the placement, unique within the InferenceDeployment."""
    pool: str
    """Name of the AcceleratorPool."""
    engine: str | None = None
    """Engine, as in spec.engine. Present with spec.engine.type: Auto."""
    accelerator: str
    """Accelerator ID."""
    gpus_per_replica: int
    """GPUs per replica."""
    replicas: int
    """Number of replicas with GPUs of this pool."""
    ready_replicas: int
    """Number of ready replicas."""
    weight: int | None = None
    """Share of the load for these replicas in percent, for weighted routing. Absent with a single
    placement."""
    image: str
    """Image of the engine's container."""
    reason: str
    """Why the pool was chosen, in CamelCase."""
    message: str
    """Why the pool was chosen, with numbers."""
    overridden_rules: list[str] | None = None
    """Violated compatibility rules that spec.placement.allow overrides."""
    adjustments: AdjustmentsStatus | None = None
    """Engine settings chosen after starts ran out of memory. Absent if the operator chose none."""
    memory: MemoryStatus
    """Predicted memory of one GPU."""
    kv_cache_tokens: int
    """Predicted tokens in the KV cache of one replica."""
    measured_kv_cache_tokens: int | None = None
    """Measured tokens of one replica. Absent if neither Prometheus nor the pods report them."""
    measured: MeasuredStatus | None = None
    """KV cache that the engine measured with exactly this plan. Absent before that."""
    cost_per_hour: str | None = None
    """US dollars per hour for all replicas. Absent without a price."""
    price_source: PriceSourceName | None = None
    """Source of the price. Pool: costPerGPUHour of the pool. List: the price list of the operator.
    GPUCount: no price is known, and pools are compared by the number of GPUs."""
    estimate: EstimateStatus | None = None
    """Estimated speed and price. Absent without data for the accelerator."""


class CandidateStatus(ReportedModel):
    """A pool that the operator considered."""

    pool: str
    """Name of the AcceleratorPool."""
    accelerator: str | None = None
    """Accelerator ID. Absent if the devices are not recognised."""
    engine: str | None = None
    """Engine of the figures below. Present with spec.engine.type: Auto if the workload fits."""
    verdict: Literal["Chosen", "Feasible", "Rejected"]
    """Chosen, Feasible or Rejected."""
    tensor_parallel_size: int | None = None
    """Tensor parallel size of the best plan. Absent, like the figures below, if the workload does
    not fit."""
    pipeline_parallel_size: int | None = None
    """Pipeline parallel size of the best plan. Absent if it is 1."""
    data_parallel_size: int | None = None
    """Data parallel size of one replica, whose ranks share the experts. Absent if it is 1."""
    nodes_per_replica: int | None = None
    """Nodes of one replica. Absent if it runs on one node."""
    gpus_per_replica: int | None = None
    """GPUs per replica."""
    replicas: int | None = None
    """Number of replicas for the workload."""
    room: int | None = None
    """Number of these replicas that can start now."""
    room_after_growth: int | None = None
    """Number of them that can start after a node autoscaler adds nodes. Absent if not higher."""
    free_gpus: Annotated[int | None, Field(alias="freeGPUs")] = None
    """Free GPUs of the pool. Absent if all of these replicas can start now."""
    kv_cache_tokens: int | None = None
    """Predicted tokens in the KV cache of one replica."""
    cost_per_hour: str | None = None
    """US dollars per hour for these replicas. Absent without a price."""
    price_source: PriceSourceName | None = None
    """Source of the price: Pool, List or GPUCount, as in status.placements."""
    estimate: EstimateStatus | None = None
    """Estimated speed and price. Absent without data for the accelerator."""
    reason: str
    """Reason for the verdict, in CamelCase."""
    message: str
    """Reason for the verdict, with numbers."""
    overridden_rules: list[str] | None = None
    """Violated compatibility rules that spec.placement.allow overrides."""


class RebalanceStatus(ReportedModel):
    """A planned migration of running replicas."""

    pool: str
    """Name of the target AcceleratorPool."""
    reason: Literal["Rebalanced", "Returned"]
    """Rebalanced: the pool costs less (spec.placement.rebalance). Returned: it is the original pool
    (spec.placement.fallback.back)."""
    since: str
    """Since when the pool has been the better one, RFC 3339 in UTC."""
    moves_at: str
    """Earliest time of the migration, RFC 3339 in UTC. Another migration or a missing approval
    delays it."""
    message: str
    """Reason for the migration, with numbers."""


class ProposedPlan(ReplicaLayout):
    """A plan that waits for approval (spec.approval: Manual)."""

    hash: str
    """Hash of the plan. Set spec.approvedPlan to it to approve the plan."""
    pool: str
    """Name of the AcceleratorPool."""
    accelerator: str
    """Accelerator ID."""
    replicas: int
    """Number of replicas, which the hash does not include."""
    image: str
    """Image of the engine's container."""
    cost_per_hour: str | None = None
    """US dollars per hour for all replicas. Absent without a price."""
    message: str
    """Changes from the running plan."""
    outdated_approval: str | None = None
    """What changed since the plan in spec.approvedPlan. Absent if that is not outdated."""


class AvailableUpdate(ReportedModel):
    """What the operator would run the replicas with now. `kubectl tonnage upgrade` takes it."""

    release: str
    """Release of the engine, for example 0.32.0."""
    image: str
    """Image of the engine's container."""
    message: str
    """Changes from the running replicas."""


class LastReadyPlan(ReportedModel):
    """The last plan with which all replicas were ready. A failed rollout returns to it."""

    hash: str
    """Hash of the plan."""
    generation: int
    """Generation of the spec that the plan was made for."""
    template: str
    """Digest of the pod template (annotation tonnage.dev/template), which identifies its
    ReplicaSet."""
    placement: PlacementStatus
    """Placement of the replicas, as status reported it."""
    full_replica: FullReplicaStatus | None = None
    """Estimated capacity of one replica. Present with spec.scaling.targets."""


class FailedPlan(ReplicaLayout):
    """A plan that failed. The operator does not retry it in the same circumstances."""

    hash: str
    """Hash of the plan."""
    pool: str
    """Name of the AcceleratorPool."""
    engine: str | None = None
    """Engine, as in spec.engine. Present with spec.engine.type: Auto."""
    accelerator: str
    """Accelerator ID."""
    image: str
    """Image of the engine's container."""
    adjustments: AdjustmentsStatus | None = None
    """Engine settings that the operator chose for the plan. Absent if it chose none."""
    reason: str
    """Reason for the failure, in CamelCase."""
    message: str
    """Error message of the component that failed."""
    at: str
    """Time of the failure, RFC 3339 in UTC."""
    circumstances: str
    """Digest of spec, pools and versions. The operator retries the plan when it changes."""


class EndpointStatus(ReportedModel):
    """An endpoint for short or long requests."""

    context: Context
    """Length of its requests: short or long. Label tonnage.dev/context of the Service has the same
    value."""
    service: str
    """Name of the Service."""
    inference_deployment: str
    """Name of the InferenceDeployment that serves the requests: this one, or the one that the
    operator created for long requests."""
    max_model_len: int
    """Maximum request length in tokens, prompt and answer together."""
    ready: bool
    """Whether all replicas of the endpoint are ready."""
    reason: str
    """Reason of condition Ready; Pending if the condition is absent."""


class AdapterStatus(ReportedModel):
    """A LoRA adapter of spec.lora."""

    name: str
    """Name of the adapter."""
    ready_replicas: int
    """Number of ready replicas that serve the adapter."""
    message: str | None = None
    """Why a ready replica does not serve it. Absent if all of them do."""


class InferenceDeploymentStatus(ReportedModel):
    """Observed state of the InferenceDeployment."""

    observed_generation: int | None = None
    """Generation of the spec that this status is based on."""
    conditions: Annotated[list[Condition], Field(json_schema_extra=CONDITION_LIST)] = []
    """Accepted, Placed, Progressing, Available and Ready. Only while true: Reconciling, Stalled and
    Degraded. Only if they apply: InferencePoolApplied, PredictionAccurate and ScalingActive."""
    replicas: int = 0
    """Number of replicas that exist."""
    desired_replicas: int = 0
    """Desired number of replicas: spec.replicas, or computed from the workload or the load."""
    ready_replicas: int = 0
    """Number of ready replicas."""
    starting: StartingList | None = None
    """Replicas that have been starting for 30 seconds or longer, by phase. Absent without any."""
    selector: str | None = None
    """Label selector of the pods, for the scale subresource."""
    model: ModelStatus | None = None
    """Model properties that the operator read."""
    placements: Annotated[list[PlacementStatus], Field(json_schema_extra=_NAMED_LIST)] = []
    """Pools with replicas."""
    candidates: Annotated[
        list[CandidateStatus], Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = []
    """Pools that the operator considered, best first."""
    omitted_candidates: dict[str, int] = {}
    """Number of pools missing from candidates, by reason, if there are too many to list."""
    rebalance: RebalanceStatus | None = None
    """Planned migration of running replicas. Absent if none is planned."""
    plan: str | None = None
    """Hash of the running plan. Present with spec.approval: Manual."""
    proposed_plan: ProposedPlan | None = None
    """Plan that waits for approval. Absent if none waits."""
    available_update: AvailableUpdate | None = None
    """What the operator would run the replicas with now. Absent if they run with it."""
    scaling: ScalingStatus | None = None
    """Number of replicas for the measured load. Present with spec.scaling.targets."""
    endpoints: Annotated[
        list[EndpointStatus] | None, Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = None
    """Endpoints for short and long requests. Present with spec.workload.longContext."""
    adapters: Annotated[list[AdapterStatus] | None, Field(json_schema_extra=_NAMED_LIST)] = None
    """LoRA adapters. Present with spec.lora.adapters."""
    prefetch: PrefetchStatus | None = None
    """Downloads to nodes without replicas. Present with spec.model.cache.nodeDisk.prefetch."""
    last_ready_plan: LastReadyPlan | None = None
    """The last plan with which all replicas were ready. A failed rollout returns to it."""
    failed_plans: Annotated[
        list[FailedPlan] | None, Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = None
    """Failed plans, oldest first. The operator retries them when the spec, a pool or a version
    changes. Absent if there are none."""


def reported_status(body: Mapping[str, Any]) -> dict[str, Any]:
    """The status that the operator wrote last; empty before its first report."""
    status = body.get("status") or {}
    is_default = status.get("observedGeneration") == UNREPORTED["observedGeneration"]
    return {} if is_default else dict(status)
