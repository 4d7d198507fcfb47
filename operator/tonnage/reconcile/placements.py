"""What is done about the placements of one object: a Deployment each, one after the other, and the
Services.

The replicas of a placement in addition to the first are replaced once the first one serves as it is
to be, and each once those before it do. So a change that fails, fails on one of them, and the
others go on serving.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from tonnage.api.names import ANNOTATION_PLACEMENT, ANNOTATION_TEMPLATE
from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import Action, Delete, Scale, Stamped, apply_if_changed, stamped
from tonnage.reconcile.approval import ApprovalState
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.context import ReconcileContext, owner_of
from tonnage.reconcile.gateway import mark_service
from tonnage.reconcile.handover import hand_over
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outcome import Scheduled
from tonnage.reconcile.rollout import find_deployment, render
from tonnage.render.metadata import BESIDE
from tonnage.render.names import placement_name
from tonnage.render.service import render_placement_service, render_service


@dataclass(frozen=True, slots=True)
class SecondaryPlacement:
    """One placement in addition to the first: its Deployment as it is to be, and as it is.

    `target` is the live one where it already is what was rendered, `live` whatever is there.
    """

    placed: Scheduled
    actions: tuple[Action, ...]
    child: Object
    live: ChildDeployment | None
    target: ChildDeployment | None

    @property
    def serves(self) -> bool:
        """Whether all of its replicas do, just as they are to."""
        return self.target is not None and self.target.serves(self.placed.granted)


@dataclass(frozen=True, slots=True)
class PlacementChildren:
    """The children as a placement wants them, with those in addition to it; `target` is the first
    one's Deployment where it already is what was rendered."""

    target: ChildDeployment | None
    secondary: tuple[SecondaryPlacement, ...]
    actions: tuple[Action, ...]
    reservations: tuple[Reservation, ...]
    children: tuple[Object, ...]


def roll_out(
    context: ReconcileContext, placed: Scheduled, deployment: Object, approval: ApprovalState
) -> PlacementChildren:
    """The Services, a Deployment for each placement, and how old placements leave."""
    observation = context.observation
    live = find_deployment(observation, deployment)
    wanted = stamped(deployment)
    rolls = apply_if_changed(DEPLOYMENTS, wanted, live.child if live else None)
    target = live if not rolls else None
    serves = target is not None and target.serves(placed.granted)
    secondary = _roll_out_secondary(context, placed, approval, first_serves=serves)
    kept = [live, *(one.live for one in secondary)]
    others = [found for found in observation.deployments if found not in kept]
    targets = [one.target for one in secondary]
    handover = hand_over(observation.key, others, target, placed.wanted, targets)
    service = service_over_all(observation)
    services = _render_services(observation, placed)
    return PlacementChildren(
        target=target,
        secondary=secondary,
        actions=(
            *_in_order(rolls, secondary),  # first: nodes, images and weights take longest
            *apply_if_changed(SERVICES, service, observation.service),
            *_keep_services(observation, services),
            *handover.actions,
        ),
        reservations=(
            *(_reserve(observation.owner, one) for one in (placed, *placed.alone)),
            *handover.reservations,
        ),
        children=(
            service,
            *services,
            wanted,
            *(one.child for one in secondary),
        ),
    )


def service_over_all(observation: Observation) -> Stamped:
    """The Service over the replicas of all placements, as it is applied."""
    return stamped(mark_service(render_service(owner_of(observation)), observation))


def inspect_secondary(
    context: ReconcileContext, placed: Scheduled
) -> tuple[SecondaryPlacement, ...]:
    """The placements in addition to the first where nothing is to be replaced."""
    return tuple(_inspect(context, alone) for alone in placed.alone)


def image_of(deployment: Object) -> str:
    """Image of the vLLM container."""
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


def _roll_out_secondary(
    context: ReconcileContext, placed: Scheduled, approval: ApprovalState, *, first_serves: bool
) -> tuple[SecondaryPlacement, ...]:
    """The Deployments of the placements in addition to the first; one that waits for approval, or
    for those before it, keeps its template and gets its number of replicas."""
    found: list[SecondaryPlacement] = []
    may_roll = first_serves
    for alone in placed.alone:
        held_back = placement_name(alone.option) in approval.held_back
        one = _carry_out(context, alone, may_roll=may_roll and not held_back)
        found.append(one)
        may_roll = may_roll and one.serves
    return tuple(found)


def _in_order(
    first: tuple[Action, ...], secondary: tuple[SecondaryPlacement, ...]
) -> tuple[Action, ...]:
    """A placement that is to be next to another from now on is told so before the other comes
    first, and a new one is made after the first. So no crash leaves two firsts, or another one
    first."""
    there = (action for one in secondary if one.live is not None for action in one.actions)
    new = (action for one in secondary if one.live is None for action in one.actions)
    return (*there, *first, *new)


def _reserve(owner: tuple[str, str], placed: Scheduled) -> Reservation:
    """What the replicas of one placement hold or will hold."""
    return Reservation(
        owner=owner,
        placement=placement_name(placed.option),
        pool=placed.option.pool.name,
        gpus_per_replica=placed.option.parallelism.gpus,
        replicas=placed.granted,
    )


def _render_services(observation: Observation, placed: Scheduled) -> tuple[Stamped, ...]:
    """A Service for each placement, where there are several, as they are applied."""
    owner = owner_of(observation)
    options = [placed.option, *(share.option for share in placed.beside)]
    if not placed.beside:
        return ()
    return tuple(
        stamped(render_placement_service(owner, placement_name(option))) for option in options
    )


def _keep_services(observation: Observation, wanted: tuple[Stamped, ...]) -> Iterator[Action]:
    """What makes the Services of placements those that are wanted."""
    live = {found.name: found for found in observation.placement_services}
    for service in wanted:
        yield from apply_if_changed(SERVICES, service, live.pop(service["metadata"]["name"], None))
    for found in live.values():
        yield Delete(SERVICES, observation.key.namespace, found)


def _carry_out(
    context: ReconcileContext, alone: Scheduled, *, may_roll: bool
) -> SecondaryPlacement:
    rendered = _marked(render(context, alone))
    live = find_deployment(context.observation, rendered)
    template = rendered["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    if live is not None and live.template not in ("", template) and not may_roll:
        return _leave(context, alone, live)
    wanted = stamped(rendered)
    rolls = apply_if_changed(DEPLOYMENTS, wanted, live.child if live else None)
    return SecondaryPlacement(alone, rolls, wanted, live, live if not rolls else None)


def _inspect(context: ReconcileContext, alone: Scheduled) -> SecondaryPlacement:
    rendered = _marked(render(context, alone))
    live = find_deployment(context.observation, rendered)
    if live is None:
        return SecondaryPlacement(alone, (), stamped(rendered), None, None)
    same = live.template == rendered["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    return SecondaryPlacement(alone, (), live.child.body, live, live if same else None)


def _leave(
    context: ReconcileContext, alone: Scheduled, live: ChildDeployment
) -> SecondaryPlacement:
    scale = Scale(DEPLOYMENTS, context.observation.key.namespace, live.child, alone.granted)
    actions = (scale,) if live.wanted != alone.granted else ()
    return SecondaryPlacement(alone, actions, live.child.body, live, None)


def _marked(deployment: Object) -> Object:
    """The Deployment as one in addition to another; the mark alone changes when that goes."""
    metadata = deployment["metadata"]
    place = {**json.loads(metadata["annotations"][ANNOTATION_PLACEMENT]), BESIDE: True}
    text = json.dumps(place, separators=(",", ":"))
    annotations = {**metadata["annotations"], ANNOTATION_PLACEMENT: text}
    return {**deployment, "metadata": {**metadata, "annotations": annotations}}
