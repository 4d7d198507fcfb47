"""The children as a placement with others beside it wants them, and how that is reached."""

from dataclasses import dataclass

from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import Action, apply_if_changed, stamped
from tonnage.reconcile.approval import Standing
from tonnage.reconcile.beside import (
    Beside,
    carry_out_beside,
    keep_services,
    render_services,
    reserve,
)
from tonnage.reconcile.case import Case, owner_of
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.gateway import mark_service
from tonnage.reconcile.handover import hand_over
from tonnage.reconcile.outcome import Scheduled
from tonnage.reconcile.rollout import find_deployment
from tonnage.render.service import render_service


@dataclass(frozen=True, slots=True)
class PlacedChildren:
    """The children as a placement wants them; `settled` is the first one's Deployment where it
    already is what was rendered."""

    settled: ChildDeployment | None
    beside: tuple[Beside, ...]
    actions: tuple[Action, ...]
    reservations: tuple[Reservation, ...]
    children: tuple[Object, ...]


def roll_out(
    case: Case, placed: Scheduled, deployment: Object, standing: Standing
) -> PlacedChildren:
    """The Services, a Deployment for each placement, and how old placements leave."""
    observation = case.observation
    target = find_deployment(observation, deployment)
    rolls = apply_if_changed(DEPLOYMENTS, deployment, target.child if target else None)
    settled = target if not rolls else None
    serves = settled is not None and settled.serves(placed.granted)
    beside = carry_out_beside(case, placed, standing, first_serves=serves)
    kept = [target, *(one.live for one in beside)]
    others = [found for found in observation.deployments if found not in kept]
    targets = [one.target for one in beside]
    handover = hand_over(observation.key, others, settled, placed.wanted, targets)
    service = mark_service(render_service(owner_of(observation)), observation)
    services = render_services(observation, placed)
    return PlacedChildren(
        settled=settled,
        beside=beside,
        actions=(
            *_in_order(rolls, beside),  # first: nodes, images and weights take longest
            *apply_if_changed(SERVICES, service, observation.service),
            *keep_services(observation, services),
            *handover.actions,
        ),
        reservations=(
            *(reserve(observation.owner, one) for one in (placed, *placed.alone)),
            *handover.reservations,
        ),
        children=(
            stamped(service),
            *map(stamped, services),
            stamped(deployment),
            *(one.child for one in beside),
        ),
    )


def _in_order(first: tuple[Action, ...], beside: tuple[Beside, ...]) -> tuple[Action, ...]:
    """A placement that is to be beside another from now on is told so before the other comes first,
    and a new one is made after the first. So no crash leaves two firsts, or another one first."""
    there = (action for one in beside if one.live is not None for action in one.actions)
    new = (action for one in beside if one.live is None for action in one.actions)
    return (*there, *first, *new)
