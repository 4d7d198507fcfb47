"""One move by choice at a time, over the whole fleet: who moves, and whose turn it is then.

A move is any change of pools until all replicas serve from the new one. While there is one, nobody
leaves a pool that could go on; those that would like to are let go in their order. Nothing in here
has to survive: moves are read off the Deployments, wishes come back with the next plans.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from tonnage.fleet.model import Pool, Reservation
from tonnage.kube.protocol import Object
from tonnage.reconcile.children import ChildDeployment, read_deployment
from tonnage.reconcile.key import Key
from tonnage.reconcile.ledger import owner_name
from tonnage.reconcile.retain import Prospect
from tonnage.reconcile.turn import Precedence


@dataclass(frozen=True, slots=True)
class MigrationCandidate:
    """An object would leave its pool by choice at `due`; None: not before it has converged.

    `claim` is what it would take where it goes, None where that is not known yet.
    """

    due: datetime | None
    claim: Reservation | None = None


def candidate_of(
    prospect: Prospect | None, owner: tuple[str, str], *, proposed: bool
) -> MigrationCandidate | None:
    """The migration that the replicas would make by choice. What waits for a person holds up no
    other object that would move."""
    if prospect is None or proposed:
        return None
    return MigrationCandidate(
        prospect.moves_at if prospect.at_rest else None, prospect.claim(owner)
    )


class Moves:
    """Who moves and who would like to; for one event loop."""

    def __init__(self) -> None:
        self._moving: set[Key] = set()
        self._wishes: dict[Key, tuple[Precedence, MigrationCandidate]] = {}

    def prime(
        self, deployments: Iterable[Object], wishes: Iterable[tuple[Precedence, MigrationCandidate]]
    ) -> None:
        """Who moves now, by the Deployments of all namespaces, and who wished to, for a leader that
        just began."""
        owned: dict[Key, list[ChildDeployment]] = {}
        for body in deployments:
            owner = owner_name(body)
            if owner is not None:
                key = Key(body["metadata"]["namespace"], owner)
                owned.setdefault(key, []).append(read_deployment(body))
        self._moving = {key for key, found in owned.items() if is_under_way(found)}
        self._wishes = {precedence.key: (precedence, wish) for precedence, wish in wishes}

    def may_begin(self, precedence: Precedence, now: datetime) -> bool:
        """Whether the object may leave its pool by choice now."""
        first = self._whose_turn(now)
        return not self._moving - {precedence.key} and (first is None or not first < precedence)

    def tell(
        self, precedence: Precedence, *, moves: bool, wish: MigrationCandidate | None, now: datetime
    ) -> Key | None:
        """What an object is about by now; the other whose turn has come by that."""
        before = self._key_in_turn(now)
        self._forget(precedence.key)
        if moves:
            self._moving.add(precedence.key)
        if wish is not None:
            self._wishes[precedence.key] = (precedence, wish)
        return self._new_turn(precedence.key, before, now)

    def forget(self, key: Key, now: datetime) -> Key | None:
        """The object is gone; whose turn has come by that."""
        before = self._key_in_turn(now)
        self._forget(key)
        return self._new_turn(key, before, now)

    def withdraw(self, key: Key, now: datetime) -> Key | None:
        """The object cannot be looked at: its wish holds up nobody; whose turn has come."""
        before = self._key_in_turn(now)
        self._wishes.pop(key, None)
        return self._new_turn(key, before, now)

    def lapsed(self, pools: Iterable[Pool]) -> list[Key]:
        """Who would like to go to a pool that has no room for all of its replicas any more."""
        by_name = {pool.name: pool for pool in pools}
        return [
            key
            for key, (_, wish) in sorted(self._wishes.items())
            if wish.claim is not None and not _has_room(by_name.get(wish.claim.pool), wish.claim)
        ]

    def _forget(self, key: Key) -> None:
        self._moving.discard(key)
        self._wishes.pop(key, None)

    def _whose_turn(self, now: datetime) -> Precedence | None:
        """The first of those that wish to go by now."""
        due = (found for found, wish in self._wishes.values() if wish.due and wish.due <= now)
        return min(due, default=None)

    def _key_in_turn(self, now: datetime) -> Key | None:
        first = None if self._moving else self._whose_turn(now)
        return first.key if first is not None else None

    def _new_turn(self, key: Key, before: Key | None, now: datetime) -> Key | None:
        turn = self._key_in_turn(now)
        return None if turn in (before, key) else turn


def _has_room(pool: Pool | None, claim: Reservation) -> bool:
    return pool is not None and pool.room_for(claim.gpus_per_replica) >= claim.replicas


def is_under_way(deployments: Collection[ChildDeployment]) -> bool:
    """Whether the replicas have left a pool and do not all serve from the new one yet."""
    if all(found.moved is None for found in deployments):
        return False
    return sum(not found.beside for found in deployments) > 1 or any(
        not found.completed and not found.serves(found.wanted) for found in deployments
    )
