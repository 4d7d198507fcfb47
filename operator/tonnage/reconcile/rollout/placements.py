"""Plan the placements of one object: a Deployment each, one after the other, and the Services.

The replicas of a secondary placement are replaced once the first placement serves by its new
template, and each further one once those before it do. So a change that fails, fails on one
placement, and the others go on serving.
"""

import json
from dataclasses import dataclass, replace

from tonnage.api.names import ANNOTATION_PLACEMENT
from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import SERVICES
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import Action, Scale, apply_if_changed
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.template_record import template_of
from tonnage.reconcile.rollout.approval.state import ApprovalState
from tonnage.reconcile.rollout.claim_templates import (
    apply_claim_templates,
    delete_claim_templates,
    render_claim_templates,
)
from tonnage.reconcile.rollout.drain import find_in_the_way, shift_replicas
from tonnage.reconcile.rollout.retained_template import RenderedDeployment
from tonnage.reconcile.rollout.services import (
    make_service,
    render_services,
    sync_services,
)
from tonnage.reconcile.rollout.strategy import find_deployment, render
from tonnage.reconcile.scheduling.context import ReconcileContext
from tonnage.reconcile.scheduling.outcome import Scheduled
from tonnage.workloads.metadata import SECONDARY


@dataclass(frozen=True, slots=True)
class PlacementWorkload:
    """One placement: its Deployment as rendered, and as it is.

    `target` is the live Deployment where it already matches what was rendered, `live` the live one
    in any state.
    """

    placed: Scheduled
    actions: tuple[Action, ...]
    child: Object
    live: ChildDeployment | None
    target: ChildDeployment | None

    @property
    def serves(self) -> bool:
        """Whether all of its replicas serve by the rendered template."""
        return self.target is not None and self.target.serves(self.placed.granted)


@dataclass(frozen=True, slots=True)
class PlacementChildren:
    """The children of the first placement and of those next to it."""

    first: PlacementWorkload
    secondary: tuple[PlacementWorkload, ...]
    actions: tuple[Action, ...]
    reservations: tuple[Reservation, ...]
    children: tuple[Object, ...]


def roll_out(
    context: ReconcileContext,
    placed: Scheduled,
    deployment: RenderedDeployment,
    approval: ApprovalState,
) -> PlacementChildren:
    """Plan the Services, a Deployment for each placement, and the drain of old placements."""
    observation = context.observation
    first = _apply(placed, deployment, find_deployment(observation, deployment.body))
    secondary = _roll_out_secondary(context, placed, approval, first_serves=first.serves)
    current = [each.live for each in (first, *secondary)]
    others = [deployment for deployment in observation.deployments if deployment not in current]
    targets = [each.target for each in secondary]
    in_the_way = find_in_the_way(context, placed, others)
    drain = shift_replicas(
        observation.key, others, first.target, placed.wanted, targets, in_the_way
    )
    service = make_service(observation)
    services = render_services(observation, placed)
    workloads = tuple(each.child for each in (first, *secondary))
    claim_templates = render_claim_templates(observation, placed, workloads)
    return PlacementChildren(
        first=first,
        secondary=secondary,
        actions=(
            *apply_claim_templates(observation, claim_templates),
            # First, since nodes, images and weights take longest.
            *_order_actions(first.actions, secondary),
            *apply_if_changed(SERVICES, service, observation.service),
            *sync_services(observation, services),
            *drain.actions,
            *delete_claim_templates(observation, workloads),
        ),
        reservations=(
            *(_reserve(observation.key, each) for each in (placed, *placed.alone)),
            *drain.reservations,
        ),
        children=(
            service,
            *services,
            *claim_templates,
            *workloads,
        ),
    )


def inspect_secondary(
    context: ReconcileContext, placed: Scheduled
) -> tuple[PlacementWorkload, ...]:
    """The secondary placements where nothing is to be replaced."""
    return tuple(_inspect(context, secondary) for secondary in placed.alone)


def image_of(deployment: Object) -> str:
    """Image of the engine's container."""
    return str(template_of(deployment)["spec"]["containers"][0]["image"])


def _roll_out_secondary(
    context: ReconcileContext, placed: Scheduled, approval: ApprovalState, *, first_serves: bool
) -> tuple[PlacementWorkload, ...]:
    """The Deployments of the secondary placements. One that waits for approval, or for those before
    it, keeps its template and gets its number of replicas."""
    secondary: list[PlacementWorkload] = []
    may_roll = first_serves
    for alone in placed.alone:
        held_back = alone.option.placement_name in approval.held_back
        rolled = _carry_out(context, alone, may_roll=may_roll and not held_back)
        secondary.append(rolled)
        may_roll = may_roll and rolled.serves
    return tuple(secondary)


def _order_actions(
    first: tuple[Action, ...], secondary: tuple[PlacementWorkload, ...]
) -> tuple[Action, ...]:
    """A Deployment that becomes secondary is marked so before another becomes the first, and a new
    secondary one is made after the first. So no crash leaves two first ones, or the wrong one
    first."""
    existing = (action for each in secondary if each.live is not None for action in each.actions)
    new = (action for each in secondary if each.live is None for action in each.actions)
    return (*existing, *first, *new)


def _reserve(owner: tuple[str, str], placed: Scheduled) -> Reservation:
    """What the replicas of one placement hold or will hold."""
    return Reservation(
        owner=owner,
        placement=placed.option.placement_name,
        pool=placed.option.pool.name,
        footprint=placed.option.parallelism.footprint,
        replicas=placed.granted,
    )


def _carry_out(
    context: ReconcileContext, placed: Scheduled, *, may_roll: bool
) -> PlacementWorkload:
    rendered = _render_secondary(context, placed)
    live = find_deployment(context.observation, rendered.body)
    if live is not None and live.template not in ("", rendered.template) and not may_roll:
        return _keep_template(context, placed, live)
    return _apply(placed, rendered, live)


def _apply(
    placed: Scheduled, rendered: RenderedDeployment, live: ChildDeployment | None
) -> PlacementWorkload:
    deployment = rendered.to_apply(live)
    actions = apply_if_changed(rendered.kind, deployment, live.child if live else None)
    target = live if not actions or (live and rendered.changes_record_only(live)) else None
    return PlacementWorkload(placed, actions, deployment, live, target)


def _inspect(context: ReconcileContext, placed: Scheduled) -> PlacementWorkload:
    rendered = _render_secondary(context, placed)
    live = find_deployment(context.observation, rendered.body)
    if live is None:
        return PlacementWorkload(placed, (), rendered.to_apply(None), None, None)
    is_same = live.template == rendered.template
    return PlacementWorkload(placed, (), live.child.body, live, live if is_same else None)


def _keep_template(
    context: ReconcileContext, placed: Scheduled, live: ChildDeployment
) -> PlacementWorkload:
    replicas = live.replicas_for(placed.granted)
    actions = (Scale(live.kind, live.child, replicas),) if live.wanted != replicas else ()
    return PlacementWorkload(placed, actions, live.child.body, live, None)


def _render_secondary(context: ReconcileContext, placed: Scheduled) -> RenderedDeployment:
    """The Deployment marked as secondary; only the mark changes when the first one goes."""
    rendered = render(context, placed)
    metadata = rendered.body["metadata"]
    place = {**json.loads(metadata["annotations"][ANNOTATION_PLACEMENT]), SECONDARY: True}
    text = json.dumps(place, separators=(",", ":"))
    annotations = {**metadata["annotations"], ANNOTATION_PLACEMENT: text}
    body = {**rendered.body, "metadata": {**metadata, "annotations": annotations}}
    return replace(rendered, body=body)
