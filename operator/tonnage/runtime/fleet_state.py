"""The fleet as the operator knows it: nodes, pods with GPUs, declared pools, and reservations.

Nothing in it has to survive: the stores tell it of nodes, pods and pools, and the reservations are
read from the child Deployments when this process begins to lead. Only a change that matters to
placement counts as one, so that the heartbeat of a node wakes nothing.
"""

import logging
from collections.abc import Callable, Iterable

from tonnage.api.parse import InvalidSpecError
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.declared import read_declared_pool
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import DeclaredPool, GpuPod, Node, Reservation
from tonnage.kube.protocol import Object
from tonnage.reconcile.key import Key
from tonnage.reconcile.turn import Precedence
from tonnage.runtime.waiting_line import WaitingLine

_log = logging.getLogger(__name__)


class FleetState:
    """Everything that placement reads beside the object itself; for one event loop.

    `on_change` is called when the fleet changed, `on_room` when GPUs may have become free for those
    who wait, `on_loss` for each key that may have lost GPUs with a node.
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
        self._declared: dict[str, DeclaredPool] = {}
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

    # Changes of the stores

    def change_node(self, name: str, before: Node | None, after: Node | None) -> None:
        """A Node came, changed or went (None)."""
        if before == after:
            return
        fleet = self._fleet
        for owner in sorted(fleet.remove_node(name) if after is None else fleet.put_node(after)):
            self._on_loss(Key(*owner))
        self._note_change()

    def change_pod(self, before: GpuPod | None, after: GpuPod | None) -> None:
        """What a Pod holds changed; None is a Pod that holds no GPU, or is gone."""
        if before == after:
            return
        if before is not None and (after is None or after.uid != before.uid):
            self._fleet.remove_pod(before.uid)
        if after is not None:
            self._fleet.put_pod(after)
        self._note_change()

    def change_pool(self, name: str, obj: Object | None) -> bool:
        """An AcceleratorPool is so now, or is gone (None); whether what is declared changed.

        The end of a discovered pool counts as a change of the fleet, too: it is to be made again.
        """
        before = self._declared.pop(name, None)
        after = None if obj is None else _read_pool(obj)
        if after is not None:
            self._declared[name] = after
            if after != before:
                self._fleet.declare(after)
        elif before is not None:
            self._fleet.withdraw(name)
        is_changed = before != after
        if is_changed or obj is None:
            self._note_change(room=is_changed)
        return is_changed

    # Reservations, and who waits

    def reserve(self, key: Key, reservations: Iterable[Reservation]) -> None:
        """What this object's replicas hold or will hold, in place of what was said before."""
        owner = (key.namespace, key.name)
        before, wanted = self._fleet.reserved(owner), tuple(reservations)
        if wanted == before:
            return
        self._fleet.reserve(owner, wanted)
        # What only grows takes room; waking those who wait would be in vain.
        self._note_change(room=not set(before) <= set(wanted))

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
        self._note_change()

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

    def _note_change(self, room: bool = True) -> None:
        self._changes += 1
        self._on_change()
        if room:
            self._on_room()


def _read_pool(obj: Object) -> DeclaredPool | None:
    """A pool whose spec cannot be read counts as not declared; its status tells its owner."""
    try:
        return read_declared_pool(obj)
    except InvalidSpecError as error:
        _log.warning("AcceleratorPool ignored: %s", error)
        return None
