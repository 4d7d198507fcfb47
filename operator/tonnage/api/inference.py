"""The spec of an InferenceDeployment: model, workload and user settings."""

from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StrictBool, StringConstraints, model_validator

from tonnage.api.gateway import Gateway
from tonnage.api.model import Lora, Model, ObjectName
from tonnage.api.placement import PlacementSpec
from tonnage.api.pod import EnvVar, PodTemplate, PodTemplateOverrides, TemplateMetadata, Toleration
from tonnage.api.scaling import Scaling
from tonnage.api.schema import (
    STRICT_NUMBER,
    ApiModel,
    Duration,
    Fraction,
    Moment,
    PartialFraction,
    PlanHash,
    PositiveInt,
)
from tonnage.api.workload import Workload

DEFAULT_ENGINE: Final = "vllm"
"""The engine of a spec that names none."""


class EngineType(StrEnum):
    """Which engine runs a model."""

    AUTO = "Auto"
    VLLM = "VLLM"
    SGLANG = "SGLang"


_FIELDS: Final = {EngineType.VLLM: "vllm", EngineType.SGLANG: "sglang"}
"""The field with the settings of each engine, which is its name everywhere else."""

_LISTED_SETTINGS: Final = (
    "version",
    "gpu_memory_utilization",
    "max_num_seqs",
    "max_num_batched_tokens",
    "enforce_eager",
)
"""Settings of vLLM in the list of version 0.1.0."""


class EngineSettings(ApiModel):
    """Settings that every engine has."""

    version: str | None = None
    image: str | None = None
    extra_args: list[str] = []
    env: list[EnvVar] = []

    def listed(self) -> list[object] | None:
        """The settings that decide the memory, as version 0.1.0 lists them for its digest of a
        placement; None where it does not have all of them."""
        return None


class VllmEngine(EngineSettings):
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

    def listed(self) -> list[object] | None:
        """The settings of that version, unless a later one is set."""
        changed = self.model_dump(exclude_defaults=True).keys() - EngineSettings.model_fields.keys()
        if not changed <= {*_LISTED_SETTINGS}:
            return None
        return [getattr(self, name) for name in _LISTED_SETTINGS]


class SglangEngine(EngineSettings):
    """Settings of SGLang."""

    version: (
        Annotated[
            str, StringConstraints(pattern=r"^v[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.]*$", max_length=32)
        ]
        | None
    ) = None
    """SGLang release, for example v0.5.23. Default: the release that the operator supports."""
    image: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    """Image of the SGLang container, of the release in `version`. Default: the project's image for
    the GPU, or without `version` the pool's image."""
    extra_args: Annotated[list[str], Field(max_length=64)] = []
    """Additional arguments of `sglang.launch_server`, after those of the operator."""
    env: Annotated[list[EnvVar], Field(max_length=64)] = []
    """Additional environment variables of the SGLang container."""
    mem_fraction_static: PartialFraction | None = None
    """Fraction of each GPU's memory for weights and KV cache (--mem-fraction-static); activations
    and CUDA graphs get the rest. Default: SGLang's default, which depends on the GPU and the
    model."""


class CompileCacheClaim(ApiModel):
    """A volume that keeps compiled kernels and graphs."""

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim in the namespace of the InferenceDeployment. Pods mount it
    writable and run the code in it, so only objects that trust each other may share it."""


class CompileCache(ApiModel):
    """Where compiled kernels and graphs are kept for later starts."""

    persistent_volume_claim: CompileCacheClaim
    """A volume that the nodes of all replicas can mount, with a folder for each image and
    accelerator."""


class Engine(ApiModel):
    """The inference engine: vLLM, or SGLang if `sglang` is set, unless `type` says otherwise."""

    type: EngineType | None = None
    """The engine. Auto: the operator chooses between vLLM and SGLang when it places the replicas,
    for each pool, with the settings of both. Default: SGLang if `sglang` is set, else VLLM."""
    vllm: VllmEngine = VllmEngine()
    """Settings of vLLM."""
    sglang: SglangEngine | None = None
    """Settings of SGLang, {} for the defaults. Unless `type` is Auto, it runs the model with SGLang
    and cannot be set together with `vllm`. Default: none."""
    compile_cache: CompileCache | None = None
    """Keeps what the engine compiles when it starts (torch.compile, Triton, FlashInfer). Default:
    none; each pod compiles again."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The engines that may run the model, by the names of their fields; the default one
        first."""
        return tuple(_FIELDS.values()) if self.is_open else (self.name,)

    @property
    def is_open(self) -> bool:
        """Whether the operator chooses the engine."""
        return self.type is EngineType.AUTO

    @property
    def name(self) -> str:
        """The engine in use: the name of its field. Where the operator chooses, the default one."""
        return DEFAULT_ENGINE if self.sglang is None or self.is_open else "sglang"

    @property
    def settings(self) -> EngineSettings:
        """Those of the engine in use."""
        return self.vllm if self.sglang is None or self.is_open else self.sglang

    def only(self, name: str) -> Self:
        """The engine of that name, with its settings."""
        if name == DEFAULT_ENGINE:
            return self.model_copy(update={"type": None, "sglang": None})
        sglang = self.sglang or SglangEngine()
        return self.model_copy(update={"type": None, "vllm": VllmEngine(), "sglang": sglang})

    @model_validator(mode="before")
    @classmethod
    def _set_named(cls, raw: object) -> object:
        """SGLang named by its type alone has default settings."""
        if isinstance(raw, dict) and raw.get("type") == EngineType.SGLANG and "sglang" not in raw:
            return {**raw, "sglang": {}}
        return raw

    @model_validator(mode="after")
    def _check_one_engine(self) -> Self:
        if self.is_open or self.sglang is None:
            return self
        if self.type is EngineType.VLLM:
            raise ValueError("type is VLLM and sglang is set; remove sglang, or set type to Auto")
        if self.vllm != VllmEngine():
            raise ValueError(
                "vllm and sglang are both set, and a model runs with one engine; remove one of"
                " them, or set type to Auto"
            )
        return self


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
    lora: Lora | None = None
    """LoRA adapters of the model. Default: none."""
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

    def with_engine(self, name: str) -> Self:
        """The spec with the engine of that name, where the operator chooses the engine; else the
        spec itself. Without what podTemplate sets on containers of other engines."""
        if not self.engine.is_open:
            return self
        template = self.pod_template and self.pod_template.without_containers(
            frozenset(_FIELDS.values()) - {name}
        )
        return self.model_copy(update={"engine": self.engine.only(name), "pod_template": template})

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
    def _check_adapters(self) -> Self:
        for index, adapter in enumerate(self.lora.adapters if self.lora else ()):
            if adapter.name == self.model.name:
                raise ValueError(
                    f"lora.adapters[{index}].name: {adapter.name} is the name of the model itself"
                )
        return self

    @model_validator(mode="after")
    def _check_live_adapters(self) -> Self:
        """With updates Live vLLM downloads adapters itself, as it downloads the model."""
        model = self.model.source
        for index, adapter in enumerate(self.lora.adapters if self.lora else ()):
            hub = adapter.source.hugging_face
            if hub is None or self.lora is None or not self.lora.is_live:
                continue
            field = f"lora.adapters[{index}].source.huggingFace"
            if model.persistent_volume_claim is not None or self.model.cache is not None:
                place = "in model.cache" if self.model.cache is not None else "on a volume"
                raise ValueError(
                    f"{field}: the model is {place}, so its pods reach no Hub, which updates"
                    " Live needs; put the adapter on a volume, or use updates Rolling"
                )
            secret = model.hugging_face.token_secret_ref if model.hugging_face else None
            if hub.token_secret_ref not in (None, secret):
                raise ValueError(
                    f"{field}.tokenSecretRef: with updates Live vLLM downloads adapters with the"
                    " token of the model; name the Secret of the model, or use updates Rolling"
                )
        return self

    @model_validator(mode="after")
    def _check_compile_cache(self) -> Self:
        """One pod does not mount a claim twice, and what others load stays read-only."""
        cache, source = self.engine.compile_cache, self.model.source.persistent_volume_claim
        if cache is None:
            return self
        name = cache.persistent_volume_claim.claim_name
        of_lora = self.lora.claims if self.lora else ()
        of_model = source.claim_name if source else self.model.cache_claim
        if name == of_model or name in of_lora:
            user = "the model" if name == of_model else "an adapter"
            raise ValueError(
                f"engine.compileCache.persistentVolumeClaim.claimName: {name} is the claim of"
                f" {user}, which pods mount read-only; use another claim"
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
