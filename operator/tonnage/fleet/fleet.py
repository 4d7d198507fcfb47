"""The fleet as it is known, kept current event by event and never built anew as a whole.

Algorithm. Every node belongs to a class (`node_class`), every class to a group, and a group is a
pool. An event moves one node from class to class or changes the free GPUs on one node, and marks
its pool as stale. Whoever asks for the pools gets those that are not stale as they were made
before; a stale one is made from the number of nodes that each of its classes has with so many GPUs
free. Only where the labels that somebody looks at change (a pool is declared or withdrawn) all
nodes are grouped anew, once, when somebody next asks.

The answer depends on what the fleet is, and never on the order of the events.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tonnage.api.pod import Toleration
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.groups import Groups
from tonnage.fleet.held import HeldGpus, Owner
from tonnage.fleet.model import DeclaredPool, FleetSnapshot, GpuPod, Node, Pool, Reservation
from tonnage.fleet.node_class import GroupKey, NodeClass
from tonnage.fleet.pool_building import Taken, build_pool
from tonnage.fleet.promised import Promises
from tonnage.fleet.usability import is_less


class Fleet:
    """Nodes, pods with GPUs, declared pools and reservations, and the pools that they come to.

    Nodes and declared pools are all of one shard; its pools keep pods to it.
    """

    def __init__(self, catalog: Catalog, shard: Shard = UNNAMED_SHARD) -> None:
        self.shard: Final = shard
        self._held = HeldGpus()
        self._groups = Groups(catalog, self._held, shard)
        self._promises = Promises(self._held)
        self._pools: dict[GroupKey, Pool] = {}
        self._opened: dict[GroupKey, dict[frozenset[NodeClass], Pool]] = {}
        self._keys: dict[str, GroupKey] = {}

    @classmethod
    def of(cls, snapshot: FleetSnapshot, catalog: Catalog) -> "Fleet":
        """The fleet that the snapshot tells of; of two nodes with one name the last counts."""
        fleet = cls(catalog, snapshot.shard)
        for pool in snapshot.declared_pools:
            fleet.declare(pool)
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
        """The node is so now; gives those who may have lost GPUs by that."""
        before, key = self._groups.node(node.name), self._groups.key_of(node.name)
        self._groups.put_node(node)
        if before is None:
            return set()
        left = self._groups.key_of(node.name) != key
        return self._concerned(node.name, key) if left or is_less(before, node) else set()

    def remove_node(self, name: str) -> set[Owner]:
        """The node is gone; gives those who may have lost GPUs by that."""
        key = self._groups.key_of(name)
        self._groups.remove_node(name)
        return self._concerned(name, key)

    def put_pod(self, pod: GpuPod) -> None:
        """The pod is so now."""
        self.remove_pod(pod.uid)
        self._held.put(pod)
        self._follow(pod)

    def remove_pod(self, uid: str) -> None:
        """The pod is gone, or has finished."""
        pod = self._held.remove(uid)
        if pod is not None:
            self._follow(pod)

    def declare(self, pool: DeclaredPool) -> None:
        """The AcceleratorPool is so now."""
        self._groups.declare(pool)

    def withdraw(self, name: str) -> None:
        """The AcceleratorPool is gone, or cannot be read any more."""
        self._groups.withdraw(name)

    def reserve(self, owner: Owner, reservations: Iterable[Reservation]) -> None:
        """What the owner's replicas hold or will hold, in place of what was said before."""
        self._promises.replace(owner, tuple(reservations))

    # Answers

    def pools(
        self, excluding: Owner | None = None, tolerations: Sequence[Toleration] = ()
    ) -> tuple[Pool, ...]:
        """Every pool, declared ones first, each by name. Every GPU node is in exactly one.

        `excluding` is an owner whose pods and reservations are left out, so that a new plan for it
        may use the GPUs it has. `tolerations` are those of the pods to be placed, beside the pool's
        own: a node with any other taint is no capacity.
        """
        self._settle()
        if excluding is None and not tolerations:
            return tuple(map(self._pools.__getitem__, self._groups.names))
        held = self._held_by(excluding) if excluding else {}
        theirs = {*held, *self._keys_of(self._promises.pools_of(excluding) if excluding else ())}
        return tuple(
            self._build(key, self._open_to(key, tolerations), excluding, held.get(key, {}))
            if key in theirs
            else self._shared_pool(key, tolerations)
            for key in self._groups.names
        )

    def pool_of(self, node: str) -> str | None:
        """The name of the pool that a node is in, None when it is in none."""
        self._settle()
        return self._name_of(node)

    def is_silent(self, node: str) -> bool:
        """Whether nobody hears of the node: it is NotReady, or not there."""
        found = self._groups.node(node)
        return found is None or found.silent

    def reserved(self, owner: Owner) -> tuple[Reservation, ...]:
        """What is reserved for an owner."""
        return self._promises.of(owner)

    def promised_gpus(self, pool: str) -> int:
        """GPUs of a pool for replicas that have no pod on a node yet and take the place of none."""
        self._settle()
        return sum(gpus * replicas for gpus, replicas in self._promises.waiting(pool))

    def owners(self) -> set[Owner]:
        """Everybody for whom something is reserved."""
        return set(self._promises.owners())

    def snapshot(self) -> FleetSnapshot:
        """What the fleet was told, each part in order."""
        return FleetSnapshot(
            nodes=tuple(self._groups.nodes()),
            pods=tuple(self._held),
            reservations=tuple(self._promises),
            declared_pools=tuple(self._groups.declared()),
            shard=self.shard,
        )

    def _concerned(self, node: str, key: GroupKey | None) -> set[Owner]:
        """Whose replicas are on a node, or are still to be scheduled in the pool that it was in."""
        there = {pod.owner for pod in self._held.on(node) if pod.owner is not None}
        pool = self._groups.names.get(key) if key is not None else None
        return there if pool is None else there | self._promises.expecting(pool)

    def _follow(self, pod: GpuPod) -> None:
        if pod.node is not None:
            self._groups.recount(pod.node)
            if pod.owner is not None:
                self._promises.touch(pod.owner)

    def _settle(self) -> None:
        """Make the pools anew that events since the last time have changed."""
        stale = self._groups.settle()
        if self._groups.regrouped:
            self._promises.touch_all()
            self._keys = {name: key for key, name in self._groups.names.items()}
        for node in self._groups.moved:
            for pod in self._held.on(node):
                if pod.owner is not None:
                    self._promises.touch(pod.owner)
        self._groups.regrouped, self._groups.moved = False, set()
        stale.update(self._keys_of(self._promises.settle(self._name_of)))
        for key in stale:
            self._opened.pop(key, None)
            if key in self._groups.names:
                self._pools[key] = self._build(key)
            else:
                self._pools.pop(key, None)

    def _shared_pool(self, key: GroupKey, tolerations: Sequence[Toleration]) -> Pool:
        """The pool as everybody with these tolerations has it, made once until it is stale."""
        opened = self._open_to(key, tolerations)
        if not opened:
            return self._pools[key]
        known = self._opened.setdefault(key, {})
        if opened not in known:
            known[opened] = self._build(key, opened)
        return known[opened]

    def _open_to(self, key: GroupKey, tolerations: Sequence[Toleration]) -> frozenset[NodeClass]:
        described = self._groups.described[key]
        return described.open_to(tolerations) if described.tainted else frozenset()

    def _build(
        self,
        key: GroupKey,
        opened: frozenset[NodeClass] = frozenset(),
        excluding: Owner | None = None,
        left_out: Mapping[str, int] | None = None,
    ) -> Pool:
        name, described = self._groups.names[key], self._groups.described[key]
        return build_pool(
            name,
            self.shard,
            self._groups.by_key[key],
            described,
            self._groups.borders[key],
            described.reasons_without(opened),
            Taken(
                self._promises.waiting(name, excluding),
                self._promises.successors(name, excluding),
                left_out or {},
            ),
        )

    def _held_by(self, owner: Owner) -> dict[GroupKey, dict[str, int]]:
        """GPUs that the owner's pods hold, by node, of each group."""
        held: dict[GroupKey, dict[str, int]] = {}
        for pod in self._held.of(owner):
            key = self._groups.key_of(pod.node) if pod.node else None
            if pod.node is None or key is None:
                continue
            resource = self._groups.by_key[key].members[pod.node].kind.resource
            of_group = held.setdefault(key, {})
            of_group[pod.node] = of_group.get(pod.node, 0) + pod.requests.get(resource, 0)
        return held

    def _name_of(self, node: str) -> str | None:
        key = self._groups.key_of(node)
        return self._groups.names[key] if key is not None else None

    def _keys_of(self, names: Iterable[str]) -> Iterable[GroupKey]:
        return (self._keys[name] for name in names if name in self._keys)
