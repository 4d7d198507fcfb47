"""What is to be done about one InferenceDeployment, as data. Pure: no I/O, no clock.

The road: accept the spec, place the replicas, render the children, and say what was found. A
refusal at any step leaves children that serve as they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from tonnage.api.inference import FallbackReturn
from tonnage.api.names import LABEL_PLACEMENT
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.fit.corrections import MemoryCorrection
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import SERVICES
from tonnage.kube.protocol import Object
from tonnage.kube.rights import Right
from tonnage.reconcile.accept import Accepted, Refused, accept
from tonnage.reconcile.actions import Action, Scale, apply_if_changed, stamped
from tonnage.reconcile.approval import Standing, terms_of
from tonnage.reconcile.attempts import attempts_now
from tonnage.reconcile.beside import image_of, look_at_beside
from tonnage.reconcile.by_load import follow_load
from tonnage.reconcile.case import Case, World, owner_of
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.endpoints import plan_endpoints, tell_endpoints
from tonnage.reconcile.forbidden import RETRY_SECONDS, tell_unchanged
from tonnage.reconcile.gateway import (
    GatewayPlan,
    hindered,
    mark_service,
    plan_gateway,
    tell_gateway,
)
from tonnage.reconcile.handover import hand_over
from tonnage.reconcile.key import Requeue
from tonnage.reconcile.ledger import reserve_for
from tonnage.reconcile.move import MoveReason
from tonnage.reconcile.moves import Wish, is_under_way
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.optional_child import Hindrance
from tonnage.reconcile.outcome import (
    Pending,
    PendingApproval,
    PlacementOutcome,
    Scheduled,
    Unschedulable,
    find_claims,
)
from tonnage.reconcile.outlook import Outlook
from tonnage.reconcile.placed_children import roll_out
from tonnage.reconcile.remember import remember
from tonnage.reconcile.review import review
from tonnage.reconcile.rollback import WayBack, hold_still
from tonnage.reconcile.scaling import scale_in_force
from tonnage.reconcile.serving import newest, serving_deployment
from tonnage.reconcile.status import make_status
from tonnage.reconcile.turn import ALONE, Turn
from tonnage.reconcile.unreachable import give_back, was_taken
from tonnage.render.service import render_service

_AT_ONCE_SECONDS: Final = 0.1
"""What was found stands in the status, and is acted on by the next look."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in their order, the status to be reported, and what is reserved meanwhile.

    `optional` come after all others, and what is in the way of one is only told.
    `children` are those that the replicas are to run as, complete, whether or not they have to be
    written now; `waits_for_capacity`: the key is to be woken when GPUs become free, and `claims` is
    what the object would take of them. `moves`: it has
    left a pool and does not all serve from the new one yet; `wish` is to leave its own by choice.
    `lessons` are what its replicas teach of memory, for the plans to come.
    """

    actions: tuple[Action, ...]
    status: InferenceDeploymentStatus
    reservations: tuple[Reservation, ...]
    requeue: Requeue
    optional: tuple[Action, ...] = ()
    children: tuple[Object, ...] = ()
    waits_for_capacity: bool = False
    claims: tuple[Reservation, ...] = ()
    moves: bool = False
    wish: Wish | None = None
    lessons: tuple[MemoryCorrection, ...] = ()

    @property
    def all_actions(self) -> tuple[Action, ...]:
        """All that is to be done, whatever may become of some of it."""
        return (*self.actions, *self.optional)


def make_plan(
    observation: Observation,
    fleet: Fleet,
    world: World,
    now: datetime,
    turn: Turn = ALONE,
) -> Plan:
    """The next step that brings the object closer to its spec; `turn` is what others leave."""
    plan = _plan_replicas(observation, fleet, world, now, turn)
    if plan.status.scaling is not None:  # no event tells of more load
        plan = replace(plan, requeue=plan.requeue.or_after(world.scaling_interval_seconds))
    return _with_endpoints(_with_gateway(plan, observation, now), observation, now)


def _plan_replicas(
    observation: Observation, fleet: Fleet, world: World, now: datetime, turn: Turn
) -> Plan:
    """The replicas and their Service, whatever becomes of all else."""
    accepted = accept(observation, world.catalog)
    if isinstance(accepted, Refused):
        return _stand_still(observation, accepted, now)
    by_load = follow_load(observation, world.scaling_interval_seconds, now)
    accepted = replace(accepted, by_load=by_load)
    attempts = attempts_now(observation, accepted.spec, fleet, world.catalog)
    case = Case(observation, accepted, fleet, world, now, turn, attempts)
    placing, standing = case.settle()
    if accepted.spec.rollout.paused:
        return _pause(case, placing, standing)
    if isinstance(placing, Scheduled):
        return _carry_out(case, placing, standing)
    return _wait(case, placing, standing)


def plan_refusal(observation: Observation, refused: Refused, now: datetime) -> Plan:
    """What remains when a plan cannot be carried out: GPUs that are of no use to anybody are given
    back, and status says why."""
    return _with_gateway(_stand_still(observation, refused, now), observation, now)


def plan_hindered(observation: Observation, plan: Plan, why: Hindrance, now: datetime) -> Plan:
    """The plan as carried out but for its optional actions, with what was in their way."""
    return _told_of_gateway(plan, hindered(why), observation, now)


def _with_gateway(plan: Plan, observation: Observation, now: datetime) -> Plan:
    """The plan, with what is to be done about an InferencePool beside the replicas."""
    placed = bool(plan.children)
    gateway = plan_gateway(observation, owner_of(observation), placed=placed)
    plan = replace(plan, optional=gateway.actions, children=(*plan.children, *gateway.children))
    return _told_of_gateway(plan, gateway, observation, now)


def _with_endpoints(plan: Plan, observation: Observation, now: datetime) -> Plan:
    """The plan, with what is to be done about the endpoint for long requests."""
    found = plan_endpoints(observation, plan.status.conditions)
    return replace(
        plan,
        actions=(*plan.actions, *found.actions),
        children=(*plan.children, *found.children),
        status=tell_endpoints(plan.status, found, observation, now),
        requeue=plan.requeue.or_after(_AT_ONCE_SECONDS if found.listing else None),
    )


def _told_of_gateway(
    plan: Plan, gateway: GatewayPlan, observation: Observation, now: datetime
) -> Plan:
    status = tell_gateway(plan.status, gateway.finding, observation, now)
    return replace(plan, status=status, requeue=plan.requeue.or_after(gateway.again_seconds))


def plan_without_right(observation: Observation, plan: Plan, right: Right, now: datetime) -> Plan:
    """What remains of a plan that the operator may not carry out: its findings, and the lack.

    Only what exists is reserved, since others may be able to go on.
    """
    remains = Plan(
        actions=(),
        status=tell_unchanged(plan.status, observation, right, now),
        reservations=_reservations(observation, observation.deployments),
        requeue=Requeue(RETRY_SECONDS),
        moves=is_under_way(observation.deployments),
    )
    return _with_gateway(remains, observation, now)


def _stand_still(observation: Observation, refused: Refused, now: datetime) -> Plan:
    """Change nothing that may serve; where the refusal is only that nothing is known now, nothing
    is unsaid."""
    idle, told = give_back(observation, refused), was_taken(observation)
    remembered = remember(observation, refused)
    outlook = Outlook(accepted=refused)
    if remembered is not None:
        outlook = Outlook(accepted=remembered, target=serving_deployment(observation))
    return Plan(
        actions=idle if told else (),
        status=make_status(observation, outlook, now),
        reservations=_reservations(observation, observation.deployments),
        requeue=Requeue(_AT_ONCE_SECONDS if idle else refused.retry_after_seconds),
        moves=is_under_way(observation.deployments),
    )


def _wait(
    case: Case, placing: Pending | Unschedulable | PendingApproval, standing: Standing
) -> Plan:
    """No room, no fit, or no approval: what runs goes on running, and free GPUs wake the key. But
    where what runs has failed, the plan that served before runs in its stead."""
    observation = case.observation
    if not isinstance(placing, Pending):
        back = case.way_back_from_nothing()
        if back is not None:
            return _go_back(case, placing, back, standing)
    outlook = Outlook(case.accepted, placing, standing=standing, attempts=case.attempts)
    plan = Plan(
        actions=(),
        status=make_status(observation, outlook, case.now),
        reservations=_reservations(observation, observation.deployments),
        requeue=_look_again(case.now, placing.until if isinstance(placing, Pending) else None),
        waits_for_capacity=True,
        claims=_find_claims(case, placing, standing),
        moves=is_under_way(observation.deployments),
    )
    return _scaled(case, plan) if isinstance(placing, PendingApproval) else plan


def _scaled(case: Case, plan: Plan) -> Plan:
    """The plan, with what runs in the number that is asked for."""
    scale = scale_in_force(case.observation, case.accepted, case.fleet, case.turn)
    return _with_scale(plan, scale)


def _with_scale(plan: Plan, scale: Scale | None) -> Plan:
    """The plan, with another number of replicas of what runs, and that reserved."""
    if scale is None:
        return plan
    placement = scale.child.body["metadata"]["labels"][LABEL_PLACEMENT]
    reservations = tuple(
        replace(found, replicas=scale.replicas) if found.placement == placement else found
        for found in plan.reservations
    )
    return replace(plan, actions=(scale,), reservations=reservations)


def _look_again(now: datetime, *moments: datetime | None) -> Requeue:
    """At the first of the moments that are still to come; without one, when something happens."""
    to_come = [moment for moment in moments if moment is not None and moment > now]
    return Requeue((min(to_come) - now).total_seconds() if to_come else None)


def _sets_out(placed: Scheduled, now: datetime) -> bool:
    return placed.moved is not None and placed.moved.at == now


def _waits_to_return(accepted: Accepted, placed: Scheduled) -> bool:
    """Whether room in the pool that the replicas had to leave is what they wait for."""
    fell_back = placed.moved is not None and placed.moved.reason is MoveReason.FELL_BACK
    return fell_back and accepted.spec.placement.fallback.back is not FallbackReturn.NEVER


def _wish(observation: Observation, placed: Scheduled, standing: Standing) -> Wish | None:
    """What waits for a person holds up no other object that would move."""
    prospect = placed.prospect
    if prospect is None or standing.proposal is not None:
        return None
    due = prospect.moves_at if prospect.at_rest else None
    return Wish(due, prospect.claim(observation.owner))


def _carry_out(case: Case, placed: Scheduled, standing: Standing) -> Plan:
    """Make the children what the placement asks for; old placements leave as they may. Where just
    that has failed before, the plan that served last runs in its stead."""
    observation, now = case.observation, case.now
    deployment = case.render(placed)
    terms = terms_of(placed, deployment)
    back = case.way_back_from(placed, terms, deployment)
    if back is not None:
        return _go_back(case, placed, back, standing)
    rollout = roll_out(case, placed, deployment, standing)
    found = review(case, placed, deployment, rollout)
    outlook = Outlook(
        case.accepted,
        placed,
        rollout.settled,
        image_of(deployment),
        standing,
        found.readings,
        attempts=found.attempts,
        plan=terms.hash,
        beside=rollout.beside,
        goes_on=found.attempts.failed != case.attempts.failed,
    )
    prospect = placed.prospect
    return Plan(
        actions=rollout.actions,
        status=make_status(observation, outlook, now),
        reservations=rollout.reservations,
        requeue=_look_again(
            now, placed.leaves_at, prospect.moves_at if prospect else None
        ).or_after(_AT_ONCE_SECONDS if outlook.goes_on else None),
        children=rollout.children,
        waits_for_capacity=placed.is_short or _waits_to_return(case.accepted, placed),
        claims=_find_claims(case, placed, standing),
        moves=_sets_out(placed, now) or is_under_way(observation.deployments),
        wish=_wish(observation, placed, standing),
        lessons=found.lessons,
    )


def _go_back(
    case: Case,
    placing: Scheduled | Unschedulable | PendingApproval,
    back: WayBack,
    standing: Standing,
) -> Plan:
    """Run by the last plan that served; what came after it leaves as that serves again."""
    observation = case.observation
    service = mark_service(render_service(owner_of(observation)), observation)
    others = [one for one in observation.deployments if one is not back.live and not one.beside]
    handover = hand_over(observation.key, others, back.settled, back.replicas)
    beside = [one for one in observation.deployments if one is not back.live and one.beside]
    outlook = Outlook(
        case.accepted,
        placing,
        back.settled,
        standing=standing,
        attempts=case.attempts,
        way_back=back,
    )
    return Plan(
        actions=(
            *apply_if_changed(SERVICES, service, observation.service),
            *back.actions(observation.key),
            *handover.actions,
        ),
        status=make_status(observation, outlook, case.now),
        reservations=(
            back.reservation(observation.owner),
            *_reservations(observation, beside),
            *handover.reservations,
        ),
        requeue=Requeue(None),
        children=(stamped(service), back.body, *(one.child.body for one in beside)),
        waits_for_capacity=not isinstance(placing, Scheduled),
        claims=() if isinstance(placing, Scheduled) else _find_claims(case, placing, standing),
        moves=is_under_way(observation.deployments),
    )


def _pause(case: Case, placing: PlacementOutcome, standing: Standing) -> Plan:
    """Replace and move nothing, also what Kubernetes is in the middle of; follow the number of
    replicas alone."""
    observation = case.observation
    running = newest(observation.deployments)
    target = running if running and case.is_carried_out(placing, running) else None
    outlook = Outlook(
        case.accepted,
        placing,
        target,
        image_of(target.child.body) if target else "",
        standing,
        attempts=case.attempts,
        beside=look_at_beside(case, placing) if isinstance(placing, Scheduled) else (),
    )
    plan = Plan(
        actions=tuple(action for found in observation.deployments for action in hold_still(found)),
        status=make_status(observation, outlook, case.now),
        reservations=_reservations(observation, observation.deployments),
        requeue=Requeue(None),
        children=tuple(found.child.body for found in observation.deployments),
        moves=is_under_way(observation.deployments),
    )
    return _with_service(observation, plan if plan.actions else _scaled(case, plan))


def _with_service(observation: Observation, plan: Plan) -> Plan:
    """The plan with the Service of what runs, which is marked before an InferencePool is made."""
    if not observation.deployments:
        return plan
    service = mark_service(render_service(owner_of(observation)), observation)
    applied = apply_if_changed(SERVICES, service, observation.service)
    children = (stamped(service), *plan.children)
    return replace(plan, actions=(*applied, *plan.actions), children=children)


def _find_claims(
    case: Case, placing: PlacementOutcome, standing: Standing
) -> tuple[Reservation, ...]:
    proposed = standing.proposal is not None
    return find_claims(placing, case.observation, proposed=proposed)


def _reservations(
    observation: Observation, deployments: Iterable[ChildDeployment]
) -> tuple[Reservation, ...]:
    return tuple(reserve_for(observation.owner, found) for found in deployments)
