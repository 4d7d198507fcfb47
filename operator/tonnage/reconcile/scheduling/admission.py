"""Admission: which object goes first, and what the others may take.

Free capacity goes to the object with the higher priority, among equals to the oldest. Events come
in any order, and no object waits for another: an object that waits for GPUs claims, on each pool
that could run it, what it would take there. Later objects see the capacity less these claims. They
may take at once what the earlier ones cannot use (a block too small for them).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.status import CandidateStatus, InferenceDeploymentStatus, PlacementStatus
from tonnage.fit.model import Footprint
from tonnage.fleet.model import Pool, Reservation
from tonnage.fleet.pool_nodes import PoolNode, PoolNodes
from tonnage.fleet.usage.reservations import largest_first
from tonnage.placement.reasons import RejectedReason

LACKS_CAPACITY: Final = frozenset(
    {RejectedReason.INSUFFICIENT_GPUS, RejectedReason.NO_USABLE_NODES}
)
"""Reasons that free GPUs remove: the pool could run the replicas otherwise."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What the other objects leave to this one.

    `claims` is what earlier objects would take of the free capacity; `may_migrate`: the object may
    leave its pool by choice now, which one object does at a time.
    """

    claims: tuple[Reservation, ...] = ()
    may_migrate: bool = True


UNCONTESTED: Final = Admission()
"""No other object waits or moves."""


def read_claims(
    owner: tuple[str, str], status: InferenceDeploymentStatus
) -> tuple[Reservation, ...]:
    """What an object would take if there were capacity, by its status, which is all that a new
    leader knows. A plan knows it without the status (`outcome.find_claims`)."""
    if not _waits_for_gpus(status):
        return ()
    chosen = next((one for one in status.candidates if one.verdict == "Chosen"), None)
    if chosen is not None:
        return tuple(_claim_rest(owner, chosen, status))
    return tuple(
        Reservation(owner, "", candidate.pool, footprint, candidate.replicas)
        for candidate in status.candidates
        if candidate.reason in LACKS_CAPACITY
        and (footprint := _footprint(candidate)) is not None
        and candidate.replicas
    )


def _footprint(reported: CandidateStatus | PlacementStatus) -> Footprint | None:
    """The footprint of a replica; None where status has none."""
    gpus, nodes = reported.gpus_per_replica, reported.nodes_per_replica or 1
    return Footprint(gpus // nodes, nodes) if gpus else None


def set_aside(
    own: Sequence[Pool], shared: Iterable[Pool], claims: Iterable[Reservation]
) -> tuple[Pool, ...]:
    """The pools as an object may use them: without the capacity that claims could take.

    `own` are the pools as if the object had nothing, `shared` those that every object sees: claims
    never take away what the object has already.
    """
    claimed: dict[str, list[Reservation]] = {}
    for claim in claims:
        claimed.setdefault(claim.pool, []).append(claim)
    shared_pools = {pool.name: pool for pool in shared if pool.name in claimed}
    return tuple(
        _subtract_claims(pool, shared_pools[pool.name], claimed[pool.name])
        if pool.name in shared_pools
        else pool
        for pool in own
    )


def _waits_for_gpus(status: InferenceDeploymentStatus) -> bool:
    return any(
        condition.type == ConditionType.PLACED
        and condition.status == "False"
        and condition.reason == Reason.INSUFFICIENT_GPUS
        for condition in status.conditions
    )


def _claim_rest(
    owner: tuple[str, str], chosen: CandidateStatus, status: InferenceDeploymentStatus
) -> Iterable[Reservation]:
    """The replicas that its pool has no capacity for yet; none while it waits to leave its pool."""
    placed = next((one for one in status.placements if one.pool == chosen.pool), None)
    if placed is not None and chosen.replicas is not None:
        secondary = (one for one in status.placements if one is not placed and one.weight)
        elsewhere = sum(placement.replicas for placement in secondary)
        wanted = status.desired_replicas if elsewhere else chosen.replicas
        missing = wanted - elsewhere - placed.replicas
        footprint = _footprint(placed)
        if missing > 0 and footprint is not None:
            yield Reservation(owner, placed.name, placed.pool, footprint, missing)


def _subtract_claims(pool: Pool, shared: Pool, claims: Sequence[Reservation]) -> Pool:
    if not shared.free and not shared.growth:
        return pool
    sorted_claims = largest_first(claims)
    if pool is shared:
        return replace(pool, nodes=pool.nodes.less(sorted_claims))
    packing = shared.nodes.pack(sorted_claims)
    taken = {
        node.name: node.free - packing.left[node.name]
        for node in shared.nodes
        if node.name in packing.left
    }
    to_come = pool.nodes.counts.less_to_come(packing.unplaced).to_come
    nodes = (_subtract_gpus(node, taken.get(node.name, 0)) for node in pool.nodes)
    left = PoolNodes.of(nodes, to_come, has_domains=pool.nodes.has_domains)
    return replace(pool, nodes=left)


def _subtract_gpus(node: PoolNode, taken: int) -> PoolNode:
    return replace(node, free=max(0, node.free - taken)) if taken else node
