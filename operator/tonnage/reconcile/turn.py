"""Who goes first, and what the others leave.

When room appears, the object with the higher priority goes first, among equals the oldest. Events
come in any order, so nobody waits for anybody: an object that waits for GPUs claims, on each pool
that could run it, what it would take there. Whoever comes after it sees the room less these claims.
What its elders cannot use (a block too small for them) it may take at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.status import CandidateStatus, InferenceDeploymentStatus
from tonnage.fleet.model import Pool, Reservation
from tonnage.fleet.occupancy import pack_nodes
from tonnage.fleet.pool_nodes import PoolNode, PoolNodes
from tonnage.fleet.promised import largest_first
from tonnage.placement.reasons import RejectedReason
from tonnage.reconcile.key import Key

LACKS_CAPACITY: Final = frozenset(
    {RejectedReason.INSUFFICIENT_GPUS, RejectedReason.NO_USABLE_NODES}
)
"""Why a pool that could run the replicas does not: GPUs that become free mend it."""


@dataclass(frozen=True, slots=True)
class Precedence:
    """An object's place among those that wait: sorted, the first comes first.

    `priority` is the value of its PriorityClass, `created` its creationTimestamp.
    """

    priority: int
    created: datetime
    key: Key

    def __lt__(self, other: "Precedence") -> bool:
        """Whether it goes before the other."""
        return self._order() < other._order()

    def _order(self) -> tuple[int, datetime, Key]:
        return (-self.priority, self.created, self.key)


@dataclass(frozen=True, slots=True)
class Admission:
    """What the other objects leave to this one.

    `claims` is what those that go before it would take of the room there is; `may_move` whether it
    may now leave its pool by choice, which one object does at a time.
    """

    claims: tuple[Reservation, ...] = ()
    may_move: bool = True


UNCONTESTED: Final = Admission()
"""No other object waits or moves."""


def read_claims(
    owner: tuple[str, str], status: InferenceDeploymentStatus
) -> tuple[Reservation, ...]:
    """What an object would take if there were capacity, by its status: all that a leader knows
    which has just begun. A plan knows it without the status (`outcome.find_claims`)."""
    if not _waits_for_gpus(status):
        return ()
    chosen = next((found for found in status.candidates if found.verdict == "Chosen"), None)
    if chosen is not None:
        return tuple(_claim_rest(owner, chosen, status))
    return tuple(
        Reservation(owner, "", found.pool, found.gpus_per_replica, found.replicas)
        for found in status.candidates
        if found.reason in LACKS_CAPACITY and found.gpus_per_replica and found.replicas
    )


def set_aside(
    own: Sequence[Pool], shared: Iterable[Pool], claims: Iterable[Reservation]
) -> tuple[Pool, ...]:
    """The pools as an object may use them: without the room that claims could take.

    `own` are the pools as if the object had nothing, `shared` those that all see: what it has
    already is never claimed away from it.
    """
    claimed: dict[str, list[Reservation]] = {}
    for claim in claims:
        claimed.setdefault(claim.pool, []).append(claim)
    seen = {pool.name: pool for pool in shared if pool.name in claimed}
    return tuple(
        _without(pool, seen[pool.name], claimed[pool.name]) if pool.name in seen else pool
        for pool in own
    )


def _waits_for_gpus(status: InferenceDeploymentStatus) -> bool:
    return any(
        found.type == ConditionType.PLACED
        and found.status == "False"
        and found.reason == Reason.INSUFFICIENT_GPUS
        for found in status.conditions
    )


def _claim_rest(
    owner: tuple[str, str], chosen: CandidateStatus, status: InferenceDeploymentStatus
) -> Iterable[Reservation]:
    """The replicas that its pool has no room for yet; none while it waits to leave its pool."""
    placed = next((found for found in status.placements if found.pool == chosen.pool), None)
    if placed is not None and chosen.replicas is not None:
        beside = (found for found in status.placements if found is not placed and found.weight)
        elsewhere = sum(found.replicas for found in beside)
        wanted = status.desired_replicas if elsewhere else chosen.replicas
        missing = wanted - elsewhere - placed.replicas
        if missing > 0:
            yield Reservation(owner, placed.name, placed.pool, placed.gpus_per_replica, missing)


def _without(pool: Pool, shared: Pool, claims: Sequence[Reservation]) -> Pool:
    if not shared.free and not shared.growth:
        return pool
    waiting = largest_first(claims)
    if pool is shared:
        return replace(pool, nodes=pool.nodes.less(waiting))
    free = {node.name: node.free for node in shared.nodes}
    packed = pack_nodes(free, waiting)
    taken = {name: count - packed.left[name] for name, count in free.items()}
    to_come = pool.nodes.counts.less_to_come(packed.unplaced).to_come
    nodes = (_less(node, taken.get(node.name, 0)) for node in pool.nodes)
    return replace(pool, nodes=PoolNodes.of(nodes, to_come))


def _less(node: PoolNode, taken: int) -> PoolNode:
    return replace(node, free=max(0, node.free - taken)) if taken else node
