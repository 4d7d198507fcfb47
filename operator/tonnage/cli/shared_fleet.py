"""The fleet of a dump, with what is reserved and who waits, as the operator's planner uses it."""

from collections.abc import Iterable

from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Reservation
from tonnage.reconcile.key import Key
from tonnage.reconcile.turn import Precedence
from tonnage.runtime.waiting_line import WaitingLine


class DumpedFleet:
    """A fleet in which no node and no pod changes any more."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._line = WaitingLine()

    def view(self) -> Fleet:
        """The fleet as it is, with all reservations."""
        return self._fleet

    def reserve(self, key: Key, reservations: Iterable[Reservation]) -> None:
        """What this object's replicas hold or will hold, in place of what was said before."""
        self._fleet.reserve((key.namespace, key.name), reservations)

    def prime_reservations(self, reservations: Iterable[Reservation]) -> None:
        """What the Deployments of a dump hold, by owner."""
        ledger: dict[Key, list[Reservation]] = {}
        for reservation in reservations:
            ledger.setdefault(Key(*reservation.owner), []).append(reservation)
        for key, held in ledger.items():
            self.reserve(key, held)

    def wait_for_capacity(self, precedence: Precedence, claims: Iterable[Reservation] = ()) -> None:
        """The object waits, and would take this."""
        self._line.put(precedence, claims)

    def stop_waiting(self, key: Key) -> None:
        """The object has all the GPUs it wants."""
        self._line.drop(key)

    def release(self, key: Key) -> None:
        """The object is gone."""
        self.stop_waiting(key)
        self.reserve(key, ())

    def claims_before(self, precedence: Precedence) -> tuple[Reservation, ...]:
        """What those that wait and go before an object would take."""
        return self._line.claims_before(precedence)
