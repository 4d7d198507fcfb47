"""Nodes, pods, reservations and pools as frozen data."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tonnage.api.pod import EnvVar
from tonnage.api.pool import AcceleratorPoolSpec, NodeDisk
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.catalog.model import Accelerator
from tonnage.catalog.vllm.images import CudaVersion
from tonnage.fit.model import Footprint
from tonnage.fleet.pool_nodes import PoolNodes
from tonnage.fleet.resource_slices import AllocatedClaim, ResourceSlice
from tonnage.fleet.resources import NOTHING, UNKNOWN_SIZE, Resources

_DEFAULT_WEIGHT: Final[int] = AcceleratorPoolSpec.model_fields["weight"].default
_NO_NODES: Final = PoolNodes.of(())


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class DeviceFact:
    """What all GPUs of a node state in ResourceSlices: `attribute` and `stated` as the driver
    publishes them, `label` and `value` as the vendor's node labeller states the same."""

    label: str
    value: str
    attribute: str
    stated: str

    def __str__(self) -> str:
        return f"{self.attribute}={self.stated}"


@dataclass(frozen=True, slots=True)
class PublishedGPUs:
    """The whole GPUs of a node that a driver publishes in ResourceSlices.

    `resource` stands for them among the resources of nodes. `total` counts them, `usable` those
    that the scheduler may allocate. `refused` is why nothing can be known of them, `unusable` why
    none can be allocated now. `notes` name devices that do not count, with the reason. `arch` is
    their compute capability, for example sm_90, `cuda` the newest version that the kernel driver
    supports. `aligned` are attributes with the most usable GPUs that share one value.
    """

    driver: str
    resource: str
    facts: tuple[DeviceFact, ...] = ()
    total: int = 0
    usable: int = 0
    refused: str | None = None
    unusable: str | None = None
    notes: tuple[str, ...] = ()
    arch: str | None = None
    cuda: CudaVersion | None = None
    aligned: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """What placement needs of a Node object. `capacity` and `allocatable` are of GPU resources
    (`amd.com/...`, `nvidia.com/...`), `size` is its allocatable CPU, memory and storage.

    `unusable` says in a few words why the node is no capacity now (cordoned, NotReady, being
    deleted, ...), None when it is. `silent`: its kubelet does not report, so that the state of its
    pods is unknown. `starting`: only because it is still being set up, as a new node is.
    `networks` counts the adapters of known networks between nodes, by resource. `published` are
    GPUs of ResourceSlices, which `capacity` and `allocatable` then count as well.
    """

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    capacity: dict[str, int]
    allocatable: dict[str, int]
    unusable: str | None
    silent: bool = False
    starting: bool = False
    size: Resources = UNKNOWN_SIZE
    networks: Mapping[str, int] = field(default_factory=dict)
    published: tuple[PublishedGPUs, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """A checkpoint that a pod keeps on the disk of its node: the directory of its namespace on the
    node, the folder in the container that has the files, and their size."""

    directory: str
    folder: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GpuPod:
    """A pod that requests GPUs, or devices by ResourceClaims. `node` is None while it is not
    scheduled.

    `owner` is (namespace, name) of the InferenceDeployment and `placement` its placement when the
    operator created the pod (label tonnage.dev/inferencedeployment), else None. One that is
    `deleting` holds its GPUs until it is gone. `others` is what it requests besides GPUs. `tainted`
    counts devices that it has in addition to `requests`, and that its node does not offer any more:
    tainted ones, and those that the driver has withdrawn.
    `weights` is what it keeps on the disk of its node, None where that is nothing.
    """

    uid: str
    node: str | None
    requests: dict[str, int]
    owner: tuple[str, str] | None = None
    placement: str | None = None
    deleting: bool = False
    others: Resources = NOTHING
    tainted: int = 0
    weights: KeptWeights | None = None

    @property
    def gpus(self) -> int:
        """All GPUs that it has."""
        return sum(self.requests.values()) + self.tainted


@dataclass(frozen=True, slots=True)
class Reservation:
    """Replicas of a placement of an InferenceDeployment; GPUs are assumed for unscheduled ones."""

    owner: tuple[str, str]
    placement: str
    pool: str
    footprint: Footprint
    replicas: int


@dataclass(frozen=True, slots=True)
class DeclaredPool:
    """An AcceleratorPool object that a platform team wrote."""

    name: str
    labels: dict[str, str]
    spec: AcceleratorPoolSpec


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """All objects that placement uses, at one moment: of one shard, except for the pods and what
    Dynamic Resource Allocation has. `device_classes` are their names, None where they are
    unknown."""

    nodes: tuple[Node, ...]
    pods: tuple[GpuPod, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    declared_pools: tuple[DeclaredPool, ...] = ()
    shard: Shard = UNNAMED_SHARD
    slices: tuple[ResourceSlice, ...] = ()
    claims: tuple[AllocatedClaim, ...] = ()
    device_classes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of a GPU that is a separate device: an AMD compute partition or a MIG instance.

    `mode` is as the vendor writes it ("cpx_nps4", "3g.40gb"), `device_bytes` the memory of one
    such device, `share` its part (0 to 1) of the GPU's compute units and bandwidth. Devices that
    are partitions have no peer access to each other: each runs a TP 1 replica only.
    """

    mode: str
    device_bytes: int
    share: float


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What the ResourceClaim of a pod requests: devices of a DeviceClass that all `selectors`, in
    CEL, select. `aligned_by` is an attribute that they share, where one value has as many as the
    pod needs: at most `most_aligned`."""

    device_class: str
    selectors: tuple[str, ...]
    aligned_by: str | None = None
    most_aligned: int = 0


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """The network between the nodes of a pool, and what each pod of a replica on several nodes
    needs for it.

    `resource` and `count` are those of the adapters, None and 0 where pods request none, `requests`
    further resources by name. `bytes_per_second` is what one GPU sends to another node. The
    replica's nodes have the same value of label `topology_key`, where there is one.
    `compute_domain`: its pods claim a channel of a ComputeDomain, through which GPUs reach those of
    other nodes over NVLink.
    """

    resource: str | None
    count: int
    bytes_per_second: float
    requests: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    env: tuple[EnvVar, ...] = ()
    topology_key: str | None = None
    compute_domain: bool = False


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes with the same accelerator, declared or discovered.

    `accelerator` is None when the devices were not recognised; `unrecognised` then says what is
    missing and how to declare it. `device_bytes` is the memory of one device as torch reports it.
    `node_selector` are the labels that select exactly these nodes in a pod's affinity, together
    with `node_exclusion`: labels that no node may have with one of these values, or with any value
    where there are none, because other nodes with the same cards have them. `taints` are those that
    every pod on these nodes has to tolerate in addition to the declared tolerations. `labels` are
    the AcceleratorPool's. `overlaps` names declared pools that select some of the same nodes and
    come first, `overlapped` those that come later. `partition` is what a device is where it is not
    a whole GPU, `growth` the number of nodes that a node autoscaler may still add (spec.maxNodes).
    `cuda` is the oldest CUDA version that the drivers of its nodes support, None when no label
    states one. `refused` is why an object's pods cannot be rendered for it, `unmet` what they
    require of a node and none of its usable nodes meets, None where they can run on it.
    `notes` are remarks on some nodes: resources that nothing is planned on, counts that
    do not agree. `network` is that between its nodes, None where none is declared or recognised;
    `networks` are the resources of known networks that all of its nodes offer. `claim` is what its
    pods claim, None where they request `resource`.
    """

    name: str
    accelerator: Accelerator | None
    device_bytes: int | None
    resource: str
    nodes: PoolNodes
    node_selector: dict[str, tuple[str, ...]]
    taints: tuple[Taint, ...]
    declared: AcceleratorPoolSpec | None
    labels: dict[str, str] = field(default_factory=dict)
    unrecognised: str | None = None
    node_exclusion: dict[str, tuple[str, ...]] = field(default_factory=dict)
    overlaps: tuple[str, ...] = ()
    overlapped: tuple[str, ...] = ()
    partition: Partition | None = None
    growth: int = 0
    cuda: CudaVersion | None = None
    notes: tuple[str, ...] = ()
    refused: str | None = None
    unmet: str | None = None
    network: NodeNetwork | None = None
    networks: tuple[str, ...] = ()
    claim: ClaimRequest | None = None

    @property
    def weight(self) -> int:
        """Preference among pools of equal rank; higher is taken first."""
        return self.declared.weight if self.declared else _DEFAULT_WEIGHT

    @property
    def node_disk(self) -> NodeDisk | None:
        """The directory for weights on each node; None without one."""
        return self.declared.node_disk if self.declared else None

    @property
    def total(self) -> int:
        """GPUs on all nodes."""
        return self.nodes.counts.total

    @property
    def allocatable(self) -> int:
        """GPUs on usable nodes."""
        return self.nodes.counts.allocatable

    @property
    def free(self) -> int:
        """Free GPUs on usable nodes."""
        return self.nodes.counts.free

    @property
    def largest_node(self) -> int:
        """Most GPUs on one node, usable or not, as on a node that an autoscaler adds; the
        catalogue's number for a pool that may grow and whose nodes offer none yet."""
        return self.nodes.counts.largest_node

    @property
    def largest_free_block(self) -> int:
        """Most free GPUs on one node."""
        return self.nodes.counts.largest_free_block

    def without_nodes(self) -> "Pool":
        """What stays of the pool whatever nodes it has."""
        return replace(self, nodes=_NO_NODES, growth=0)

    def replica_capacity(self, footprint: Footprint, others: Resources = NOTHING) -> int:
        """Replicas of this footprint that can start now, each of whose pods requests these `others`
        of its node."""
        return self.nodes.replica_capacity(footprint, others)

    def capacity_after_growth(self, footprint: Footprint, others: Resources = NOTHING) -> int:
        """Replicas that can start now or on nodes to come: those that an autoscaler may still add,
        and those that are starting."""
        return self.nodes.capacity_after_growth(footprint, others)
