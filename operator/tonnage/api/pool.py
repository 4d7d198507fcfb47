"""The AcceleratorPool: nodes with the same accelerator, declared or discovered."""

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StrictBool, StringConstraints, model_validator

from tonnage.api.conditions import Condition
from tonnage.api.pod import EnvVar, PodTemplate, Quantity, StringMap, Toleration
from tonnage.api.schema import STRICT_NUMBER, ApiModel, Money, PositiveInt

Image = Annotated[str, StringConstraints(min_length=1, max_length=512)]
ImagePrefix = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._:/-]*[A-Za-z0-9])?$", max_length=256),
]


class PoolImages(ApiModel):
    """Images for the nodes of this pool."""

    vllm: Image | None = None
    """vLLM image with tag, for models that set neither `engine.vllm.image` nor `version`. Default:
    the vendor's image of the vLLM release."""
    sglang: Image | None = None
    """SGLang image with tag, for models that set neither `engine.sglang.image` nor `version`.
    Default: the project's image for the GPU."""
    mirrors: Annotated[dict[str, ImagePrefix], Field(max_length=32)] = {}
    """Registries to take images from instead, by prefix of the image's name, for example vllm:
    registry.example.com/vllm. The longest prefix applies, before the operator's own mirrors, to
    every image, also one of an object. Default: the operator's mirrors."""

    def of(self, engine: str) -> str | None:
        """The image for an engine, by the name of its field; None without one."""
        return {"vllm": self.vllm, "sglang": self.sglang}.get(engine)

    def for_digest(self) -> dict[str, Any]:
        """The fields that version 0.1.0 put into digests, and later ones where they are set."""
        return {"vllm": self.vllm, **self.model_dump(mode="json", exclude_defaults=True)}


Capability = Literal["IPC_LOCK", "NET_ADMIN", "NET_RAW", "SYS_RAWIO"]


class Interconnect(ApiModel):
    """The network between the nodes of the pool, over which one replica can run on several of
    them. Set `resource`, `computeDomain`, or both."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.resource) || (has(self.computeDomain) && self.computeDomain)",
                    "message": "set resource, or computeDomain: true",
                }
            ]
        }
    )

    resource: (
        Annotated[
            str,
            StringConstraints(
                pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
                max_length=316,
            ),
        ]
        | None
    ) = None
    """Extended resource of the network adapters, which each pod of such a replica requests, for
    example rdma/ib. Default: none, with `computeDomain`."""
    compute_domain: StrictBool = False
    """Whether the nodes are of racks with multi-node NVLink, such as GB200 NVL72: the operator
    makes a ComputeDomain of NVIDIA's DRA driver for each placement on several nodes, and its pods
    claim a channel. Default: false."""
    count: PositiveInt | None = None
    """How many of the resource one pod requests. Default: what is usual for the resource, else
    1."""
    gigabytes_per_second_per_gpu: Annotated[
        float | None,
        Field(gt=0, le=100_000, alias="gigabytesPerSecondPerGPU"),
        STRICT_NUMBER,
    ] = None
    """Bandwidth from one GPU to other nodes in 10^9 bytes per second, for example 50 for an adapter
    of 400 Gb/s per GPU. It only ranks plans. Default: that of NVLink with `computeDomain`, else
    what is usual for the resource, else 25."""
    capabilities: Annotated[list[Capability], Field(max_length=4)] | None = None
    """Linux capabilities of the engine's container. Default: what is usual for the resource, else
    IPC_LOCK; none without a resource. The others need `--pool-pod-security=privileged`."""
    annotations: Annotated[dict[str, str], Field(max_length=32)] = {}
    """Annotations of the pods, for example those that attach the adapters. Default: none."""
    env: Annotated[list[EnvVar], Field(max_length=64)] = []
    """Environment variables of the engine, for example NCCL_SOCKET_IFNAME. Default: those that are
    usual for the resource."""
    topology_key: (
        Annotated[
            str,
            StringConstraints(
                pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9][-A-Za-z0-9_.]*$", max_length=316
            ),
        ]
        | None
    ) = None
    """Label of the nodes: a replica runs on nodes with the same value only, for example
    cloud.google.com/gce-topology-block. Default: nvidia.com/gpu.clique if all nodes of the pool
    have it, else on any nodes."""

    @model_validator(mode="after")
    def _check_any(self) -> Self:
        if self.resource is None and not self.compute_domain:
            raise ValueError("set resource, or computeDomain: true; found neither")
        return self


class NodeDisk(ApiModel):
    """A directory on each node of the pool that keeps the weights of models with
    `model.cache.nodeDisk`."""

    path: Annotated[
        str,
        StringConstraints(pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+$", max_length=200),
    ] = "/var/lib/tonnage/weights"
    """Path of the directory on the node; pods create it where it does not exist. Each namespace has
    a directory of its own below it. Default: /var/lib/tonnage/weights."""
    capacity: Quantity
    """Disk of each node for weights, for example 2Ti. The pool takes no model that is larger. Pods
    delete models of their namespace that no pod uses, to keep within it."""
    ttl_seconds_after_last_use: Annotated[int, Field(ge=60, le=2**31 - 1), STRICT_NUMBER] = 2592000
    """Seconds after which a model is deleted that no pod on the node uses. Default: 2592000, 30
    days."""


class PoolWeights(ApiModel):
    """Where the nodes of the pool keep weights."""

    node_disk: NodeDisk | None = None
    """A directory on each node. Default: none; the pool takes no model with
    `model.cache.nodeDisk`."""


class Allocation(StrEnum):
    """How pods get the GPUs of a pool."""

    DEVICE_PLUGIN = "DevicePlugin"
    RESOURCE_CLAIM = "ResourceClaim"
    EXTENDED_RESOURCE = "ExtendedResource"


class DeviceAlignment(StrEnum):
    """What the GPUs of one pod have in common."""

    NUMA_NODE = "NUMANode"
    PCIE_ROOT = "PCIeRoot"


class AcceleratorPoolSpec(ApiModel):
    """Desired state of the AcceleratorPool."""

    node_selector: Annotated[StringMap, Field(min_length=1)]
    """Labels of the nodes in the pool."""
    accelerator: Annotated[str, StringConstraints(max_length=63)] | None = None
    """Accelerator ID, for example mi300x. Default: detected from node labels."""
    cost_per_gpu_hour: Annotated[Money | None, Field(alias="costPerGPUHour")] = None
    """Price of one GPU per hour in US dollars. Default: the price list of the operator."""
    images: PoolImages = PoolImages()
    """Images for the nodes of this pool."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = []
    """Tolerations of inference pods on these nodes."""
    env: Annotated[list[EnvVar], Field(max_length=64)] = []
    """Environment variables of the engine on these nodes."""
    pod_template: PodTemplate | None = None
    """Settings of the pods on these nodes, merged into what the operator renders, before
    `podTemplate` of the InferenceDeployment. Default: none."""
    interconnect: Interconnect | None = None
    """Network between the nodes, over which one replica can run on several of them. Default: one
    that the operator recognises by the resources of the nodes, such as rdma/ib."""
    weights: PoolWeights | None = None
    """Where the nodes keep weights. Default: nowhere."""
    allocation: Allocation | None = None
    """How pods get GPUs: `DevicePlugin` requests an extended resource such as nvidia.com/gpu,
    `ResourceClaim` claims devices in ResourceSlices, and `ExtendedResource` requests an extended
    resource that the scheduler satisfies with such devices (feature gate DRAExtendedResource).
    Nodes that offer their GPUs in another way are not used. Default: ResourceClaim on nodes with
    ResourceSlices, else DevicePlugin; where the pool has both, what more nodes offer."""
    device_alignment: DeviceAlignment | None = None
    """With ResourceClaims: the GPUs of a pod are on one NUMA node or PCIe root, where one has as
    many as the pod needs. Default: any GPUs of one node."""
    max_nodes: PositiveInt | None = None
    """Maximum number of nodes with a node autoscaler. Default: the operator expects no new
    nodes."""
    weight: Annotated[int, Field(ge=0, le=1000), STRICT_NUMBER] = 100
    """Preference among pools of equal rank; the highest wins. Default: 100."""

    @property
    def node_disk(self) -> NodeDisk | None:
        """The directory for weights on each node; None without one."""
        return self.weights.node_disk if self.weights else None


class GPUCounts(ApiModel):
    """GPUs of a pool."""

    total: int
    """GPUs on all nodes, including unusable ones."""
    allocatable: int
    """GPUs on ready and schedulable nodes."""
    free: int
    """Allocatable GPUs, minus pod requests and reservations."""
    largest_free_block: int
    """Most free GPUs on one node: the largest tensor parallel size that can start now."""


class AcceleratorPoolStatus(ApiModel):
    """Observed state of the AcceleratorPool."""

    observed_generation: int | None = None
    """Generation of the spec that this status is based on."""
    accelerator: str | None = None
    """Accelerator ID of the devices."""
    nodes: int = 0
    """Number of nodes in the pool."""
    gpus: GPUCounts | None = None
    """GPUs of these nodes."""
    unusable_nodes: Annotated[list[str], Field(max_length=20)] = []
    """Nodes that cannot be used now, as "node: reason"."""
    conditions: Annotated[
        list[Condition],
        Field(
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            }
        ),
    ] = []
    """Ready: the accelerator is recognised and at least one node is usable."""
