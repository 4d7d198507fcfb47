"""GPUs assumed for the operator's replicas: what is reserved, less what scheduled replicas hold.

A bound pod counts for its placement when it is in the placement's pool, holds as many GPUs as a pod
of a replica does now, and is not being deleted. One whose GPUs the driver has withdrawn stays, and
counts in whatever pool its node is meanwhile. Any other pod will be replaced, and its successor
needs GPUs: those of the pod it replaces, where it is in the same pool, or others.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tonnage.fit.model import Footprint
from tonnage.fleet.model import Reservation
from tonnage.fleet.occupancy import Successor, Waiting
from tonnage.fleet.usage.gpu_pods import GpuPods, Owner

PoolOf = Callable[[str], str | None]
"""Returns the name of the pool that a node is in."""


@dataclass(frozen=True, slots=True)
class UnscheduledReplicas:
    """An owner's replicas that are still to be scheduled, by pool and footprint.

    Of a replica on several nodes that is scheduled in part, the rest counts as one of fewer nodes.

    `superseded_gpus` are the GPUs that the pods replaced by these replicas hold, by pool and node.
    """

    replicas: Mapping[tuple[str, Footprint], int] = field(default_factory=dict)
    superseded_gpus: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


_NONE_UNSCHEDULED: Final = UnscheduledReplicas()


class Reservations:
    """Reservations, replaced as a whole per owner, and the replicas still to be scheduled.

    An event marks the owners that it concerns as stale, and `refresh` counts their replicas again.
    """

    def __init__(self, gpu_pods: GpuPods) -> None:
        self._gpu_pods = gpu_pods
        self._reserved: dict[Owner, tuple[Reservation, ...]] = {}
        self._gpus_by_pool: dict[str, Counter[Owner]] = {}
        self._unscheduled: dict[Owner, UnscheduledReplicas] = {}
        self._waiting: dict[str, Counter[Footprint]] = {}
        self._replacing: dict[str, set[Owner]] = {}
        self._stale_owners: set[Owner] = set()

    def __iter__(self) -> Iterator[Reservation]:
        return (
            reservation
            for _, reservations in sorted(self._reserved.items())
            for reservation in reservations
        )

    def of(self, owner: Owner) -> tuple[Reservation, ...]:
        """The reservations of an owner."""
        return self._reserved.get(owner, ())

    def owners(self) -> Iterable[Owner]:
        """All owners with a reservation."""
        return self._reserved.keys()

    def replace(self, owner: Owner, reservations: tuple[Reservation, ...]) -> None:
        """Replace all reservations of an owner."""
        for pool, gpus in _gpus_by_pool(self._reserved.pop(owner, ())).items():
            self._gpus_by_pool[pool][owner] -= gpus
            if not self._gpus_by_pool[pool][owner]:
                del self._gpus_by_pool[pool][owner]
        if reservations:
            self._reserved[owner] = reservations
        for pool, gpus in _gpus_by_pool(reservations).items():
            self._gpus_by_pool.setdefault(pool, Counter())[owner] += gpus
        self._stale_owners.add(owner)

    def gpus_in(self, pool: str) -> Mapping[Owner, int]:
        """The GPUs of a pool that each owner reserves, held by pods or not."""
        return self._gpus_by_pool.get(pool, {})

    def mark_stale(self, owner: Owner) -> None:
        """Note that the owner's pods have changed, or the pools that they are in."""
        self._stale_owners.add(owner)

    def mark_all_stale(self) -> None:
        """Note that the pools of any owner's pods may have changed."""
        self._stale_owners.update(self._reserved)

    def refresh(self, pool_of: PoolOf) -> set[str]:
        """Count the replicas of stale owners again; return the pools whose counts changed."""
        changed: set[str] = set()
        for owner in self._stale_owners:
            before = self._unscheduled.pop(owner, _NONE_UNSCHEDULED)
            now = self._count_unscheduled(owner, pool_of)
            if now.replicas:
                self._unscheduled[owner] = now
            if now == before:
                continue
            self._uncount(owner, before)
            self._count(owner, now)
            changed.update(pool for pool, _ in (*before.replicas, *now.replicas))
        self._stale_owners = set()
        for pool in changed:
            self._waiting[pool] = +self._waiting.get(pool, Counter())
            if not self._waiting[pool]:
                del self._waiting[pool]
        return changed

    def pools_of(self, owner: Owner) -> set[str]:
        """The pools in which replicas of the owner are still to be scheduled."""
        return {pool for pool, _ in self._unscheduled.get(owner, _NONE_UNSCHEDULED).replicas}

    def owners_waiting_for(self, pool: str) -> set[Owner]:
        """Owners with replicas still to be scheduled on a pool; of stale owners, all that reserve
        GPUs there."""
        waiting = {
            owner
            for owner, unscheduled in self._unscheduled.items()
            if any(place == pool for place, _ in unscheduled.replicas)
        }
        unknown = (owner for owner in self._stale_owners if owner not in waiting)
        return waiting | {
            owner
            for owner in unknown
            if any(reservation.pool == pool for reservation in self.of(owner))
        }

    def waiting(self, pool: str, excluding: Owner | None = None) -> Waiting:
        """Replicas still to be scheduled on a pool that replace no pod, without those of one
        owner."""
        replicas = dict(self._waiting.get(pool, {}))
        excluded = (
            self._unscheduled.get(excluding, _NONE_UNSCHEDULED) if excluding else _NONE_UNSCHEDULED
        )
        if pool not in excluded.superseded_gpus:
            for footprint, count in _on(pool, excluded):
                replicas[footprint] -= count
        return sorted(((each, left) for each, left in replicas.items() if left), reverse=True)

    def successors(self, pool: str, excluding: Owner | None = None) -> tuple[Successor, ...]:
        """Replicas still to be scheduled on a pool that replace their owners' pods there, without
        those of one owner."""
        return tuple(
            Successor(footprint, count, self._unscheduled[owner].superseded_gpus[pool])
            for owner in sorted(self._replacing.get(pool, ()))
            if owner != excluding
            for footprint, count in _on(pool, self._unscheduled[owner])
        )

    def _count(self, owner: Owner, unscheduled: UnscheduledReplicas) -> None:
        for (pool, footprint), replicas in unscheduled.replicas.items():
            if pool in unscheduled.superseded_gpus:
                self._replacing.setdefault(pool, set()).add(owner)
            else:
                self._waiting.setdefault(pool, Counter())[footprint] += replicas

    def _uncount(self, owner: Owner, unscheduled: UnscheduledReplicas) -> None:
        for (pool, footprint), replicas in unscheduled.replicas.items():
            if pool in unscheduled.superseded_gpus:
                self._replacing[pool].discard(owner)
            else:
                self._waiting[pool][footprint] -= replicas

    def _count_unscheduled(self, owner: Owner, pool_of: PoolOf) -> UnscheduledReplicas:
        missing: Counter[tuple[str, str | None, int]] = Counter()
        nodes: dict[tuple[str, str | None, int], int] = {}
        pods: tuple[str, str | None, int]
        for reservation in self.of(owner):
            footprint = reservation.footprint
            if footprint.gpus > 0:
                pods = reservation.placement, reservation.pool, footprint.gpus_per_node
                missing[pods] += reservation.replicas * footprint.nodes
                nodes[pods] = footprint.nodes
        superseded: dict[str, dict[str, int]] = {}
        for pod in sorted(self._gpu_pods.of(owner), key=lambda pod: pod.uid):
            pool = pool_of(pod.node) if pod.node else None
            pods = (pod.placement or "", pool, pod.gpus)
            if pod.tainted and not pod.requests:
                # Its node offers none of its GPUs now, and may be in no pool for that.
                pods = next((each for each in missing if _is_same_size(each, pods)), pods)
            if not pod.deleting and missing[pods] > 0:
                missing[pods] -= 1
            elif pool is not None and pod.node is not None:
                by_node = superseded.setdefault(pool, {})
                by_node[pod.node] = by_node.get(pod.node, 0) + sum(pod.requests.values())
        left: Counter[tuple[str, Footprint]] = Counter()
        for pods, count in missing.items():
            _, pool, gpus = pods
            if count > 0 and pool is not None:
                whole, rest = divmod(count, nodes[pods])
                left[pool, Footprint(gpus, nodes[pods])] += whole
                left[pool, Footprint(gpus, rest)] += rest > 0
        pools = {pool for pool, _ in left}
        return UnscheduledReplicas(
            +left, {pool: by_node for pool, by_node in superseded.items() if pool in pools}
        )


def _is_same_size(pods: tuple[str, str | None, int], other: tuple[str, str | None, int]) -> bool:
    """Whether pods are of one placement and have as many GPUs each, in whatever pool."""
    return (pods[0], pods[2]) == (other[0], other[2])


def _on(pool: str, unscheduled: UnscheduledReplicas) -> Iterator[tuple[Footprint, int]]:
    """Return footprints and the replicas to be scheduled on a pool, the largest first."""
    return (
        (footprint, replicas)
        for (name, footprint), replicas in sorted(unscheduled.replicas.items(), reverse=True)
        if name == pool
    )


def _gpus_by_pool(reservations: Iterable[Reservation]) -> Counter[str]:
    gpus: Counter[str] = Counter()
    for reservation in reservations:
        gpus[reservation.pool] += reservation.footprint.gpus * reservation.replicas
    return +gpus


def largest_first(reservations: Iterable[Reservation]) -> Waiting:
    """Return the reserved replicas as they are packed."""
    replicas: Counter[Footprint] = Counter()
    for reservation in reservations:
        if reservation.footprint.gpus > 0:
            replicas[reservation.footprint] += reservation.replicas
    return sorted(replicas.items(), reverse=True)
