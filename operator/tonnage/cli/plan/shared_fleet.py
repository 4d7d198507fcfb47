"""The fleet of a dump, with reservations and waiting objects, for the operator's planner."""

from collections.abc import Iterable

from tonnage.controller.waiting_queue import WaitingQueue
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Reservation
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.priority import Precedence


class DumpedFleet:
    """A fleet whose nodes and pods do not change."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._line = WaitingQueue()

    def view(self) -> Fleet:
        """The fleet as it is, with all reservations."""
        return self._fleet

    def reserve(self, key: Key, reservations: Iterable[Reservation]) -> None:
        """Replace the reservations of this object's replicas."""
        self._fleet.reserve((key.namespace, key.name), reservations)

    def rebuild_reservations(self, reservations: Iterable[Reservation]) -> None:
        """Add the reservations of the Deployments of a dump, by owner."""
        by_owner: dict[Key, list[Reservation]] = {}
        for reservation in reservations:
            by_owner.setdefault(Key(*reservation.owner), []).append(reservation)
        for key, owned in by_owner.items():
            self.reserve(key, owned)

    def wait_for_capacity(self, precedence: Precedence, claims: Iterable[Reservation] = ()) -> None:
        """Let the object wait for capacity; `claims` are the GPUs that it would take."""
        self._line.put(precedence, claims)

    def stop_waiting(self, key: Key) -> None:
        """Remove the object, which has all its GPUs, from the waiting line."""
        self._line.drop(key)

    def release(self, key: Key) -> None:
        """Drop the reservations and claims of a deleted object."""
        self.stop_waiting(key)
        self.reserve(key, ())

    def claims_before(self, precedence: Precedence) -> tuple[Reservation, ...]:
        """The claims of waiting objects that go before an object."""
        return self._line.claims_before(precedence)
