"""The objects that wait for GPUs, by precedence, each with what it would reserve."""

from collections.abc import Iterable
from dataclasses import dataclass

from tonnage.fleet.model import Reservation
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.priority import Precedence


@dataclass(frozen=True, slots=True)
class _WaitingObject:
    precedence: Precedence
    claims: tuple[Reservation, ...]


class WaitingQueue:
    """The waiting objects. Used from one event loop; a new leader fills it from statuses."""

    def __init__(self) -> None:
        self._waiting: dict[Key, _WaitingObject] = {}
        self._changes = 0

    @property
    def changes(self) -> int:
        """How often the line has changed."""
        return self._changes

    def put(self, precedence: Precedence, claims: Iterable[Reservation]) -> bool:
        """Add the object with what it would reserve; return whether it dropped an earlier claim."""
        before = self._waiting.get(precedence.key)
        waiting = _WaitingObject(precedence, tuple(claims))
        self._waiting[precedence.key] = waiting
        self._changes += waiting != before
        return before is not None and not set(before.claims) <= set(waiting.claims)

    def drop(self, key: Key) -> bool:
        """Remove the object; return whether it had claims."""
        before = self._waiting.pop(key, None)
        self._changes += before is not None
        return before is not None and bool(before.claims)

    def keys(self) -> list[Key]:
        """The keys of the waiting objects, highest precedence first."""
        return [waiting.precedence.key for waiting in _in_order(self._waiting.values())]

    def claims_before(self, precedence: Precedence) -> tuple[Reservation, ...]:
        """What the objects of higher precedence would reserve."""
        before = (
            waiting
            for waiting in self._waiting.values()
            if waiting.claims and waiting.precedence < precedence
        )
        return tuple(claim for waiting in _in_order(before) for claim in waiting.claims)


def _in_order(waiting: Iterable[_WaitingObject]) -> list[_WaitingObject]:
    return sorted(waiting, key=lambda one: one.precedence)
