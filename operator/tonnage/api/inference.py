"""The InferenceDeployment's spec: a model and a workload, and how far the user wants a say."""

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, StringConstraints, model_validator

from tonnage.api.gateway import Gateway
from tonnage.api.pod import EnvVar, PodTemplateOverrides
from tonnage.api.scaling import Scaling
from tonnage.api.schema import (
    AS_A_NUMBER,
    ApiModel,
    Duration,
    ExactlyOne,
    Fraction,
    Moment,
    Money,
    PlanHash,
    PositiveInt,
)
from tonnage.api.workload import Workload

ObjectName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", min_length=1, max_length=253),
]
RepoId = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$", max_length=200)
]


class SecretKeyRef(ApiModel):
    """One key of a Secret in the namespace of the InferenceDeployment."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[str, StringConstraints(min_length=1, max_length=253)] = "token"
    """Key inside the Secret. Default: token."""


class HuggingFaceSource(ApiModel):
    """A repository on the Hugging Face Hub, or on what HF_ENDPOINT names."""

    repo: RepoId
    """Repository id, for example meta-llama/Llama-3.3-70B-Instruct."""
    revision: Annotated[str, StringConstraints(min_length=1, max_length=200)] = "main"
    """Branch, tag or commit; a 40-character commit makes every pod load the same bytes.
    Default: main."""
    token_secret_ref: SecretKeyRef | None = None
    """Secret with an access token, for gated and private repositories. Default: none."""


class ConfigMapSource(ApiModel):
    """The model's facts from a ConfigMap in the namespace of the InferenceDeployment."""

    name: ObjectName
    """Name of the ConfigMap. Key config.json is required; key model.safetensors.index.json
    is used for the size of the weights where present."""
    load_from: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    """What vLLM is told to load: a repository id or a path in the container.
    Default: spec.model.name."""


class InlineSource(ApiModel):
    """The model's facts written into the object itself."""

    config: Annotated[
        dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
    ]
    """The content of the model's config.json."""
    weights_bytes: Annotated[int, Field(ge=1, le=2**53), AS_A_NUMBER] | None = None
    """Size of all weight files in bytes. Default: computed from the config."""
    load_from: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    """What vLLM is told to load: a repository id or a path in the container.
    Default: spec.model.name."""


class ModelFacts(ExactlyOne):
    """Where the facts of a model on a volume come from. Exactly one of the fields is set."""

    config_map: ConfigMapSource | None = None
    """A ConfigMap, for example the one that the Job printed by `tonnage inspect` writes."""
    inline: InlineSource | None = None
    """The facts themselves."""


class PersistentVolumeClaimSource(ApiModel):
    """Weights on a volume; the operator cannot look inside it, so the facts stand beside it."""

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim in the namespace of the InferenceDeployment."""
    path: Annotated[
        str,
        StringConstraints(
            pattern=r"^([A-Za-z0-9_][\w.@+-]*(/[A-Za-z0-9_][\w.@+-]*)*)?$", max_length=512
        ),
    ] = ""
    """Folder of the model below the volume's root. Default: the root."""
    facts: ModelFacts
    """config.json and the size of the weights. Print the Job that gathers them with
    `tonnage inspect --pvc CLAIM --path PATH`."""


class ModelSource(ExactlyOne):
    """Where the model comes from. Exactly one of the fields is set."""

    hugging_face: HuggingFaceSource | None = None
    """A Hugging Face repository."""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """A volume that holds the weights."""
    config_map: ConfigMapSource | None = None
    """Facts from a ConfigMap, for clusters where the operator reaches no Hub."""
    inline: InlineSource | None = None
    """Facts in the object itself."""


class Model(ApiModel):
    """The model to be served."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = None
    """Served model name, as clients send it in requests. Default: metadata.name."""
    source: ModelSource
    """Where the model comes from."""


class PlacementPolicy(StrEnum):
    """Which of the feasible pools is taken."""

    LOWEST_COST = "LowestCost"
    FEWEST_GPUS = "FewestGPUs"
    HIGHEST_THROUGHPUT = "HighestThroughput"


class TightFit(StrEnum):
    """Whether a split is taken whose spare memory lies within the calculation's uncertainty."""

    AVOID = "Avoid"
    ACCEPT = "Accept"


class PoolSelector(ApiModel):
    """Selects AcceleratorPools by their labels."""

    match_labels: Annotated[dict[str, str], Field(max_length=32)] = {}
    """Labels that a pool must carry."""


class FallbackReturn(StrEnum):
    """Whether replicas that fell back go to the better pool again."""

    NEVER = "Never"
    WHEN_POSSIBLE = "WhenPossible"


class Fallback(ApiModel):
    """When a placement whose pool can no longer hold it moves to another pool."""

    after: Duration = "10m"
    """How long replicas may wait for GPUs of their pool before another is taken. Default: 10m."""
    back: FallbackReturn = FallbackReturn.NEVER
    """Never: replicas that fell back stay where they are. WhenPossible: they return to the pool
    they had to leave once it has had room for all of them for as long as
    `rebalance.stabilizationWindow`. Default: Never."""


class RebalancePolicy(StrEnum):
    """Whether running replicas move to a cheaper pool."""

    NEVER = "Never"
    WHEN_CHEAPER_BY = "WhenCheaperBy"


class Rebalance(ApiModel):
    """When running replicas leave their pool though they could stay."""

    policy: RebalancePolicy = RebalancePolicy.NEVER
    """Never or WhenCheaperBy. Default: Never."""
    percent: Annotated[int, Field(ge=1, le=99), AS_A_NUMBER] = 20
    """How much less per hour another pool must cost, in percent. Default: 20."""
    stabilization_window: Duration = "30m"
    """For how long that must have been so without a break. Default: 30m."""


class SpreadPolicy(StrEnum):
    """Whether the replicas of one object may run on several pools at once."""

    NEVER = "Never"
    WHEN_SHORT = "WhenShort"
    BY_COST = "ByCost"


class Spread(ApiModel):
    """How replicas are split over several pools."""

    policy: SpreadPolicy | None = None
    """Never: all replicas run on one pool. WhenShort: what the pool that was taken has no room for
    runs on others beside it. ByCost: pools are filled one after the other in the order of
    `placement.policy`, even where one of them could carry all. Default: Never."""
    min_replicas_per_pool: PositiveInt | None = None
    """Fewest replicas on a pool that is taken beside another. Default: 1."""
    max_pools: Annotated[int, Field(ge=2, le=16), AS_A_NUMBER] | None = None
    """Most pools at a time. Default: 4."""


class PlacementSpec(ApiModel):
    """The user's say in the choice of the pool."""

    policy: PlacementPolicy = PlacementPolicy.LOWEST_COST
    """LowestCost, FewestGPUs or HighestThroughput. Default: LowestCost."""
    accelerators: Annotated[list[str], Field(max_length=64)] | None = None
    """Allow-list of accelerator ids, for example mi300x or h100-sxm-80gb. Default: all."""
    pool_selector: PoolSelector | None = None
    """Only AcceleratorPools with these labels. Default: all pools."""
    fallback: Fallback = Fallback()
    """When to leave a pool that can no longer hold the replicas."""
    rebalance: Rebalance = Rebalance()
    """When to leave a pool that could go on. Of all objects one moves at a time."""
    spread: Spread = Spread()
    """When replicas run on several pools at once."""
    max_cost_per_hour: Money | None = None
    """Most that all replicas together may cost, in US dollars an hour; with `workload.longContext`
    the replicas of each endpoint. Default: no bound."""
    tight_fit: TightFit = TightFit.AVOID
    """Avoid: a split whose spare memory lies within the uncertainty of the calculation comes after
    all others. Accept: it counts as any other. Default: Avoid."""
    allow: Annotated[list[str], Field(max_length=64)] = []
    """Names of compatibility rules to be overridden, as printed in status.candidates."""


class VllmEngine(ApiModel):
    """How vLLM is started."""

    version: (
        Annotated[
            str, StringConstraints(pattern=r"^v[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.]*$", max_length=32)
        ]
        | None
    ) = None
    """vLLM release, for example v0.32.0. Default: the newest release the operator knows."""
    image: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    """Image to be used instead of the vendor's. Default: by vendor and version."""
    extra_args: Annotated[list[str], Field(max_length=64)] = []
    """Further arguments of `vllm serve`, after those of the operator."""
    env: Annotated[list[EnvVar], Field(max_length=64)] = []
    """Further environment variables of the vLLM container."""
    gpu_memory_utilization: Fraction | None = None
    """Share of each GPU's memory vLLM may use. Default: vLLM's own default of the version."""
    max_num_seqs: PositiveInt | None = None
    """Largest batch (vLLM's --max-num-seqs). Default: vLLM's own."""
    max_num_batched_tokens: PositiveInt | None = None
    """Tokens of one step (vLLM's --max-num-batched-tokens). Default: vLLM's own."""
    enforce_eager: StrictBool = False
    """Run without CUDA or HIP graphs. Default: false."""


class Engine(ApiModel):
    """The inference engine; vLLM is the only one today."""

    vllm: VllmEngine = VllmEngine()
    """Settings of vLLM."""


class RolloutStrategy(StrEnum):
    """How pods are replaced when their template changes."""

    AUTO = "Auto"
    SURGE = "Surge"
    RECREATE = "Recreate"


class Approval(StrEnum):
    """Whether a plan waits for a person before it is carried out."""

    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class Rollout(ApiModel):
    """How a change reaches the pods."""

    strategy: RolloutStrategy = RolloutStrategy.AUTO
    """Surge starts the new replica first and needs spare GPUs; Recreate frees the GPUs first,
    one replica at a time; Auto surges when the pool has spare GPUs now. Default: Auto."""
    restarted_at: Moment | None = None
    """A time, for example 2026-11-22T05:30:00Z. Another one than before starts all replicas anew,
    by the strategy; `kubectl tonnage restart` writes it. Default: none."""
    progress_deadline: Duration | None = None
    """How long a rollout may show no progress before its plan counts as failed, for example 45m.
    Default: from the size of the model: the image, a slow first load, and the end of an old pod."""
    max_unavailable: PositiveInt | None = None
    """Replicas that are replaced at a time where no GPUs are spare for a surge. Default: 1."""
    paused: StrictBool | None = None
    """True keeps what runs as it is: no replica is replaced or moved until it is false again; only
    their number is followed. Default: false."""


class InferenceDeploymentSpec(ApiModel):
    """What a user declares."""

    model: Model
    """The model to be served."""
    workload: Workload
    """What it has to serve."""
    replicas: Annotated[int, Field(ge=0, le=1000), AS_A_NUMBER] | None = None
    """Copies of the model. Default: as many as the workload needs. 0 stops serving."""
    scaling: Scaling = Scaling()
    """Bounds on what the workload gets by itself."""
    kv_cache_dtype: Literal["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"] = "auto"
    """Element type of the KV cache (vLLM's --kv-cache-dtype). Default: auto."""
    quantization: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+$", max_length=64)] = (
        "auto"
    )
    """vLLM's --quantization. Default: auto, what the checkpoint says."""
    placement: PlacementSpec = PlacementSpec()
    """The choice of the pool."""
    engine: Engine = Engine()
    """The inference engine."""
    rollout: Rollout = Rollout()
    """How a change reaches the pods."""
    approval: Approval = Approval.AUTOMATIC
    """Manual: whatever would start other replicas than those that run (pool, accelerator, split,
    image, arguments) waits in status.proposedPlan until `approvedPlan` names it. Automatic: it is
    carried out. Default: Automatic."""
    approved_plan: PlanHash | None = None
    """With approval Manual: hash of the plan that may be carried out, as status.proposedPlan has
    it. `kubectl tonnage approve` writes it; under GitOps it stands in Git. Default: none."""
    gateway: Gateway = Gateway()
    """Objects of the Gateway API that are kept beside the replicas."""
    template: PodTemplateOverrides = PodTemplateOverrides()
    """What the pods get beside what the operator renders."""

    @model_validator(mode="after")
    def _check_targets(self) -> Self:
        targets, most = self.scaling.targets, self.engine.vllm.max_num_seqs
        asked = targets.running_requests if targets is not None else None
        if asked is not None and most is not None and asked > most:
            raise ValueError(
                f"scaling.targets.runningRequests {asked} is above engine.vllm.maxNumSeqs {most}: "
                "no replica ever runs so many; lower the one or raise the other"
            )
        return self
