"""Which GPUs are taken: by pods that exist, and by replicas that are wanted and not yet scheduled.

Algorithm. A node's free GPUs are its allocatable ones less the requests of all pods bound to it.
Replicas of ours that are wanted but not yet bound are GPUs spoken for: they are packed onto the
nodes of their pool, the largest first, each onto the node where the fewest GPUs stay free (best
fit decreasing, ties by name). A replica that finds no node takes nothing: it waits for a block
that nobody can be promised before it is there.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tonnage.fleet.model import GpuPod, Reservation

Owner = tuple[str, str]


def used_gpus(pods: Iterable[GpuPod]) -> Mapping[tuple[str, str], int]:
    """GPUs held on each (node, resource) by the pods bound to it."""
    used: Counter[tuple[str, str]] = Counter()
    for pod in pods:
        if pod.node is not None:
            for resource, count in pod.requests.items():
                used[pod.node, resource] += count
    return used


def outstanding(
    reservations: Iterable[Reservation], pods: Iterable[GpuPod], pool_of: Mapping[str, str]
) -> dict[str, list[Reservation]]:
    """What is still to be scheduled, by pool, largest replicas first; `pool_of` is by node.

    A bound pod counts for its placement when it is in the placement's pool and holds as many GPUs
    as a replica does now: one of an older split, or left behind in another pool of the same cards,
    will be replaced, and its successor needs a place.
    """
    bound = Counter(
        (pod.owner, pod.placement, pool_of.get(pod.node), sum(pod.requests.values()))
        for pod in pods
        if pod.owner is not None and pod.node is not None
    )
    waiting: dict[str, list[Reservation]] = {}
    for reservation in sorted(reservations, key=_largest_first):
        replica = (
            reservation.owner,
            reservation.placement,
            reservation.pool,
            reservation.gpus_per_replica,
        )
        missing = reservation.replicas - bound[replica]
        if missing > 0 and reservation.gpus_per_replica > 0:
            waiting.setdefault(reservation.pool, []).append(replace(reservation, replicas=missing))
    return waiting


def after_reservations(
    free: Mapping[str, int], reservations: Iterable[Reservation]
) -> dict[str, int]:
    """Free GPUs by node once the reservations of this pool are packed onto its nodes."""
    left = dict(free)
    blocks: dict[int, list[str]] = {}
    for name, count in sorted(left.items()):
        blocks.setdefault(count, []).append(name)  # sorted, so each list is a heap already
    for reservation in reservations:
        for _ in range(reservation.replicas):
            if not _take(blocks, left, reservation.gpus_per_replica):
                break
    return left


def _take(blocks: dict[int, list[str]], left: dict[str, int], gpus: int) -> bool:
    """Take `gpus` from the node with the smallest sufficient block; False when there is none."""
    best = min((size for size, names in blocks.items() if size >= gpus and names), default=None)
    if best is None:
        return False
    name = heapq.heappop(blocks[best])
    left[name] = best - gpus
    heapq.heappush(blocks.setdefault(best - gpus, []), name)
    return True


def _largest_first(reservation: Reservation) -> tuple[int, Owner, str, str]:
    return (
        -reservation.gpus_per_replica,
        reservation.owner,
        reservation.placement,
        reservation.pool,
    )
