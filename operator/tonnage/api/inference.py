"""The spec of an InferenceDeployment: model, workload and user settings."""

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, StringConstraints, model_validator

from tonnage.api.gateway import Gateway
from tonnage.api.placement import PlacementSpec
from tonnage.api.pod import EnvVar, PodTemplate, PodTemplateOverrides, TemplateMetadata, Toleration
from tonnage.api.scaling import Scaling
from tonnage.api.schema import (
    STRICT_NUMBER,
    ApiModel,
    Duration,
    ExactlyOne,
    Fraction,
    Moment,
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
    """A key of a Secret in the namespace of the InferenceDeployment."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[str, StringConstraints(min_length=1, max_length=253)] = "token"
    """Key in the Secret. Default: token."""


class HuggingFaceSource(ApiModel):
    """A repository on the Hugging Face Hub, or on the server that HF_ENDPOINT names."""

    repo: RepoId
    """Repository ID, for example meta-llama/Llama-3.3-70B-Instruct."""
    revision: Annotated[str, StringConstraints(min_length=1, max_length=200)] = "main"
    """Branch, tag or commit. With a 40-character commit, every pod loads the same files. Default:
    main."""
    token_secret_ref: SecretKeyRef | None = None
    """Secret with an access token for gated and private repositories. Default: none."""


class ConfigMapSource(ApiModel):
    """Model configuration in a ConfigMap in the namespace of the InferenceDeployment."""

    name: ObjectName
    """Name of the ConfigMap. Key config.json is required. Key model.safetensors.index.json is
    optional and gives the size of the weights."""
    load_from: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    """Model that vLLM loads: a repository ID or a path in the container. Default: the served model
    name."""


class InlineSource(ApiModel):
    """Model configuration in the InferenceDeployment itself."""

    config: Annotated[
        dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
    ]
    """Content of the model's config.json."""
    weights_bytes: Annotated[int, Field(ge=1, le=2**53), STRICT_NUMBER] | None = None
    """Size of all weight files in bytes. Default: computed from the config."""
    load_from: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    """Model that vLLM loads: a repository ID or a path in the container. Default: the served model
    name."""


class ModelFacts(ExactlyOne):
    """Configuration of a model on a volume. Exactly one of the fields must be set."""

    config_map: ConfigMapSource | None = None
    """A ConfigMap, for example one written by the Job that `tonnage inspect` prints."""
    inline: InlineSource | None = None
    """Configuration in this object."""


class PersistentVolumeClaimSource(ApiModel):
    """Weights on a volume. The operator cannot read the volume, so `facts` describes the model."""

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim in the namespace of the InferenceDeployment."""
    path: Annotated[
        str,
        StringConstraints(
            pattern=r"^([A-Za-z0-9_][\w.@+-]*(/[A-Za-z0-9_][\w.@+-]*)*)?$", max_length=512
        ),
    ] = ""
    """Directory of the model, relative to the root of the volume. Default: the root."""
    facts: ModelFacts
    """config.json and the size of the weights; loadFrom is ignored. `tonnage inspect --pvc CLAIM
    --path PATH` prints a Job that collects them."""


class ModelSource(ExactlyOne):
    """Source of the model. Exactly one of the fields must be set."""

    hugging_face: HuggingFaceSource | None = None
    """A Hugging Face repository."""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """A volume with the weights."""
    config_map: ConfigMapSource | None = None
    """Model configuration in a ConfigMap, for clusters where the operator cannot reach a Hub."""
    inline: InlineSource | None = None
    """Model configuration in this object."""


class Model(ApiModel):
    """The model to serve."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = None
    """Served model name, as clients send it in requests. Default: metadata.name."""
    source: ModelSource
    """Source of the model."""


class VllmEngine(ApiModel):
    """Settings of vLLM."""

    version: (
        Annotated[
            str, StringConstraints(pattern=r"^v[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.]*$", max_length=32)
        ]
        | None
    ) = None
    """vLLM release, for example v0.32.0. Default: the newest release that the operator supports
    when it renders the pods. It stays until you change what is rendered into the pods, or set
    `rollout.upgradedAt`."""
    image: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    """Image of the vLLM container. Default: the vendor's image of `version`, or without `version`
    the pool's image."""
    extra_args: Annotated[list[str], Field(max_length=64)] = []
    """Additional arguments of `vllm serve`, after those of the operator."""
    env: Annotated[list[EnvVar], Field(max_length=64)] = []
    """Additional environment variables of the vLLM container."""
    gpu_memory_utilization: Fraction | None = None
    """Fraction of each GPU's memory that vLLM can use (--gpu-memory-utilization). Default: vLLM's
    default."""
    max_num_seqs: PositiveInt | None = None
    """Maximum batch size in requests (vLLM's --max-num-seqs). Default: vLLM's default."""
    max_num_batched_tokens: PositiveInt | None = None
    """Maximum number of tokens per step (vLLM's --max-num-batched-tokens). Default: vLLM's
    default."""
    enforce_eager: StrictBool = False
    """Disables CUDA and HIP graphs. Default: false."""


class Engine(ApiModel):
    """The inference engine. Only vLLM is supported."""

    vllm: VllmEngine = VllmEngine()
    """Settings of vLLM."""


class RolloutStrategy(StrEnum):
    """How pods are replaced when their template changes."""

    AUTO = "Auto"
    SURGE = "Surge"
    RECREATE = "Recreate"


class Approval(StrEnum):
    """Whether a plan requires approval."""

    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class Rollout(ApiModel):
    """How changes are rolled out."""

    strategy: RolloutStrategy = RolloutStrategy.AUTO
    """Surge: start each new replica first, which needs spare GPUs. Recreate: stop old replicas
    first, `maxUnavailable` at a time, or all if the GPUs per replica change. Auto: Surge if the
    pool has spare GPUs, else Recreate. Default: Auto."""
    restarted_at: Moment | None = None
    """Time in RFC 3339, for example 2026-11-22T05:30:00Z. A new value restarts all replicas.
    `kubectl tonnage restart` sets it. Default: none."""
    upgraded_at: Moment | None = None
    """Time in RFC 3339, for example 2026-11-22T05:30:00Z. A new value replaces all replicas by what
    the operator would choose now: release, image and settings (status.availableUpdate). `kubectl
    tonnage upgrade` sets it. Default: none."""
    progress_deadline: Duration | None = None
    """How long a rollout can make no progress before its plan fails, for example 45m. Default:
    computed from the size of the model."""
    max_unavailable: PositiveInt | None = None
    """Maximum number of replicas replaced at a time without a surge. Default: 1."""
    paused: StrictBool | None = None
    """Prevents replacement and migration of replicas; scaling continues. Default: false."""
    drain: Duration | None = None
    """How long a replica that is stopped may go on with the requests that it has, for example 15m
    for long streams. A new value restarts all replicas. Default: 2m; vLLM before 0.18 stops at
    once unless this is set."""


class InferenceDeploymentSpec(ApiModel):
    """Desired state of the InferenceDeployment."""

    model: Model
    """The model to serve."""
    workload: Workload
    """The requests to serve."""
    replicas: Annotated[int, Field(ge=0, le=1000), STRICT_NUMBER] | None = None
    """Number of replicas. 0 stops serving. Default: computed from `workload`, or from the load with
    `scaling.targets`."""
    scaling: Scaling = Scaling()
    """Bounds on the number of replicas, and targets for the load."""
    kv_cache_dtype: Literal["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"] = "auto"
    """Data type of the KV cache (vLLM's --kv-cache-dtype). Default: auto."""
    quantization: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+$", max_length=64)] = (
        "auto"
    )
    """Quantization method (vLLM's --quantization). auto: that of the checkpoint. Default: auto."""
    placement: PlacementSpec = PlacementSpec()
    """How the operator chooses the pool."""
    engine: Engine = Engine()
    """Settings of the inference engine."""
    rollout: Rollout = Rollout()
    """How changes are rolled out."""
    approval: Approval = Approval.AUTOMATIC
    """Manual: a plan that changes pool, accelerator, parallelism, image or arguments waits in
    status.proposedPlan until `approvedPlan` has its hash. Automatic: plans need no approval.
    Default: Automatic."""
    approved_plan: PlanHash | None = None
    """Hash of the approved plan (status.proposedPlan.hash), with approval Manual. `kubectl tonnage
    approve` sets it. Default: none."""
    gateway: Gateway = Gateway()
    """Objects of the Gateway API that the operator creates."""
    pod_template: PodTemplate | None = None
    """Settings of the pods, merged into what the operator renders, after `podTemplate` of the
    pool. Default: none."""
    template: PodTemplateOverrides = PodTemplateOverrides()
    """Deprecated: use `podTemplate`. Additional settings of the pods."""

    @property
    def template_field(self) -> str:
        """The path of the pod settings in use, for messages."""
        return "spec.template" if self.pod_template is None else "spec.podTemplate"

    @property
    def pod_metadata(self) -> TemplateMetadata:
        """Labels and annotations of the pods."""
        return (self.pod_template or self.template).metadata

    @property
    def tolerations(self) -> list[Toleration]:
        """Tolerations of the pods in addition to those of the pool."""
        return (self.pod_template or self.template).spec.tolerations or []

    @property
    def priority_class_name(self) -> str | None:
        """The PriorityClass of the pods, None without one."""
        return (self.pod_template or self.template).spec.priority_class_name

    @model_validator(mode="after")
    def _check_one_template(self) -> Self:
        if self.pod_template is not None and self.template != PodTemplateOverrides():
            raise ValueError(
                "podTemplate and template are both set, and template is the deprecated form; move"
                " its fields to podTemplate, resources and volumeMounts to the container vllm there"
            )
        return self

    @model_validator(mode="after")
    def _check_targets(self) -> Self:
        targets, batch = self.scaling.targets, self.engine.vllm.max_num_seqs
        target = targets.running_requests if targets is not None else None
        if target is not None and batch is not None and target > batch:
            raise ValueError(
                f"scaling.targets.runningRequests {target} is above engine.vllm.maxNumSeqs {batch}:"
                " no replica can run so many; lower runningRequests or raise maxNumSeqs"
            )
        return self
