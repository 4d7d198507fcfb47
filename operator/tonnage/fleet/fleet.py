"""The fleet, updated event by event and never rebuilt as a whole.

Algorithm. Every node belongs to a class (`node_class`), every class to a group, and a group is a
pool. An event moves one node from class to class or changes the free GPUs on one node, and marks
its pool as stale. `Fleet.pools` returns fresh pools as they are, and rebuilds a stale one from the
number of nodes that each of its classes has per count of free GPUs. Only a change of the relevant
labels (a pool is declared or withdrawn) regroups all nodes, once, at the next call.

The result depends on the state of the fleet, never on the order of the events.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tonnage.api.pod import Toleration
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.alignment import Split
from tonnage.fleet.model import (
    DeclaredPool,
    FleetSnapshot,
    GpuPod,
    KeptWeights,
    Node,
    Pool,
    Reservation,
)
from tonnage.fleet.nodes.node_class import GroupKey, NodeClass
from tonnage.fleet.pools.building import build_pool
from tonnage.fleet.pools.capacity import Demands
from tonnage.fleet.pools.groups import Groups
from tonnage.fleet.pools.usability import has_lost_capacity
from tonnage.fleet.resource_slices import AllocatedClaim, ResourceSlice
from tonnage.fleet.usage.device_usage import DeviceUsage
from tonnage.fleet.usage.gpu_pods import GpuPods, NodeUsage, Owner
from tonnage.fleet.usage.reservations import Reservations


class Fleet:
    """Nodes, pods with GPUs, declared pools and reservations, and the pools built from them.

    All nodes and declared pools are of one shard; its pools keep pods to the shard's nodes.
    """

    def __init__(self, catalog: Catalog, shard: Shard = UNNAMED_SHARD) -> None:
        self.shard: Final = shard
        self._gpu_pods = GpuPods()
        self._devices = DeviceUsage(self._gpu_pods)
        free_split = self._devices.allocations.free_split
        self._groups = Groups(catalog, self._gpu_pods, shard, free_split)
        self._reservations = Reservations(self._gpu_pods)
        self._pools: dict[GroupKey, Pool] = {}
        self._tainted: set[GroupKey] = set()
        self._tolerant_pools: dict[GroupKey, dict[frozenset[NodeClass], Pool]] = {}
        self._keys: dict[str, GroupKey] = {}

    @classmethod
    def of(cls, snapshot: FleetSnapshot, catalog: Catalog) -> "Fleet":
        """Build the fleet of a snapshot; of two nodes with one name the last counts."""
        fleet = cls(catalog, snapshot.shard)
        for pool in snapshot.declared_pools:
            fleet.declare(pool)
        fleet.set_device_classes(snapshot.device_classes)
        for one in snapshot.slices:
            fleet.put_slice(one)
        for claim in snapshot.claims:
            fleet.put_claim(claim)
        for node in snapshot.nodes:
            fleet.put_node(node)
        for pod in snapshot.pods:
            fleet.put_pod(pod)
        by_owner: dict[Owner, list[Reservation]] = {}
        for reservation in snapshot.reservations:
            by_owner.setdefault(reservation.owner, []).append(reservation)
        for owner, reservations in by_owner.items():
            fleet.reserve(owner, reservations)
        return fleet

    # Events

    def put_node(self, node: Node) -> set[Owner]:
        """Add or update a node; return the owners that may have lost GPUs by that."""
        self._devices.put_node(node)
        return self._update_nodes([node.name])

    def remove_node(self, name: str) -> set[Owner]:
        """Remove a node; return the owners that may have lost GPUs by that."""
        key = self._groups.key_of(name)
        self._mark_changed(self._devices.remove_node(name))
        self._groups.remove_node(name)
        return self._affected_owners(name, key)

    def put_pod(self, pod: GpuPod) -> None:
        """Add or update a pod."""
        self._mark_changed(self._devices.put_pod(pod))

    def remove_pod(self, uid: str) -> None:
        """Remove a pod that is gone or has finished."""
        self._mark_changed(self._devices.remove_pod(uid))

    def put_slice(self, one: ResourceSlice) -> set[Owner]:
        """Add or update a ResourceSlice; return the owners that may have lost GPUs by that."""
        return self._update_nodes(self._devices.allocations.put_slice(one))

    def remove_slice(self, name: str) -> set[Owner]:
        """Remove a ResourceSlice; return the owners that may have lost GPUs by that."""
        return self._update_nodes(self._devices.allocations.remove_slice(name))

    def set_device_classes(self, names: Iterable[str] | None) -> set[Owner]:
        """Replace the names of the DeviceClasses, None where they are unknown; return the owners
        that may have lost GPUs by that."""
        return self._update_nodes(self._devices.allocations.set_classes(names))

    def put_claim(self, claim: AllocatedClaim) -> None:
        """Add or update a ResourceClaim that holds devices."""
        self._mark_changed(self._devices.put_claim(claim))

    def remove_claim(self, uid: str) -> None:
        """Remove a ResourceClaim that is gone or holds no device."""
        self._mark_changed(self._devices.remove_claim(uid))

    def declare(self, pool: DeclaredPool) -> None:
        """Add or update an AcceleratorPool."""
        self._groups.declare(pool)

    def withdraw(self, name: str) -> None:
        """Remove an AcceleratorPool that is gone or has become unreadable."""
        self._groups.withdraw(name)

    def reserve(self, owner: Owner, reservations: Iterable[Reservation]) -> None:
        """Replace all reservations of an owner."""
        self._reservations.replace(owner, tuple(reservations))

    # Queries

    def pools(
        self, excluding: Owner | None = None, tolerations: Sequence[Toleration] = ()
    ) -> tuple[Pool, ...]:
        """All pools, declared ones first, each by name. Every GPU node is in exactly one.

        `excluding` is an owner whose pods and reservations do not count, so that a new plan for it
        may use the GPUs it has. `tolerations` are those of the pods to be placed, in addition to
        the pool's own: a node with any other taint is no capacity.
        """
        self._refresh()
        own: dict[GroupKey, Pool] = {}
        if tolerations:
            own |= {key: self._shared_pool(key, tolerations) for key in self._tainted}
        if excluding:
            held, waiting = self._held_by(excluding), self._reservations.pools_of(excluding)
            for key in {*held, *self._keys_of(waiting)}:
                tolerated = self._tolerated(key, tolerations)
                own[key] = self._build(key, tolerated, excluding, held.get(key))
        return tuple({**self._pools, **own}.values())

    def pool_of(self, node: str) -> str | None:
        """The name of the pool that a node is in, None when it is in none."""
        self._refresh()
        return self._name_of(node)

    def labels_of(self, node: str) -> Mapping[str, str]:
        """The labels of a node; none of one that does not exist."""
        current = self._groups.node(node)
        return {} if current is None else current.labels

    def is_silent(self, node: str) -> bool:
        """Whether the node's kubelet does not report: the node is NotReady, or does not exist."""
        current = self._groups.node(node)
        return current is None or current.silent

    def reserved(self, owner: Owner) -> tuple[Reservation, ...]:
        """The reservations of an owner."""
        return self._reservations.of(owner)

    def pods_of(self, owner: Owner) -> Iterable[GpuPod]:
        """The pods of an owner that are on nodes."""
        self._count_devices()
        return self._gpu_pods.of(owner)

    def kept_weights(self, node: str, excluding: Owner) -> frozenset[KeptWeights]:
        """What pods keep on the disk of a node, but for those of an owner."""
        self._count_devices()
        others = (pod for pod in self._gpu_pods.on(node) if pod.owner != excluding)
        return frozenset(pod.weights for pod in others if pod.weights is not None)

    def reserved_gpus(self, pool: str) -> Mapping[Owner, int]:
        """The GPUs of a pool that each owner reserves, held by pods or not."""
        return self._reservations.gpus_in(pool)

    def assumed_gpus(self, pool: str) -> int:
        """GPUs of a pool assumed for replicas that have no pod on a node yet and replace none."""
        self._refresh()
        waiting = self._reservations.waiting(pool)
        return sum(footprint.gpus * replicas for footprint, replicas in waiting)

    def owners(self) -> set[Owner]:
        """All owners with a reservation."""
        return set(self._reservations.owners())

    def snapshot(self) -> FleetSnapshot:
        """All nodes, pods, reservations and declared pools, each in order."""
        return FleetSnapshot(
            nodes=tuple(self._devices.nodes()),
            pods=tuple(self._devices.pods()),
            reservations=tuple(self._reservations),
            declared_pools=tuple(self._groups.declared()),
            shard=self.shard,
            slices=tuple(self._devices.allocations.slices),
            claims=tuple(self._devices.allocations.claims),
            device_classes=self._devices.allocations.classes,
        )

    def _update_nodes(self, names: Iterable[str]) -> set[Owner]:
        """Group nodes again by what they have now; return the owners that may have lost GPUs."""
        affected: set[Owner] = set()
        changed = list(names)
        for name in changed:
            node = self._devices.node(name)
            if node is None:
                continue
            before, key = self._groups.node(name), self._groups.key_of(name)
            self._groups.put_node(node)
            if before is None:
                continue
            left_group = key is not None and self._groups.key_of(name) != key
            if left_group or has_lost_capacity(before, node):
                affected |= self._affected_owners(name, key)
        self._mark_changed(self._devices.mark_stale(changed))
        return affected

    def _affected_owners(self, node: str, key: GroupKey | None) -> set[Owner]:
        """Owners with replicas on a node, or still to be scheduled in the pool that it was in."""
        self._count_devices()
        on_node = {pod.owner for pod in self._gpu_pods.on(node) if pod.owner is not None}
        pool = self._groups.names.get(key) if key is not None else None
        return on_node if pool is None else on_node | self._reservations.owners_waiting_for(pool)

    def _count_devices(self) -> None:
        """Count the devices that pods hold since the last call."""
        self._mark_changed(self._devices.refresh())

    def _mark_changed(self, pods: Iterable[GpuPod]) -> None:
        bound = [pod for pod in pods if pod.node is not None]
        for node in {pod.node for pod in bound if pod.node is not None}:
            self._groups.recount(node)
        for owner in {pod.owner for pod in bound if pod.owner is not None}:
            self._reservations.mark_stale(owner)

    def _refresh(self) -> None:
        """Rebuild the pools that events have changed since the last call."""
        self._count_devices()
        stale, is_renamed = self._groups.refresh(), self._groups.all_regrouped
        if is_renamed:
            self._reservations.mark_all_stale()
            self._keys = {name: key for key, name in self._groups.names.items()}
        for node in self._groups.regrouped_nodes:
            for pod in self._gpu_pods.on(node):
                if pod.owner is not None:
                    self._reservations.mark_stale(pod.owner)
        self._groups.all_regrouped, self._groups.regrouped_nodes = False, set()
        stale.update(self._keys_of(self._reservations.refresh(self._name_of)))
        for key in stale:
            self._tolerant_pools.pop(key, None)
            self._tainted.discard(key)
            if key not in self._groups.names:
                self._pools.pop(key, None)
                continue
            self._pools[key] = self._build(key)
            if self._groups.descriptions[key].tainted_classes:
                self._tainted.add(key)
        if is_renamed:  # the pools are in the order of the names
            self._pools = {key: self._pools[key] for key in self._groups.names}

    def _shared_pool(self, key: GroupKey, tolerations: Sequence[Toleration]) -> Pool:
        """The pool for all owners with these tolerations, cached until it is stale."""
        tolerated = self._tolerated(key, tolerations)
        if not tolerated:
            return self._pools[key]
        cached = self._tolerant_pools.setdefault(key, {})
        if tolerated not in cached:
            cached[tolerated] = self._build(key, tolerated)
        return cached[tolerated]

    def _tolerated(self, key: GroupKey, tolerations: Sequence[Toleration]) -> frozenset[NodeClass]:
        description = self._groups.descriptions[key]
        if not description.tainted_classes:
            return frozenset()
        return description.tolerated_classes(tolerations)

    def _build(
        self,
        key: GroupKey,
        tolerated: frozenset[NodeClass] = frozenset(),
        excluding: Owner | None = None,
        held: NodeUsage | None = None,
    ) -> Pool:
        name, description = self._groups.names[key], self._groups.descriptions[key]
        held = held or NodeUsage()
        return build_pool(
            name,
            self.shard,
            self._groups.by_key[key],
            description,
            self._groups.separations[key],
            description.reasons_without(tolerated),
            Demands(
                self._reservations.waiting(name, excluding),
                self._reservations.successors(name, excluding),
                held.gpus,
                held.others,
                self._splits_without(excluding, key, held.gpus) if excluding else {},
            ),
        )

    def _splits_without(
        self, owner: Owner, key: GroupKey, nodes: Iterable[str]
    ) -> Mapping[str, Split]:
        """Free GPUs of nodes without what the owner's pods hold, where their group aligns GPUs."""
        attribute = self._groups.alignment_of(key, self._groups.descriptions[key].shape.resource)
        if attribute is None:
            return {}
        pods = [pod.uid for pod in self._gpu_pods.of(owner)]
        allocations = self._devices.allocations
        return {name: allocations.free_split(name, attribute, pods) for name in nodes}

    def _held_by(self, owner: Owner) -> dict[GroupKey, NodeUsage]:
        """What the owner's pods hold, by group."""
        held: dict[GroupKey, NodeUsage] = {}
        for pod in self._gpu_pods.of(owner):
            key = self._groups.key_of(pod.node) if pod.node else None
            if pod.node is None or key is None:
                continue
            resource = self._groups.by_key[key].members[pod.node].node_class.resource
            held.setdefault(key, NodeUsage()).add(pod.node, pod, resource)
        return held

    def _name_of(self, node: str) -> str | None:
        key = self._groups.key_of(node)
        return self._groups.names[key] if key is not None else None

    def _keys_of(self, names: Iterable[str]) -> Iterable[GroupKey]:
        return (self._keys[name] for name in names if name in self._keys)


def build_pools(
    snapshot: FleetSnapshot,
    catalog: Catalog,
    excluding: Owner | None = None,
    tolerations: Sequence[Toleration] = (),
) -> tuple[Pool, ...]:
    """Build the pools of one snapshot, once; see Fleet.pools for the arguments."""
    return Fleet.of(snapshot, catalog).pools(excluding, tolerations)
