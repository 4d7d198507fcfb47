"""The GPUs that replicas of ours are to get: what was reserved, less the replicas that have theirs.

A bound pod counts for its placement when it is in the placement's pool, holds as many GPUs as a
replica does now, and is not being deleted. Any other will be replaced, and its successor needs a
place: that of the pod it replaces, where it is in the same pool, or one of its own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tonnage.fleet.held import HeldGpus, Owner
from tonnage.fleet.model import Reservation
from tonnage.fleet.occupancy import Successor, Waiting

PoolOf = Callable[[str], str | None]
"""The name of the pool that a node is in."""


@dataclass(frozen=True, slots=True)
class Due:
    """What an owner is still to get: replicas by pool and GPUs of a replica.

    `superseded` are the GPUs that its pods hold whose place these replicas take, by pool and node.
    """

    missing: Mapping[tuple[str, int], int] = field(default_factory=dict)
    superseded: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


_NOTHING: Final = Due()


class Promises:
    """Reservations, each owner's replaced as a whole, and what is missing of them.

    What an event may have changed is marked owner by owner, and worked out by `settle`.
    """

    def __init__(self, held: HeldGpus) -> None:
        self._held = held
        self._reserved: dict[Owner, tuple[Reservation, ...]] = {}
        self._due: dict[Owner, Due] = {}
        self._waiting: dict[str, Counter[int]] = {}
        self._replacing: dict[str, set[Owner]] = {}
        self._touched: set[Owner] = set()

    def __iter__(self) -> Iterator[Reservation]:
        return (found for _, of_owner in sorted(self._reserved.items()) for found in of_owner)

    def of(self, owner: Owner) -> tuple[Reservation, ...]:
        """What is reserved for an owner."""
        return self._reserved.get(owner, ())

    def owners(self) -> Iterable[Owner]:
        """Everybody for whom something is reserved."""
        return self._reserved.keys()

    def replace(self, owner: Owner, reservations: tuple[Reservation, ...]) -> None:
        """Reserve this in place of what was said before."""
        self._reserved.pop(owner, None)
        if reservations:
            self._reserved[owner] = reservations
        self._touched.add(owner)

    def touch(self, owner: Owner) -> None:
        """The owner's pods have changed, or the pools that they are in."""
        self._touched.add(owner)

    def touch_all(self) -> None:
        """The pools that pods are in may have changed for everybody."""
        self._touched.update(self._reserved)

    def settle(self, pool_of: PoolOf) -> set[str]:
        """Work out what is missing now; the pools for which that is more or less than before."""
        changed: set[str] = set()
        for owner in self._touched:
            before = self._due.pop(owner, _NOTHING)
            now = self._count_due(owner, pool_of)
            if now.missing:
                self._due[owner] = now
            if now == before:
                continue
            self._uncount(owner, before)
            self._count(owner, now)
            changed.update(pool for pool, _ in (*before.missing, *now.missing))
        self._touched = set()
        for pool in changed:
            self._waiting[pool] = +self._waiting.get(pool, Counter())
            if not self._waiting[pool]:
                del self._waiting[pool]
        return changed

    def pools_of(self, owner: Owner) -> set[str]:
        """The pools in which replicas of the owner are still to be scheduled."""
        return {pool for pool, _ in self._due.get(owner, _NOTHING).missing}

    def expecting(self, pool: str) -> set[Owner]:
        """Owners with replicas still to be scheduled on a pool; of whom that is not worked out yet,
        all that reserve anything there."""
        due = {owner for owner in self._due if pool in self.pools_of(owner)}
        open_ = (owner for owner in self._touched if owner not in due)
        return due | {owner for owner in open_ if any(one.pool == pool for one in self.of(owner))}

    def waiting(self, pool: str, excluding: Owner | None = None) -> Waiting:
        """Replicas still to be scheduled on a pool that take nobody's place, without those of one
        owner."""
        replicas = dict(self._waiting.get(pool, {}))
        theirs = self._due.get(excluding, _NOTHING) if excluding else _NOTHING
        if pool not in theirs.superseded:
            for gpus, missing in _on(pool, theirs):
                replicas[gpus] -= missing
        return sorted(((gpus, left) for gpus, left in replicas.items() if left), reverse=True)

    def successors(self, pool: str, excluding: Owner | None = None) -> tuple[Successor, ...]:
        """Replicas still to be scheduled on a pool that take the place of their owners' pods there,
        without those of one owner."""
        return tuple(
            Successor(gpus, missing, self._due[owner].superseded[pool])
            for owner in sorted(self._replacing.get(pool, ()))
            if owner != excluding
            for gpus, missing in _on(pool, self._due[owner])
        )

    def _count(self, owner: Owner, due: Due) -> None:
        for (pool, gpus), replicas in due.missing.items():
            if pool in due.superseded:
                self._replacing.setdefault(pool, set()).add(owner)
            else:
                self._waiting.setdefault(pool, Counter())[gpus] += replicas

    def _uncount(self, owner: Owner, due: Due) -> None:
        for (pool, gpus), replicas in due.missing.items():
            if pool in due.superseded:
                self._replacing[pool].discard(owner)
            else:
                self._waiting[pool][gpus] -= replicas

    def _count_due(self, owner: Owner, pool_of: PoolOf) -> Due:
        missing: Counter[tuple[str, str | None, int]] = Counter()
        for found in self.of(owner):
            if found.gpus_per_replica > 0:
                missing[found.placement, found.pool, found.gpus_per_replica] += found.replicas
        superseded: dict[str, dict[str, int]] = {}
        for pod in sorted(self._held.of(owner), key=lambda pod: pod.uid):
            pool = pool_of(pod.node) if pod.node else None
            gpus = sum(pod.requests.values())
            replica = (pod.placement or "", pool, gpus)
            if not pod.deleting and missing[replica] > 0:
                missing[replica] -= 1
            elif pool is not None and pod.node is not None:
                of_pool = superseded.setdefault(pool, {})
                of_pool[pod.node] = of_pool.get(pod.node, 0) + gpus
        left: Counter[tuple[str, int]] = Counter()
        for (_, pool, gpus), replicas in missing.items():
            if replicas > 0 and pool is not None:
                left[pool, gpus] += replicas
        pools = {pool for pool, _ in left}
        return Due(left, {pool: nodes for pool, nodes in superseded.items() if pool in pools})


def _on(pool: str, due: Due) -> Iterator[tuple[int, int]]:
    """GPUs of a replica and replicas that are due on a pool, the largest first."""
    return (
        (gpus, missing)
        for (name, gpus), missing in sorted(due.missing.items(), reverse=True)
        if name == pool
    )


def largest_first(reservations: Iterable[Reservation]) -> Waiting:
    """All of what is reserved, to be packed."""
    replicas: Counter[int] = Counter()
    for found in reservations:
        if found.gpus_per_replica > 0:
            replicas[found.gpus_per_replica] += found.replicas
    return sorted(replicas.items(), reverse=True)
