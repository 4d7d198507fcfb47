"""Nodes, pods, reservations and pools as frozen data."""

from dataclasses import dataclass, field
from typing import Final

from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.catalog.model import Accelerator

_DEFAULT_WEIGHT: Final[int] = AcceleratorPoolSpec.model_fields["weight"].default


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """What placement needs of a Node object; GPU resources only (`amd.com/...`, `nvidia.com/...`).

    `unusable` says in a few words why the node is no capacity now (cordoned, NotReady, being
    deleted, ...), None when it is.
    """

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    capacity: dict[str, int]
    allocatable: dict[str, int]
    unusable: str | None


@dataclass(frozen=True, slots=True)
class GpuPod:
    """A pod that requests GPUs. `node` is None while it is not scheduled.

    `owner` is (namespace, name) of the InferenceDeployment and `placement` its placement when the
    pod is one of ours (label tonnage.dev/inferencedeployment), else None.
    """

    uid: str
    node: str | None
    requests: dict[str, int]
    owner: tuple[str, str] | None = None
    placement: str | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Replicas that a placement of ours wants; those not yet scheduled are GPUs spoken for."""

    owner: tuple[str, str]
    placement: str
    pool: str
    gpus_per_replica: int
    replicas: int


@dataclass(frozen=True, slots=True)
class DeclaredPool:
    """An AcceleratorPool object that a platform team wrote."""

    name: str
    labels: dict[str, str]
    spec: AcceleratorPoolSpec


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """All of the cluster that placement looks at, at one moment."""

    nodes: tuple[Node, ...]
    pods: tuple[GpuPod, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    declared_pools: tuple[DeclaredPool, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A node inside its pool: GPUs in all, usable ones and free ones."""

    name: str
    gpus: int
    allocatable: int
    free: int
    unusable: str | None


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes with the same accelerator, declared or discovered.

    `accelerator` is None when the devices were not recognised; `unrecognised` then says what is
    missing and how to declare it. `device_bytes` is the memory of one device as torch sees it.
    `node_selector` are the labels that select exactly these nodes in a pod's affinity, together
    with `node_exclusion`: labels that no node may have, because a declared pool with the same
    cards has them. `taints` are those that every pod on these nodes has to tolerate beside the
    declared tolerations. `labels` are the AcceleratorPool's. `overlaps` names declared pools that
    select some of the same nodes and come first.
    """

    name: str
    accelerator: Accelerator | None
    device_bytes: int | None
    resource: str
    nodes: tuple[PoolNode, ...]
    node_selector: dict[str, tuple[str, ...]]
    taints: tuple[Taint, ...]
    declared: AcceleratorPoolSpec | None
    labels: dict[str, str] = field(default_factory=dict)
    unrecognised: str | None = None
    node_exclusion: dict[str, tuple[str, ...]] = field(default_factory=dict)
    overlaps: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        """Preference among pools of equal rank; higher is taken first."""
        return self.declared.weight if self.declared else _DEFAULT_WEIGHT

    @property
    def total(self) -> int:
        """GPUs on all nodes."""
        return sum(node.gpus for node in self.nodes)

    @property
    def allocatable(self) -> int:
        """GPUs on usable nodes."""
        return sum(node.allocatable for node in self.nodes)

    @property
    def free(self) -> int:
        """Free GPUs on usable nodes."""
        return sum(node.free for node in self.nodes)

    @property
    def largest_free_block(self) -> int:
        """Most free GPUs on one node."""
        return max((node.free for node in self.nodes), default=0)

    def room_for(self, gpus_per_replica: int) -> int:
        """Replicas of so many GPUs each that can start now; a replica lives on one node."""
        return sum(node.free // gpus_per_replica for node in self.nodes)
