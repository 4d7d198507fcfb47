"""Scale what runs while another plan waits for approval: the number of replicas needs none."""

from collections.abc import Iterable

from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.reconcile.actions import Scale
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.serving import newest, pool_now
from tonnage.reconcile.scheduling.context import ReconcileContext


def scale_in_force(context: ReconcileContext) -> Scale | None:
    """Scale the replicas to the number that the user or the measured load requests, as far as there
    is capacity for them; None where nothing changes, or the workload decides the number."""
    observation, accepted = context.observation, context.accepted
    current = newest(observation.deployments)
    requested = accepted.asked_on(current.placement) if current else None
    wanted = subtract_secondary(requested, current, observation.deployments) if current else None
    if current is None or wanted is None:
        return None
    if wanted > current.wanted:
        pool = pool_now(current, observation.pods, context.own_pools(), context.fleet)
        capacity = context.capacity_in(pool, current.parallelism.gpus)
        wanted = max(current.wanted, min(wanted, capacity))
    if wanted == current.wanted:
        return None
    return Scale(DEPLOYMENTS, current.child, wanted)


def subtract_secondary(
    requested: int | None, current: ChildDeployment, deployments: Iterable[ChildDeployment]
) -> int | None:
    """The requested replicas less those of secondary Deployments, which go on as they are; each
    counts as one replica, and at least one is kept."""
    if not requested:
        return requested
    secondary = (one for one in deployments if one.secondary and one is not current)
    return max(1, requested - sum(one.wanted for one in secondary))
