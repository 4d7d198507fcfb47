"""The InferenceDeployment's status: what was decided, why, and what runs."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from tonnage.api.conditions import Condition
from tonnage.api.scaling_status import ScalingStatus
from tonnage.api.schema import ReportedModel
from tonnage.api.workload import Context

PriceSourceName = Literal["Pool", "List", "GPUCount"]

UNREPORTED: Final = {"observedGeneration": -1}
"""The status that the API server gives a new object until the operator reports. Without it kstatus
takes an object that nobody has looked at yet for one that is current."""

CONDITION_LIST = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


class ModelStatus(ReportedModel):
    """What the operator knows of the model."""

    architecture: str
    """Architecture from config.json, for example LlamaForCausalLM."""
    revision: str | None = None
    """Commit of the repository that the facts were read from."""
    weights_gi_b: Annotated[float, Field(alias="weightsGiB")]
    """Size of all weights in GiB."""
    max_position_embeddings: int
    """Longest context in tokens that the model was made for."""


class MemoryStatus(ReportedModel):
    """Where the bytes of one GPU go, in GiB, as predicted by the memory-fit calculation."""

    device_gi_b: Annotated[float, Field(alias="deviceGiB")]
    """Memory of the device as the driver reports it to vLLM."""
    budget_gi_b: Annotated[float, Field(alias="budgetGiB")]
    """What vLLM may use: device memory times utilization."""
    weights_gi_b: Annotated[float, Field(alias="weightsGiB")]
    """This GPU's part of the weights."""
    activation_gi_b: Annotated[float, Field(alias="activationGiB")]
    """Largest transient use of one step."""
    non_torch_gi_b: Annotated[float, Field(alias="nonTorchGiB")]
    """Memory taken outside torch."""
    graph_gi_b: Annotated[float, Field(alias="graphGiB")]
    """CUDA or HIP graphs."""
    correction_gi_b: Annotated[float | None, Field(alias="correctionGiB")] = None
    """What starts like this one were seen to take beyond the calculation when the placement was
    chosen, negative where they took less; absent where nothing had been learnt."""
    kv_cache_gi_b: Annotated[float, Field(alias="kvCacheGiB")]
    """What is left for the KV cache."""
    uncertainty_gi_b: Annotated[float | None, Field(alias="uncertaintyGiB")] = None
    """How far that may be off, both ways, in nine of ten starts."""


class MeasuredStatus(ReportedModel):
    """What vLLM measured at its start, of the replica that has the least."""

    kv_cache_tokens: int
    """Tokens of context that the replica holds at a time."""
    kv_cache_gi_b: Annotated[float, Field(alias="kvCacheGiB")]
    """Memory of one GPU that these take; beside memory.kvCacheGiB, which was predicted."""
    blocks: int | None = None
    """Blocks of the KV cache (num_gpu_blocks); absent where the server does not tell."""
    block_tokens: int | None = None
    """Tokens of one block (block_size); absent where the server does not tell."""


class EstimateStatus(ReportedModel):
    """An estimate of speed and price, never a measurement. Every figure has the same band."""

    tokens_per_second: int
    """Generated tokens a second of all replicas under the workload."""
    time_to_first_token: str | None = None
    """From a typical request to its first token, for example 420ms."""
    time_per_output_token: str | None = None
    """Between two tokens of a request, for example 31ms."""
    cost_per_million_tokens: str | None = None
    """US dollars for a million generated tokens; absent where no price is known."""
    band_percent: int
    """Uncertainty of these figures in percent, both ways."""


class AdjustmentsStatus(ReportedModel):
    """Engine settings that the operator chose because spec.engine.vllm leaves them open."""

    gpu_memory_utilization: float | None = None
    """Share of each GPU's memory vLLM may use."""
    max_num_seqs: int | None = None
    """Largest batch."""
    max_num_batched_tokens: int | None = None
    """Tokens of one step."""


class PlacementStatus(ReportedModel):
    """One pool that carries replicas."""

    name: str
    """Name of the placement, unique within the object."""
    pool: str
    """AcceleratorPool."""
    accelerator: str
    """Accelerator id of the catalogue."""
    tensor_parallel_size: int
    """GPUs that one replica's layers are split over."""
    pipeline_parallel_size: int
    """Stages that one replica's layers are cut into."""
    gpus_per_replica: int
    """GPUs of one replica."""
    replicas: int
    """Replicas that were given GPUs on this pool."""
    ready_replicas: int
    """Replicas that answer requests."""
    weight: int | None = None
    """Share of the whole work that these replicas carry, in percent, for routers that are given
    weights; absent while one placement carries all."""
    image: str
    """Image of the vLLM container."""
    reason: str
    """Why this pool: one CamelCase word."""
    message: str
    """Why this pool: one sentence with numbers."""
    overridden_rules: list[str] | None = None
    """Compatibility rules that refuse this and that spec.placement.allow sets aside."""
    adjustments: AdjustmentsStatus | None = None
    """Engine settings that the operator chose since starts without them died of memory; absent
    where it chose none."""
    memory: MemoryStatus
    """Where the bytes of one GPU go."""
    kv_cache_tokens: int
    """Tokens of context that one replica holds at a time, as predicted."""
    measured_kv_cache_tokens: int | None = None
    """The same as vLLM measured it; present where a Prometheus that the operator knows has it, or
    the pods themselves say it."""
    measured: MeasuredStatus | None = None
    """What vLLM measured of the very plan that is predicted here; absent until it has."""
    cost_per_hour: str | None = None
    """US dollars an hour for all replicas; absent where no price is known."""
    price_source: PriceSourceName | None = None
    """Where the price comes from: Pool (its costPerGPUHour), List (the dated list that comes with
    the operator), or GPUCount (no price is known: GPUs are compared by their number)."""
    estimate: EstimateStatus | None = None
    """Speed and price; absent where the catalogue lacks figures of the accelerator."""


class CandidateStatus(ReportedModel):
    """One pool and what became of it, taken or not."""

    pool: str
    """AcceleratorPool."""
    accelerator: str | None = None
    """Accelerator id; absent where the devices were not recognised."""
    verdict: Literal["Chosen", "Feasible", "Rejected"]
    """Chosen, Feasible or Rejected."""
    tensor_parallel_size: int | None = None
    """Best split that holds the workload; absent where none does. So are all figures below."""
    gpus_per_replica: int | None = None
    """GPUs of one replica."""
    replicas: int | None = None
    """Replicas that are wanted on this pool."""
    room: int | None = None
    """How many of these can start there now."""
    room_after_growth: int | None = None
    """How many of these can start there once a node autoscaler has added what it may; absent where
    that is not more."""
    free_gpus: Annotated[int | None, Field(alias="freeGPUs")] = None
    """Free GPUs of the pool; listed where there is not room for all of these replicas now."""
    kv_cache_tokens: int | None = None
    """Tokens of context that one replica holds at a time, as predicted."""
    cost_per_hour: str | None = None
    """US dollars an hour for these replicas; absent where no price is known."""
    price_source: PriceSourceName | None = None
    """Where the price comes from: Pool, List or GPUCount, as in a placement."""
    estimate: EstimateStatus | None = None
    """Speed and price; absent where the catalogue lacks figures of the accelerator."""
    reason: str
    """Why: one CamelCase word."""
    message: str
    """Why: one sentence with numbers."""
    overridden_rules: list[str] | None = None
    """Compatibility rules that refuse this and that spec.placement.allow sets aside."""


class RebalanceStatus(ReportedModel):
    """A pool that running replicas move to if it stays the better one until then."""

    pool: str
    """AcceleratorPool."""
    reason: Literal["Rebalanced", "Returned"]
    """Rebalanced: it costs less (spec.placement.rebalance). Returned: it is the one that they had
    to leave (spec.placement.fallback.back)."""
    since: str
    """Since when that has been so without a break, RFC 3339 in UTC."""
    moves_at: str
    """When they move; later if another object is moving then, for one does at a time, or if the
    move waits for approval."""
    message: str
    """Why: one sentence with numbers."""


class ProposedPlan(ReportedModel):
    """What would be carried out if a person approved it (spec.approval: Manual)."""

    hash: str
    """Names the plan; the same in spec.approvedPlan approves it."""
    pool: str
    """AcceleratorPool."""
    accelerator: str
    """Accelerator id of the catalogue."""
    tensor_parallel_size: int
    """GPUs that one replica's layers would be split over."""
    pipeline_parallel_size: int
    """Stages that one replica's layers would be cut into."""
    replicas: int
    """Replicas that are wanted there; the hash does not cover their number."""
    image: str
    """Image of the vLLM container."""
    cost_per_hour: str | None = None
    """US dollars an hour for all replicas; absent where no price is known."""
    message: str
    """What would change from what runs: one sentence."""
    outdated_approval: str | None = None
    """Where spec.approvedPlan names another plan: which, and what has changed since."""


class LastReadyPlan(ReportedModel):
    """The plan that all replicas served by last: what a failed rollout returns to."""

    hash: str
    """Names the plan."""
    generation: int
    """Generation of the spec that it was made for."""
    template: str
    """Digest of its pod template (annotation tonnage.dev/template): by it the ReplicaSet is found
    that has the template still."""
    placement: PlacementStatus
    """Where the replicas ran, from which image, and what was known of it."""


class FailedPlan(ReportedModel):
    """A plan that did not come up, and is not tried again in the same circumstances."""

    hash: str
    """Names the plan."""
    pool: str
    """AcceleratorPool."""
    accelerator: str
    """Accelerator id of the catalogue."""
    tensor_parallel_size: int
    """GPUs that one replica's layers were split over."""
    pipeline_parallel_size: int
    """Stages that one replica's layers were cut into."""
    image: str
    """Image of the vLLM container."""
    adjustments: AdjustmentsStatus | None = None
    """Engine settings that the operator chose for it; absent where it chose none."""
    reason: str
    """Why it failed: one CamelCase word."""
    message: str
    """Why it failed, in the words of whoever knows best."""
    at: str
    """When that was found, RFC 3339 in UTC."""
    circumstances: str
    """Digest of the spec, the fleet and the versions that it failed in; with another one the plan
    is tried again."""


class EndpointStatus(ReportedModel):
    """One address of a model whose requests are told apart by length."""

    context: Context
    """Which requests it is for: short or long; its Service has the same in label
    tonnage.dev/context."""
    service: str
    """Service that the requests go to."""
    inference_deployment: str
    """InferenceDeployment whose replicas serve them: the object itself, or the one that the
    operator made for the long ones. Its status tells the rest."""
    max_model_len: int
    """Longest request in tokens, prompt and answer together."""
    ready: bool
    """Whether all its replicas are ready."""
    reason: str
    """Reason of its condition Ready; Pending where it has none yet."""


class InferenceDeploymentStatus(ReportedModel):
    """What was decided, why, and what runs."""

    observed_generation: int | None = None
    """Generation of the spec that this status speaks of."""
    conditions: Annotated[list[Condition], Field(json_schema_extra=CONDITION_LIST)] = []
    """Accepted, Placed, Progressing, Available, Ready; Reconciling, Stalled and Degraded only when
    true."""
    replicas: int = 0
    """Replicas that exist."""
    desired_replicas: int = 0
    """Replicas that are wanted: spec.replicas, or what the workload needs."""
    ready_replicas: int = 0
    """Replicas that answer requests."""
    selector: str | None = None
    """Label selector of the pods, for the scale subresource."""
    model: ModelStatus | None = None
    """What the operator knows of the model."""
    placements: Annotated[
        list[PlacementStatus],
        Field(
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            }
        ),
    ] = []
    """The pools that carry replicas."""
    candidates: Annotated[
        list[CandidateStatus], Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = []
    """Every pool, also those not taken, best first."""
    omitted_candidates: dict[str, int] = {}
    """Where there are too many pools to list: how many more, by reason."""
    rebalance: RebalanceStatus | None = None
    """Where the replicas are to move by choice; absent where nothing is better, or nobody asked."""
    plan: str | None = None
    """Hash of the plan that the replicas run by; present with spec.approval: Manual."""
    proposed_plan: ProposedPlan | None = None
    """The plan that waits for approval; absent where none does."""
    scaling: ScalingStatus | None = None
    """What the measured load asks for; present with spec.scaling.targets."""
    endpoints: Annotated[
        list[EndpointStatus] | None, Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = None
    """The addresses of the model, by the requests that they are for; present with
    spec.workload.longContext."""
    last_ready_plan: LastReadyPlan | None = None
    """The plan that all replicas served by last; a rollout that fails returns to it."""
    failed_plans: Annotated[
        list[FailedPlan] | None, Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = None
    """Plans that did not come up, oldest first: not tried again until the spec, the fleet or a
    version changes. Absent where there are none."""


def reported_status(body: Mapping[str, Any]) -> dict[str, Any]:
    """The status of an object as the operator wrote it last; empty before the first report."""
    status = body.get("status") or {}
    is_default = status.get("observedGeneration") == UNREPORTED["observedGeneration"]
    return {} if is_default else dict(status)
