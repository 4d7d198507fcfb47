"""What is served: the model and its LoRA adapters, and where their files are."""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, StrictBool, StringConstraints, model_validator

from tonnage.api.schema import STRICT_NUMBER, ApiModel, ExactlyOne, PositiveInt, ReportedModel

ObjectName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", min_length=1, max_length=253),
]
RepoId = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$", max_length=200)
]

Rank = Annotated[int, Field(ge=1, le=512), STRICT_NUMBER]
ModuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$", max_length=128)]

_MOST_DEFAULT_SLOTS: Final = 4
_BRANCH: Final = "main"


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

    def at(self, commit: str) -> Self:
        """The same repository at a commit. Any other source is returned as it is."""
        if self.hugging_face is None:
            return self
        repository = self.hugging_face.model_copy(update={"revision": commit})
        return self.model_copy(update={"hugging_face": repository})


class CacheClaim(ApiModel):
    """A volume that keeps downloaded checkpoints."""

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim in the namespace of the InferenceDeployment. Its pods mount
    it read-only; only the Job that downloads writes to it."""


class CacheImage(ApiModel):
    """An OCI image or artifact with the files of the repository in its root folder."""

    reference: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9][^\s$]*$", min_length=1, max_length=512)
    ]
    """Name of the image. With a digest, all replicas load the same files."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When the kubelet pulls the image. Default: Always for the tag latest, else IfNotPresent."""


class Prefetch(ApiModel):
    """Downloads to nodes that run no replica yet."""

    nodes: Annotated[int, Field(ge=1, le=16), STRICT_NUMBER]
    """Number of nodes, at most 16, that get the files in addition to those with replicas. They are
    nodes of each pool that runs replicas, and of one that these are to migrate to, with free GPUs
    for a replica."""


class PrefetchStatus(ReportedModel):
    """Nodes without replicas that have the weights, or are to get them."""

    nodes: int
    """Number of nodes with a Job that downloads, or has downloaded, the weights."""
    ready_nodes: int
    """Number of these nodes on which the download has ended well."""
    message: str | None = None
    """Why other nodes are not ready, or why they are fewer than requested."""


class CacheNodeDisk(ApiModel):
    """The directory for weights on the nodes of a pool. Its path and its capacity are set by
    `weights.nodeDisk` of the AcceleratorPool."""

    prefetch: Prefetch | None = None
    """Downloads to further nodes, once all replicas are ready, by a Job for each node. Default:
    none; the files come to a node with its first pod."""


class ModelCache(ExactlyOne):
    """Where the files of a repository are kept for all replicas. Exactly one of the fields must be
    set."""

    persistent_volume_claim: CacheClaim | None = None
    """A volume that the nodes of all replicas can mount. A Job downloads the files to it, once,
    before pods start. All replicas then load the same commit, which changes with
    `rollout.upgradedAt` or `source`."""
    image: CacheImage | None = None
    """An image that has the files already. Each node pulls it once. Requires image volumes
    (Kubernetes 1.35 has them without a feature gate)."""
    # Not atomic, server-side apply would make null of an object whose last field is removed.
    node_disk: Annotated[
        CacheNodeDisk | None, Field(json_schema_extra={"x-kubernetes-map-type": "atomic"})
    ] = None
    """A disk of each node, on pools that declare one. The first pod on a node downloads the files,
    and others of the namespace use the same. All replicas load the same commit, as from a volume.
    The namespace must admit hostPath volumes."""


class Model(ApiModel):
    """The model to serve."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = None
    """Served model name, as clients send it in requests. Default: metadata.name."""
    source: ModelSource
    """Source of the model."""
    cache: ModelCache | None = None
    """Where the files of `source.huggingFace` are kept. Default: none; each pod downloads them."""

    @model_validator(mode="after")
    def _check_cache(self) -> Self:
        if self.cache is not None and self.source.hugging_face is None:
            raise ValueError(
                "cache requires source.huggingFace: the files of other sources are not downloaded;"
                " remove cache"
            )
        return self

    @property
    def cache_claim(self) -> str | None:
        """Name of the claim that keeps the downloaded files; None without one."""
        claim = self.cache.persistent_volume_claim if self.cache else None
        return claim.claim_name if claim else None

    @property
    def is_on_node_disk(self) -> bool:
        """Whether the nodes keep the downloaded files."""
        return self.cache is not None and self.cache.node_disk is not None

    @property
    def prefetch_nodes(self) -> int:
        """Nodes without replicas that get the files, in each pool that is to have some."""
        disk = self.cache.node_disk if self.cache else None
        return disk.prefetch.nodes if disk and disk.prefetch else 0

    @property
    def keeps_commit(self) -> bool:
        """Whether all replicas load the commit that was current when the first one was planned."""
        return self.cache_claim is not None or self.is_on_node_disk


class AdapterConfigMap(ApiModel):
    """A ConfigMap in the namespace of the InferenceDeployment."""

    name: ObjectName
    """Name of the ConfigMap. Key adapter_config.json is required."""


class AdapterVolumeFacts(ApiModel):
    """What an adapter on a volume is."""

    config_map: AdapterConfigMap
    """A ConfigMap, for example one written by the Job that `tonnage inspect` prints."""


class AdapterVolumeSource(ApiModel):
    """An adapter on a volume. The operator cannot read the volume; `facts` describe the adapter."""

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim in the namespace of the InferenceDeployment."""
    path: Annotated[
        str,
        StringConstraints(
            pattern=r"^([A-Za-z0-9_][\w.@+-]*(/[A-Za-z0-9_][\w.@+-]*)*)?$", max_length=512
        ),
    ] = ""
    """Directory with adapter_config.json, relative to the root of the volume. Default: the root."""
    facts: AdapterVolumeFacts | None = None
    """adapter_config.json of the adapter. `tonnage inspect --pvc CLAIM --path PATH` prints a Job
    that collects it. Default: none; then `rank` or `maxRank` must be set, and nothing that vLLM
    does not load is refused before pods start."""


class AdapterSource(ExactlyOne):
    """Source of an adapter. Exactly one of the fields must be set."""

    hugging_face: HuggingFaceSource | None = None
    """A Hugging Face repository. Each pod downloads it before vLLM starts."""
    persistent_volume_claim: AdapterVolumeSource | None = None
    """A volume with the adapter."""


class Adapter(ApiModel):
    """A LoRA adapter, which clients request as a model of its own."""

    name: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$", max_length=63)
    ]
    """Model name that clients send in requests."""
    source: AdapterSource
    """Source of the adapter."""
    rank: Rank | None = None
    """Rank of the adapter, or a larger one: r of adapter_config.json, or the largest of
    rank_pattern. Default: read from the Hub, or from `facts` of a volume; without them, `maxRank`
    must be set."""


class LoraUpdates(StrEnum):
    """How a change of the adapters gets to the replicas."""

    ROLLING = "Rolling"
    LIVE = "Live"


class Lora(ApiModel):
    """LoRA adapters, and the buffers that vLLM reserves for them on each GPU."""

    adapters: Annotated[
        list[Adapter],
        Field(
            max_length=128,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        ),
    ] = []
    """Adapters that every replica serves from its start on. Default: none."""
    max_loras: Annotated[int, Field(ge=1, le=128), STRICT_NUMBER] | None = None
    """Maximum number of different adapters in one batch (vLLM's --max-loras). Each takes memory on
    every GPU. Default: the number of adapters, at most 4."""
    max_rank: Rank | None = None
    """Rank of the buffers (vLLM's --max-lora-rank): 1, 8, 16, 32, 64, 128, 256, 320 or 512.
    Default: the smallest of these for the ranks of all adapters."""
    max_cpu_loras: PositiveInt | None = None
    """Maximum number of adapters in the memory of the host (vLLM's --max-cpu-loras). Default: the
    number of adapters, at least `maxLoras`."""
    target_modules: Annotated[list[ModuleName], Field(max_length=64)] = []
    """Layers that get buffers, by the last part of vLLM's name, for example qkv_proj (vLLM's
    --lora-target-modules). Adapters have no effect on other layers. Default: those that the
    adapters change, or all that vLLM can adapt where that is unknown, as on a volume."""
    fully_sharded: StrictBool = False
    """Divides all of the buffers over the GPUs of a replica (vLLM's --fully-sharded-loras).
    Default: false."""
    updates: LoraUpdates = LoraUpdates.ROLLING
    """How a change of `adapters` gets to the replicas. Rolling replaces their pods. Live loads and
    unloads adapters in running pods, for which `maxRank` and `maxCpuLoras` must be set; see
    docs/lora.md about who may reach the pods then. Default: Rolling."""

    @property
    def is_live(self) -> bool:
        """Whether adapters change in running pods."""
        return self.updates is LoraUpdates.LIVE

    @property
    def slots(self) -> int:
        """Adapters in one batch."""
        adapters = (self.max_cpu_loras if self.is_live else None) or len(self.adapters)
        return self.max_loras or max(1, min(adapters, _MOST_DEFAULT_SLOTS))

    @property
    def host_slots(self) -> int:
        """Adapters in the memory of the host."""
        return self.max_cpu_loras or max(self.slots, len(self.adapters))

    @property
    def claims(self) -> tuple[str, ...]:
        """The PersistentVolumeClaims of the adapters, each once, in the order of the adapters."""
        sources = (adapter.source.persistent_volume_claim for adapter in self.adapters)
        return tuple(dict.fromkeys(source.claim_name for source in sources if source))

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [adapter.name for adapter in self.adapters]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ValueError(f"adapters[{index}].name: {name} is the name of two adapters")
        return self

    @model_validator(mode="after")
    def _check_live(self) -> Self:
        """What is reserved and mounted when a pod starts must not follow from the adapters."""
        if not self.is_live:
            return self
        if self.max_rank is None or self.max_cpu_loras is None:
            field = "maxRank" if self.max_rank is None else "maxCpuLoras"
            raise ValueError(
                f"updates is Live, which needs {field}: pods reserve memory for adapters when they"
                " start; set it to what the adapters will need"
            )
        if len(self.adapters) > self.max_cpu_loras:
            raise ValueError(
                f"maxCpuLoras {self.max_cpu_loras} is below {len(self.adapters)} adapters, which"
                " every pod has to keep with updates Live; raise it, which replaces the pods, or"
                " remove adapters"
            )
        for index, adapter in enumerate(self.adapters):
            hub = adapter.source.hugging_face
            if hub is not None and hub.revision != _BRANCH:
                raise ValueError(
                    f"adapters[{index}].source.huggingFace.revision {hub.revision}: with updates"
                    f" Live vLLM itself downloads the adapter, always branch {_BRANCH}; leave"
                    " revision out, use a volume, or use updates Rolling"
                )
        return self

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.max_cpu_loras is not None and self.max_cpu_loras < self.slots:
            raise ValueError(
                f"maxCpuLoras {self.max_cpu_loras} is below maxLoras {self.slots}: expected at"
                " least as many"
            )
        for index, adapter in enumerate(self.adapters):
            if self.max_rank is not None and (adapter.rank or 0) > self.max_rank:
                raise ValueError(
                    f"adapters[{index}].rank {adapter.rank} is above maxRank {self.max_rank}; raise"
                    " maxRank or leave it out"
                )
        return self
