"""Follow the number of replicas while nothing else of the spec can be carried out.

The number is followed whatever else is in doubt: the plan waits for approval or for a pool out of
sight, the rollout is paused, or the spec is not accepted. Fewer replicas, and none, always work.
More of them need an accepted spec and capacity.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tonnage.api.names import LABEL_PLACEMENT
from tonnage.fleet.model import Reservation
from tonnage.reconcile.actions import Scale
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.serving import newest, pool_now
from tonnage.reconcile.scheduling.context import ReconcileContext

CapacityOf = Callable[[ChildDeployment], int]
"""The replicas of a Deployment that its pool takes, including those that run there."""


def scales_in_force(context: ReconcileContext, *, may_grow: bool = True) -> tuple[Scale, ...]:
    """Scale the Deployments of an accepted spec to the number that the user or the measured load
    requests, as far as there is capacity and they `may_grow`; none where the workload decides the
    number."""
    observation, accepted = context.observation, context.accepted

    def capacity_of(deployment: ChildDeployment) -> int:
        if not may_grow:
            return 0
        pool = pool_now(deployment, observation.pods, context.own_pools(), context.fleet)
        return context.capacity_in(pool, deployment.parallelism.footprint)

    current = newest(observation.deployments)
    requested = accepted.asked_on(current.placement) if current else None
    return _scale_to(observation, requested, capacity_of)


def scales_down(observation: Observation) -> tuple[Scale, ...]:
    """Scale the Deployments of a spec that is not accepted to fewer replicas, where it requests
    that. Whatever else it says, the number is what a user or an autoscaler wrote."""
    return _scale_to(observation, observation.requested_replicas, lambda deployment: 0)


def scale_reserved(
    reservations: Iterable[Reservation], scales: Iterable[Scale]
) -> tuple[Reservation, ...]:
    """The reservations with the numbers of replicas that the actions set."""
    replicas = {
        scale.child.body["metadata"]["labels"][LABEL_PLACEMENT]: scale.replicas for scale in scales
    }
    return tuple(
        replace(held, replicas=replicas.get(held.placement, held.replicas)) for held in reservations
    )


def subtract_secondary(
    requested: int | None, current: ChildDeployment, deployments: Iterable[ChildDeployment]
) -> int | None:
    """The requested replicas less those of secondary Deployments, which go on as they are; each
    counts as one replica, and at least one is kept."""
    if not requested:
        return requested
    secondary = (one for one in deployments if one.secondary and one is not current)
    return max(1, requested - sum(one.wanted for one in secondary))


def scale_secondary(deployments: Iterable[ChildDeployment], left: int) -> Iterator[Scale]:
    """Scale the secondary ones among the Deployments down to the replicas that are left to them."""
    for deployment in deployments:
        if deployment.secondary:
            kept = max(0, min(deployment.wanted, left))
            left -= kept
            scale = _scale(deployment, kept)
            if scale is not None:
                yield scale


def _scale_to(
    observation: Observation, requested: int | None, capacity_of: CapacityOf
) -> tuple[Scale, ...]:
    """Bring the Deployments to the requested number. The newest one gives up replicas first, except
    for its last, then the secondary ones; one that drains keeps no more than are requested."""
    current = newest(observation.deployments)
    if current is None or requested is None:
        return ()
    wanted = subtract_secondary(requested, current, observation.deployments) or 0
    if wanted > current.wanted:
        wanted = max(current.wanted, min(wanted, capacity_of(current)))
    others = [one for one in observation.deployments if one is not current]
    draining = [one for one in others if not one.secondary]
    actions = (
        _scale(current, wanted),
        *(_scale(deployment, min(deployment.wanted, requested)) for deployment in draining),
        *scale_secondary(others, requested - wanted),
    )
    return tuple(action for action in actions if action is not None)


def _scale(deployment: ChildDeployment, replicas: int) -> Scale | None:
    requested = deployment.replicas_for(replicas)
    if requested == deployment.wanted:
        return None
    return Scale(deployment.kind, deployment.child, requested)
