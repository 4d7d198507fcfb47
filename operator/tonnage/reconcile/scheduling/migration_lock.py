"""Allow one voluntary migration at a time over the whole fleet.

A migration is any change of pools until all replicas serve from the new one. While one runs, no
object leaves a pool that could go on; the candidates go in their order. No state in here has to
survive a restart: migrations are read off the Deployments, candidates return with the next plans.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from tonnage.fleet.model import Pool, Reservation
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.priority import Precedence
from tonnage.reconcile.scheduling.retain import PlannedMigration


@dataclass(frozen=True, slots=True)
class MigrationCandidate:
    """An object is to leave its pool by choice at `due`; None: not before it has converged.

    `claim` is the capacity that it would take in the new pool now, None while that is unknown or
    where the pool has to grow.
    """

    due: datetime | None
    claim: Reservation | None = None


def candidate_of(
    migration: PlannedMigration | None, owner: tuple[str, str], *, proposed: bool
) -> MigrationCandidate | None:
    """The voluntary migration of the replicas. One that waits for an approval delays no other
    object."""
    if migration is None or proposed:
        return None
    return MigrationCandidate(
        migration.moves_at if migration.converged else None, migration.claim(owner)
    )


class MigrationLock:
    """The objects that migrate and the candidates for migration; for one event loop.

    `wake` gets the key that may migrate next because of a change of another object.
    """

    def __init__(self, wake: Callable[[Key], None] = lambda _: None) -> None:
        self._wake = wake
        self._migrating: set[Key] = set()
        self._candidates: dict[Key, tuple[Precedence, MigrationCandidate]] = {}

    def rebuild_state(
        self,
        migrating: Iterable[Key],
        candidates: Iterable[tuple[Precedence, MigrationCandidate]],
    ) -> None:
        """Take over the objects whose migration is under way, and the candidates; for a new
        leader."""
        self._migrating = set(migrating)
        self._candidates = {
            precedence.key: (precedence, candidate) for precedence, candidate in candidates
        }

    def may_begin(self, precedence: Precedence, now: datetime) -> bool:
        """Whether the object may leave its pool by choice now."""
        first = self._first_due(now)
        return not self._migrating - {precedence.key} and (first is None or not first < precedence)

    def record(
        self,
        precedence: Precedence,
        *,
        migrates: bool,
        candidate: MigrationCandidate | None,
        now: datetime,
    ) -> None:
        """Record the object's state."""
        with self._change_of(precedence.key, now):
            self._forget(precedence.key)
            if migrates:
                self._migrating.add(precedence.key)
            if candidate is not None:
                self._candidates[precedence.key] = (precedence, candidate)

    def forget(self, key: Key, now: datetime) -> None:
        """Drop an object that is gone."""
        with self._change_of(key, now):
            self._forget(key)

    def withdraw(self, key: Key, now: datetime) -> None:
        """Drop the candidate of an object that cannot be observed."""
        with self._change_of(key, now):
            self._candidates.pop(key, None)

    def lapsed(self, pools: Iterable[Pool]) -> list[Key]:
        """The candidates whose target pool has no capacity for all of their replicas any more."""
        by_name = {pool.name: pool for pool in pools}
        return [
            key
            for key, (_, candidate) in sorted(self._candidates.items())
            if (claim := candidate.claim) is not None
            and not _has_capacity(by_name.get(claim.pool), claim)
        ]

    def _forget(self, key: Key) -> None:
        self._migrating.discard(key)
        self._candidates.pop(key, None)

    def _first_due(self, now: datetime) -> Precedence | None:
        """The first candidate that is due by now."""
        due = (
            precedence
            for precedence, candidate in self._candidates.values()
            if candidate.due and candidate.due <= now
        )
        return min(due, default=None)

    def _next_key(self, now: datetime) -> Key | None:
        first = None if self._migrating else self._first_due(now)
        return first.key if first is not None else None

    @contextmanager
    def _change_of(self, key: Key, now: datetime) -> Iterator[None]:
        """Wake the object that is next after the change and was not before."""
        before = self._next_key(now)
        yield
        next_key = self._next_key(now)
        if next_key is not None and next_key not in (before, key):
            self._wake(next_key)


def _has_capacity(pool: Pool | None, claim: Reservation) -> bool:
    return pool is not None and pool.replica_capacity(claim.footprint) >= claim.replicas


def is_under_way(deployments: Collection[ChildDeployment]) -> bool:
    """Whether the replicas have left a pool and not all of them serve from the new one yet."""
    if all(deployment.last_migration is None for deployment in deployments):
        return False
    return sum(not deployment.secondary for deployment in deployments) > 1 or any(
        not deployment.completed and not deployment.serves(deployment.wanted)
        for deployment in deployments
    )
