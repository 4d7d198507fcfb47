"""The fleet as the operator knows it: nodes, pods with GPUs, declared pools, and the ledger.

The one cache of the operator. Nothing in it has to survive: nodes, pods and pools are told by the
watch and corrected by lists, the ledger of reservations is read from the child Deployments when
this process begins to lead. Each method that takes in a change tells whether it matters to
placement, so that heartbeats wake nobody.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from tonnage.api.parse import InvalidSpecError
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.declared import read_declared_pool
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import DeclaredPool, GpuPod, Node, Reservation
from tonnage.fleet.node import read_node
from tonnage.fleet.pod import has_finished, read_gpu_pod
from tonnage.kube.kinds import ACCELERATOR_POOLS, NODES, PODS
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.key import Key
from tonnage.reconcile.turn import Precedence
from tonnage.runtime.seen_objects import ANY_VERSION, SeenObjects
from tonnage.runtime.waiting_line import WaitingLine

_log = logging.getLogger(__name__)

T = TypeVar("T")


class FleetState:
    """Keeps the latest of everything that placement looks at; for one event loop.

    `on_change` is called when anything of the fleet changed, `on_room` when GPUs may have become
    free for those who wait, `on_loss` for each key that may have lost GPUs with a node.
    """

    def __init__(
        self,
        catalog: Catalog,
        on_change: Callable[[], None],
        on_room: Callable[[], None],
        on_loss: Callable[[Key], None],
        shard: Shard = UNNAMED_SHARD,
    ) -> None:
        self._fleet = Fleet(catalog, shard)
        self._on_change = on_change
        self._on_room = on_room
        self._on_loss = on_loss
        self._nodes: SeenObjects[Node] = SeenObjects(
            lambda _, node: self._tell_loss(self._fleet.put_node(node)),
            lambda name: self._tell_loss(self._fleet.remove_node(name)),
        )
        self._pods: SeenObjects[GpuPod] = SeenObjects(
            lambda _, pod: self._fleet.put_pod(pod), self._fleet.remove_pod
        )
        self._pools: SeenObjects[DeclaredPool] = SeenObjects(
            lambda _, pool: self._fleet.declare(pool), self._fleet.withdraw
        )
        self._seen: Mapping[Kind, SeenObjects[Any]] = {
            NODES: self._nodes,
            PODS: self._pods,
            ACCELERATOR_POOLS: self._pools,
        }
        self._line = WaitingLine()
        self._changes = 0

    @property
    def changes(self) -> int:
        """How often any of this has changed so far: where it has not, a plan that was made before
        would be made again."""
        return self._changes + self._line.changes

    def view(self) -> Fleet:
        """The fleet as it is known now; it goes on changing with every event."""
        return self._fleet

    def counts(self) -> dict[Kind, Callable[[], int]]:
        """How many objects of each kind are remembered, to be asked at any time."""
        return {kind: seen.__len__ for kind, seen in self._seen.items()}

    # Nodes

    def observe_node(self, obj: Object) -> None:
        """A Node is so now."""
        name, uid, version = _by_name(obj)
        self._learn(self._nodes.observe(name, uid, read_node(obj), version))

    def forget_node(self, obj: Object) -> None:
        """The Node is gone; one of the same name and another uid is not."""
        name, uid, _ = _by_name(obj)
        self._learn(self._nodes.forget(name, uid))

    # Pods: known by uid, since only their number and place count.

    def observe_pod(self, obj: Object) -> None:
        """A Pod is so now."""
        identity, uid, version = _by_uid(obj)
        self._learn(self._pods.observe(identity, uid, read_gpu_pod(obj), version))

    def forget_pod(self, obj: Object) -> None:
        """The Pod is gone, or has finished: then lists go on to show it, and no event tells what
        else becomes of it."""
        identity, uid, _ = _by_uid(obj)
        self._learn(self._pods.observe(identity, uid, None, ANY_VERSION))

    # Declared pools

    def observe_pool(self, obj: Object) -> bool:
        """An AcceleratorPool is so now; whether what is declared changed."""
        name, uid, _ = _by_name(obj)
        pool = _read_pool(obj)
        if pool is None:
            changed = self._pools.forget(name, uid)
        else:
            changed = self._pools.observe(name, uid, pool)
        self._learn(changed)
        return changed

    def forget_pool(self, obj: Object) -> bool:
        """The AcceleratorPool is gone; whether what is declared changed.

        One of the same name and another uid is not. The end of a discovered one is told too: where
        somebody deleted it, it is to be made again.
        """
        name, uid, _ = _by_name(obj)
        changed = self._pools.forget(name, uid)
        self._learn(changed=True, room=changed)
        return changed

    # Lists

    def begin_list(self, kind: Kind) -> "FleetList[Any]":
        """To be called before Nodes, Pods or AcceleratorPools are asked for."""
        return FleetList(self._seen[kind], kind, self._learn)

    def knows_versions(self, kind: Kind) -> bool:
        """Whether of any object of a kind it is known which version was told of."""
        return self._seen[kind].knows_versions

    # Silent watches

    def begin_anew(self, kind: Kind) -> None:
        """The watch of a kind was begun anew."""
        self._seen[kind].begin_anew()

    def take_unannounced(self) -> dict[Kind, int]:
        """Changes that lists found and that no event has told since, each told once."""
        return {kind: seen.take_unannounced() for kind, seen in self._seen.items()}

    # The ledger, and who waits

    def reserve(self, key: Key, reservations: Iterable[Reservation]) -> None:
        """What this object's replicas hold or will hold, in place of what was said before."""
        owner = (key.namespace, key.name)
        before, wanted = self._fleet.reserved(owner), tuple(reservations)
        if wanted == before:
            return
        self._fleet.reserve(owner, wanted)
        # What only grows takes room; waking those who wait would be in vain.
        self._learn(changed=True, room=not set(before) <= set(wanted))

    def release(self, key: Key) -> None:
        """The object is gone: nothing is reserved for it, and it waits for nothing."""
        self.stop_waiting(key)
        self.reserve(key, ())

    def prime_reservations(self, reservations: Iterable[Reservation]) -> None:
        """The whole ledger, read from what exists; replaces what was there."""
        ledger: dict[tuple[str, str], list[Reservation]] = {
            owner: [] for owner in self._fleet.owners()
        }
        for reservation in reservations:
            ledger.setdefault(reservation.owner, []).append(reservation)
        for owner, of_owner in ledger.items():
            self._fleet.reserve(owner, of_owner)
        self._learn(changed=True)

    def wait_for_capacity(self, precedence: Precedence, claims: Iterable[Reservation] = ()) -> None:
        """The object wants work when GPUs may have become free; `claims` is what it would take."""
        if self._line.put(precedence, claims):
            self._on_room()

    def stop_waiting(self, key: Key) -> None:
        """The key has all the GPUs it wants, or nothing to want them for."""
        if self._line.drop(key):
            self._on_room()

    def waiting_keys(self) -> list[Key]:
        """Who waits; whoever goes first before all others."""
        return self._line.keys()

    def claims_before(self, precedence: Precedence) -> tuple[Reservation, ...]:
        """What those that wait and go before an object would take."""
        return self._line.claims_before(precedence)

    def known_keys(self) -> set[Key]:
        """Keys with a reservation or a wish, also of objects whose deletion nobody told."""
        return {Key(*owner) for owner in self._fleet.owners()} | set(self._line.keys())

    def _tell_loss(self, owners: Iterable[tuple[str, str]]) -> None:
        for owner in sorted(owners):
            self._on_loss(Key(*owner))

    def _learn(self, changed: bool, room: bool = True) -> None:
        if not changed:
            return
        self._changes += 1
        self._on_change()
        if room:
            self._on_room()


class FleetList(Generic[T]):
    """All objects of a kind, each read as it comes: of the object itself nothing is kept."""

    def __init__(self, seen: SeenObjects[T], kind: Kind, learn: Callable[[bool], None]) -> None:
        self._seen = seen
        self._read: _Reader[T] = _READERS[kind]
        self._identify = _IDENTITIES[kind]
        self._learn = learn
        self._since = seen.mark()
        self._found: list[tuple[str, str, T]] = []
        self._versions: dict[str, tuple[str, str]] = {}

    def confirm(self, obj: Object) -> bool:
        """The list shows that there is this one, of which the metadata is enough; whether it is
        known in that version."""
        identity, uid, version = self._identify(obj)
        known = None if version is None else self._seen.known(identity, uid, version)
        if known is None:
            return False
        self._versions[identity] = known
        return True

    def is_told(self, obj: Object) -> bool:
        """Whether an event has told of it since the list was begun: that is newer."""
        identity, _, _ = self._identify(obj)
        return self._seen.was_told(identity, self._since)

    def take(self, obj: Object) -> None:
        """The list shows this one."""
        identity, uid, version = self._identify(obj)
        if version is not None:
            self._versions[identity] = uid, version
        if (found := self._read(obj)) is not None:
            self._found.append((identity, uid, found))

    def end(self) -> None:
        """There are no others: what is known otherwise, and no event told since, is gone."""
        self._learn(self._seen.replace(self._found, self._since, self._versions))


_Reader = Callable[[Object], T | None]
"""To what is needed of an object; None where nothing is."""


def _by_name(obj: Mapping[str, Any]) -> tuple[str, str, str | None]:
    """Its name, its uid and its version, which an object of a file has not."""
    metadata = obj["metadata"]
    return metadata["name"], metadata["uid"], metadata.get("resourceVersion") or None


def _by_uid(pod: Object) -> tuple[str, str, str | None]:
    _, uid, version = _by_name(pod)
    return uid, uid, ANY_VERSION if has_finished(pod) else version


def _read_pool(obj: Object) -> DeclaredPool | None:
    """A pool whose spec cannot be read counts as not declared; its status tells its owner."""
    try:
        return read_declared_pool(obj)
    except InvalidSpecError as error:
        _log.warning("AcceleratorPool ignored: %s", error)
        return None


_READERS: Final[Mapping[Kind, _Reader[Any]]] = {
    NODES: read_node,
    PODS: read_gpu_pod,
    ACCELERATOR_POOLS: _read_pool,
}

_IDENTITIES: Final[Mapping[Kind, Callable[[Object], tuple[str, str, str | None]]]] = {
    NODES: _by_name,
    PODS: _by_uid,
    ACCELERATOR_POOLS: _by_name,
}
"""By what objects of a kind are known, their uids and their versions."""
