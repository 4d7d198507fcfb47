"""Those that wait for GPUs, in their order, each with what it would take."""

from collections.abc import Iterable
from dataclasses import dataclass

from tonnage.fleet.model import Reservation
from tonnage.reconcile.key import Key
from tonnage.reconcile.turn import Precedence


@dataclass(frozen=True, slots=True)
class _Waiting:
    precedence: Precedence
    claims: tuple[Reservation, ...]


class WaitingLine:
    """Kept for one event loop; filled from statuses when this process begins to lead."""

    def __init__(self) -> None:
        self._waiting: dict[Key, _Waiting] = {}
        self._changes = 0

    @property
    def changes(self) -> int:
        """How often it has become another line so far."""
        return self._changes

    def put(self, precedence: Precedence, claims: Iterable[Reservation]) -> bool:
        """The object waits, and would take this; whether it claims any less than before."""
        before = self._waiting.get(precedence.key)
        found = _Waiting(precedence, tuple(claims))
        self._waiting[precedence.key] = found
        self._changes += found != before
        return before is not None and not set(before.claims) <= set(found.claims)

    def drop(self, key: Key) -> bool:
        """The object does not wait; whether it had claimed anything."""
        before = self._waiting.pop(key, None)
        self._changes += before is not None
        return before is not None and bool(before.claims)

    def keys(self) -> list[Key]:
        """Who waits; whoever goes first before all others."""
        return [found.precedence.key for found in self._in_order()]

    def claims_before(self, precedence: Precedence) -> tuple[Reservation, ...]:
        """What those that go before an object would take."""
        return tuple(
            claim
            for found in self._in_order()
            if found.precedence < precedence
            for claim in found.claims
        )

    def _in_order(self) -> list[_Waiting]:
        return sorted(self._waiting.values(), key=lambda found: found.precedence)
