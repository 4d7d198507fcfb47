"""The state of the fleet in memory: nodes, pods with GPUs, declared pools, reservations, and the
objects that wait for GPUs.

Nothing is persisted: the stores deliver nodes, pods and pools, and a new leader rebuilds the
reservations from the child Deployments and the waiting objects from statuses. Only a change that
matters to placement counts as one, so a node's heartbeat requeues nothing.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tonnage.api.parse import InvalidSpecError
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import DeclaredPool, GpuPod, Node, Reservation
from tonnage.fleet.pools.declared import read_declared_pool
from tonnage.fleet.resource_slices import AllocatedClaim, ResourceSlice
from tonnage.kube.protocol import Object
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.priority import Precedence

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _WaitingObject:
    """An object that waits for GPUs, and what it would reserve."""

    precedence: Precedence
    claims: tuple[Reservation, ...]


class FleetState:
    """What placement reads in addition to the object itself. Used from one event loop.

    `on_change` is called when the fleet changed, `on_capacity_freed` when GPUs may have become free
    for waiting objects, `on_loss` for each key that may have lost GPUs with a node.
    """

    def __init__(
        self,
        fleet: Fleet,
        on_change: Callable[[], None] = lambda: None,
        on_capacity_freed: Callable[[], None] = lambda: None,
        on_loss: Callable[[Key], None] = lambda _: None,
    ) -> None:
        self._fleet = fleet
        self._on_change = on_change
        self._on_capacity_freed = on_capacity_freed
        self._on_loss = on_loss
        self._declared: dict[str, DeclaredPool] = {}
        self._device_classes: set[str] = set()
        self._waiting: dict[Key, _WaitingObject] = {}
        self._changes = 0

    @property
    def changes(self) -> int:
        """How often this state has changed. While it has not, planning gives the same plan."""
        return self._changes

    def view(self) -> Fleet:
        """The live fleet: it changes with every event."""
        return self._fleet

    # Changes of the stores

    def change_node(self, name: str, before: Node | None, after: Node | None) -> None:
        """Record that a Node was added, changed or deleted (`after` is None)."""
        if before == after:
            return
        fleet = self._fleet
        self._record_loss(fleet.remove_node(name) if after is None else fleet.put_node(after))

    def change_pod(self, before: GpuPod | None, after: GpuPod | None) -> None:
        """Record the GPUs of a Pod; None is a Pod that has no GPU or is deleted."""
        if before == after:
            return
        if before is not None and (after is None or after.uid != before.uid):
            self._fleet.remove_pod(before.uid)
        if after is not None:
            self._fleet.put_pod(after)
        self._record_change()

    def change_slice(self, before: ResourceSlice | None, after: ResourceSlice | None) -> None:
        """Record a ResourceSlice; None is one of another driver, or deleted."""
        if before == after:
            return
        if after is not None:
            self._record_loss(self._fleet.put_slice(after))
        elif before is not None:
            self._record_loss(self._fleet.remove_slice(before.name))

    def change_claim(self, before: AllocatedClaim | None, after: AllocatedClaim | None) -> None:
        """Record a ResourceClaim; None is one that holds no GPU, or deleted."""
        if before == after:
            return
        if before is not None and (after is None or after.uid != before.uid):
            self._fleet.remove_claim(before.uid)
        if after is not None:
            self._fleet.put_claim(after)
        self._record_change(frees_capacity=before is not None)

    def change_device_class(self, before: str | None, after: str | None) -> None:
        """Record a DeviceClass by its name; None is one that is deleted. Before the first, whether
        they are missing or may not be listed is unknown."""
        if before == after:
            return
        if before is not None:
            self._device_classes.remove(before)
        if after is not None:
            self._device_classes.add(after)
        self._record_loss(self._fleet.set_device_classes(self._device_classes))

    def change_pool(self, name: str, obj: Object | None) -> bool:
        """Record an AcceleratorPool (None: deleted); return whether its declaration changed.

        Deleting a discovered pool is a change of the fleet too: the operator creates it again.
        """
        before = self._declared.pop(name, None)
        after = None if obj is None else _read_declared_pool(obj)
        if after is not None:
            self._declared[name] = after
            if after != before:
                self._fleet.declare(after)
        elif before is not None:
            self._fleet.withdraw(name)
        is_changed = before != after
        if is_changed or obj is None:
            self._record_change(frees_capacity=is_changed)
        return is_changed

    # Reservations and waiting objects

    def reserve(self, key: Key, reservations: Iterable[Reservation]) -> None:
        """Replace the reservations of the object's replicas."""
        before, after = self._fleet.reserved(key), tuple(reservations)
        if after == before:
            return
        self._fleet.reserve(key, after)
        # Reservations that only grow free no GPUs, so requeueing waiting objects would be useless.
        self._record_change(frees_capacity=not set(before) <= set(after))

    def release(self, key: Key) -> None:
        """Remove the reservations of a deleted object, which no longer waits either."""
        self.stop_waiting(key)
        self.reserve(key, ())

    def rebuild_reservations(self, reservations: Iterable[Reservation]) -> None:
        """Replace all reservations by these, rebuilt from the existing objects."""
        by_owner: dict[tuple[str, str], list[Reservation]] = {
            owner: [] for owner in self._fleet.owners()
        }
        for reservation in reservations:
            by_owner.setdefault(reservation.owner, []).append(reservation)
        for owner, of_owner in by_owner.items():
            self._fleet.reserve(owner, of_owner)
        self._record_change()

    def wait_for_capacity(self, precedence: Precedence, claims: Iterable[Reservation] = ()) -> None:
        """Requeue the object when GPUs may have become free; `claims` is what it would reserve."""
        before = self._waiting.get(precedence.key)
        after = _WaitingObject(precedence, tuple(claims))
        self._waiting[precedence.key] = after
        self._changes += after != before
        if before is not None and not set(before.claims) <= set(after.claims):
            self._on_capacity_freed()

    def stop_waiting(self, key: Key) -> None:
        """Record that the key has all its GPUs, or needs none."""
        before = self._waiting.pop(key, None)
        self._changes += before is not None
        if before is not None and before.claims:
            self._on_capacity_freed()

    def waiting_keys(self) -> list[Key]:
        """The keys of the waiting objects, highest precedence first."""
        return [waiting.precedence.key for waiting in _in_order(self._waiting.values())]

    def claims_before(self, precedence: Precedence) -> tuple[Reservation, ...]:
        """What the waiting objects of higher precedence would reserve."""
        before = (
            waiting
            for waiting in self._waiting.values()
            if waiting.claims and waiting.precedence < precedence
        )
        return tuple(claim for waiting in _in_order(before) for claim in waiting.claims)

    def known_keys(self) -> set[Key]:
        """Keys that wait or have a reservation, even of objects whose DELETED event was lost."""
        return {Key(*owner) for owner in self._fleet.owners()} | self._waiting.keys()

    def _record_loss(self, owners: Iterable[tuple[str, str]]) -> None:
        """Record a change by which these objects may have lost GPUs."""
        for owner in sorted(owners):
            self._on_loss(Key(*owner))
        self._record_change()

    def _record_change(self, frees_capacity: bool = True) -> None:
        self._changes += 1
        self._on_change()
        if frees_capacity:
            self._on_capacity_freed()


def _read_declared_pool(obj: Object) -> DeclaredPool | None:
    """Read the pool; None if its spec is invalid, which the pool's status reports to its owner."""
    try:
        return read_declared_pool(obj)
    except InvalidSpecError as error:
        _log.warning("ignoring invalid AcceleratorPool: %s", error)
        return None


def _in_order(waiting: Iterable[_WaitingObject]) -> list[_WaitingObject]:
    return sorted(waiting, key=lambda one: one.precedence)
