"""Replicas of what runs, while another plan waits for approval: their number needs none."""

from collections.abc import Iterable

from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.reconcile.actions import Scale
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.context import ReconcileContext
from tonnage.reconcile.serving import newest, pool_now


def scale_in_force(context: ReconcileContext) -> Scale | None:
    """What brings the replicas to the number that the user asks for, or the measured load, as far
    as there is capacity for them as they are; None where nothing is to be done, or the workload
    decides the number."""
    observation, accepted = context.observation, context.accepted
    current = newest(observation.deployments)
    asked = accepted.asked_on(current.placement) if current else None
    wanted = asked_beside(asked, current, observation.deployments) if current else None
    if current is None or wanted is None:
        return None
    if wanted > current.wanted:
        pool = pool_now(current, observation.pods, context.own_pools(), context.fleet)
        capacity = context.capacity_in(pool, current.parallelism.gpus)
        wanted = max(current.wanted, min(wanted, capacity))
    if wanted == current.wanted:
        return None
    return Scale(DEPLOYMENTS, observation.key.namespace, current.child, wanted)


def asked_beside(
    asked: int | None, current: ChildDeployment, deployments: Iterable[ChildDeployment]
) -> int | None:
    """The replicas that are asked for less those beside, which go on as they are; each counts one,
    and one at least is kept."""
    if not asked:
        return asked
    beside = sum(one.wanted for one in deployments if one.beside and one is not current)
    return max(1, asked - beside)
