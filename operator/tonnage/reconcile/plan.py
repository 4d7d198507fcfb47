"""What is to be done about one InferenceDeployment, as data. Pure: no I/O, no clock.

The steps: accept the spec, place the replicas, render the children, and report what was found. A
refusal at any step leaves children that serve as they are.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from tonnage import delays
from tonnage.api.conditions import Reason
from tonnage.api.inference import FallbackReturn
from tonnage.api.names import LABEL_PLACEMENT
from tonnage.api.scaling_status import ScalingStatus
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.fit.corrections import MemoryCorrection
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import SERVICES
from tonnage.kube.protocol import Object
from tonnage.kube.rights import Right
from tonnage.reconcile.accept import Accepted, Refused, accept, give_back, was_taken
from tonnage.reconcile.actions import Action, apply_if_changed
from tonnage.reconcile.approval import ApprovalState, settle, terms_of
from tonnage.reconcile.attempts import attempts_now
from tonnage.reconcile.by_load import Taken, follow_load, scaling_before, scaling_status, taken_by
from tonnage.reconcile.context import Dependencies, ReconcileContext, owner_of
from tonnage.reconcile.endpoints import plan_endpoints
from tonnage.reconcile.gateway import GatewayPlan, plan_gateway, plan_without_pool
from tonnage.reconcile.handover import hand_over
from tonnage.reconcile.key import Requeue
from tonnage.reconcile.ledger import reserve_all
from tonnage.reconcile.move import MoveReason
from tonnage.reconcile.moves import MigrationCandidate, candidate_of, is_under_way
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.optional_child import OptionalChildError
from tonnage.reconcile.outcome import (
    Pending,
    PendingApproval,
    PlacementOutcome,
    Scheduled,
    Unschedulable,
    find_claims,
)
from tonnage.reconcile.placements import image_of, inspect_secondary, roll_out, service_over_all
from tonnage.reconcile.reported import remember
from tonnage.reconcile.review import review
from tonnage.reconcile.rollback import Rollback, hold_still, rollback_of, rollback_of_what_runs
from tonnage.reconcile.rollout import is_carried_out, render
from tonnage.reconcile.scaling import scale_in_force
from tonnage.reconcile.serving import newest, serving_deployment
from tonnage.reconcile.status import make_status
from tonnage.reconcile.status_input import StatusInput
from tonnage.reconcile.turn import UNCONTESTED, Admission


@dataclass(frozen=True)
class Plan:
    """Actions in their order, what the status is made of, and what is reserved meanwhile.

    `optional` come after all others, and what is in the way of one is only reported.
    `children` are those that the replicas are to run as, complete, whether or not they have to be
    written now; `waits_for_capacity`: the key is to be woken when GPUs become free, and `claims` is
    what the object would take of them. `moves`: it has left a pool and does not all serve from the
    new one yet; `migration_candidate` is to leave its own by choice. `lessons` are what its
    replicas teach of memory, for the plans to come.
    """

    observation: Observation
    now: datetime
    status_input: StatusInput
    reservations: tuple[Reservation, ...]
    actions: tuple[Action, ...] = ()
    requeue: Requeue = field(default_factory=Requeue)
    optional: tuple[Action, ...] = ()
    children: tuple[Object, ...] = ()
    waits_for_capacity: bool = False
    claims: tuple[Reservation, ...] = ()
    moves: bool = False
    migration_candidate: MigrationCandidate | None = None
    lessons: tuple[MemoryCorrection, ...] = ()

    @cached_property
    def status(self) -> InferenceDeploymentStatus:
        """The status to be reported. A plan with another StatusInput has another one."""
        return make_status(self.observation, self.status_input, self.now)

    @property
    def all_actions(self) -> tuple[Action, ...]:
        """All that is to be done, whatever may become of some of it."""
        return (*self.actions, *self.optional)


def make_plan(
    observation: Observation,
    fleet: Fleet,
    dependencies: Dependencies,
    now: datetime,
    admission: Admission = UNCONTESTED,
) -> Plan:
    """The next step that brings the object closer to its spec; `admission` is what other objects
    leave to it."""
    plan = _plan_replicas(observation, fleet, dependencies, now, admission)
    if plan.status_input.scaling is not None:  # no event tells of more load
        interval = dependencies.scaling_interval_seconds
        plan = replace(plan, requeue=plan.requeue.or_after(interval))
    return _with_endpoints(_with_gateway(plan))


def plan_refusal(observation: Observation, refused: Refused, now: datetime) -> Plan:
    """What remains when a plan cannot be carried out: GPUs that are of no use to anybody are given
    back, and status says why."""
    return _with_gateway(_stand_still(observation, refused, now))


def plan_without_right(plan: Plan, right: Right) -> Plan:
    """What remains of a plan that the operator may not carry out: its findings, and the lack.

    Only what exists is reserved, since others may be able to go on.
    """
    found = replace(plan.status_input, missing_right=right)
    remains = _keep_all(plan.observation, plan.now, found)
    return _with_gateway(replace(remains, requeue=Requeue(delays.REQUEUE_FORBIDDEN)))


def with_optional_child_error(plan: Plan, error: OptionalChildError) -> Plan:
    """The plan as carried out but for its optional actions, with what was in their way."""
    return _with_pool_finding(plan, plan_without_pool(error))


def _plan_replicas(
    observation: Observation,
    fleet: Fleet,
    dependencies: Dependencies,
    now: datetime,
    admission: Admission,
) -> Plan:
    """The replicas and their Service, whatever becomes of all else."""
    accepted = accept(observation, dependencies.catalog)
    if isinstance(accepted, Refused):
        return _stand_still(observation, accepted, now)
    by_load = follow_load(observation, dependencies.scaling_interval_seconds, now)
    accepted = replace(accepted, by_load=by_load)
    attempts = attempts_now(observation, accepted.spec, fleet, dependencies.catalog)
    context = ReconcileContext(observation, accepted, fleet, dependencies, now, admission, attempts)
    outcome, approval = settle(context)
    if accepted.spec.rollout.paused:
        return _pause(context, outcome, approval)
    if isinstance(outcome, Scheduled):
        return _carry_out(context, outcome, approval)
    return _wait(context, outcome, approval)


def _with_gateway(plan: Plan) -> Plan:
    """The plan, with what is to be done about an InferencePool next to the replicas."""
    placed, owner = bool(plan.children), owner_of(plan.observation)
    gateway = plan_gateway(plan.observation, owner, placed=placed)
    plan = replace(plan, optional=gateway.actions, children=(*plan.children, *gateway.children))
    return _with_pool_finding(plan, gateway)


def _with_pool_finding(plan: Plan, gateway: GatewayPlan) -> Plan:
    found = replace(plan.status_input, inference_pool=gateway.finding)
    requeue = plan.requeue.or_after(gateway.again_seconds)
    return replace(plan, status_input=found, requeue=requeue)


def _with_endpoints(plan: Plan) -> Plan:
    """The plan, with what is to be done about the endpoint for long requests."""
    endpoints = plan_endpoints(plan.observation, plan.status_input)
    return replace(
        plan,
        actions=(*plan.actions, *endpoints.actions),
        children=(*plan.children, *endpoints.children),
        status_input=replace(plan.status_input, endpoints=endpoints.findings),
        requeue=plan.requeue.or_after(delays.REQUEUE_NOW if endpoints.listing else None),
    )


def _keep_all(observation: Observation, now: datetime, found: StatusInput) -> Plan:
    """Nothing is done, and what exists goes on as it is."""
    return Plan(
        observation,
        now,
        found,
        reservations=reserve_all(observation.owner, observation.deployments),
        moves=is_under_way(observation.deployments),
    )


def _stand_still(observation: Observation, refused: Refused, now: datetime) -> Plan:
    """Change nothing that may serve; where the refusal is only that nothing is known now, what was
    reported stays."""
    idle, taken = give_back(observation, refused), was_taken(observation)
    scaling = scaling_before(observation)
    remembered = None
    if refused.pending or refused.reason is Reason.MODEL_SOURCE_UNREACHABLE:
        remembered = remember(observation.previous_status, observation.generation)
    if remembered is None:
        found = StatusInput(refused, scaling=scaling)
    else:
        target = serving_deployment(observation)
        found = StatusInput(remembered, target=target, scaling=scaling)
    return replace(
        _keep_all(observation, now, found),
        actions=idle if taken else (),
        requeue=Requeue(delays.REQUEUE_NOW if idle else refused.retry_after_seconds),
    )


def _wait(
    context: ReconcileContext,
    outcome: Pending | Unschedulable | PendingApproval,
    approval: ApprovalState,
) -> Plan:
    """No capacity, no fit, or no approval: what runs goes on running, and free GPUs wake the key.
    But where what runs has failed, the plan that served before runs in its stead."""
    if not isinstance(outcome, Pending):
        back = rollback_of_what_runs(context)
        if back is not None:
            return _go_back(context, outcome, back, approval)
    until = outcome.until if isinstance(outcome, Pending) else None
    plan = replace(
        _keep_all(context.observation, context.now, _found(context, outcome, approval)),
        requeue=Requeue.at_first(context.now, until),
        waits_for_capacity=True,
        claims=find_claims(outcome, context.observation, proposed=approval.is_proposed),
    )
    return _scaled(context, plan) if isinstance(outcome, PendingApproval) else plan


def _scaled(context: ReconcileContext, plan: Plan) -> Plan:
    """The plan, with what runs in the number that is asked for, and that reserved."""
    scale = scale_in_force(context)
    if scale is None:
        return plan
    placement = scale.child.body["metadata"]["labels"][LABEL_PLACEMENT]
    reservations = tuple(
        replace(held, replicas=scale.replicas) if held.placement == placement else held
        for held in plan.reservations
    )
    return replace(plan, actions=(scale,), reservations=reservations)


def _carry_out(context: ReconcileContext, placed: Scheduled, approval: ApprovalState) -> Plan:
    """Make the children what the placement asks for; old placements leave as they may. Where just
    that has failed before, the plan that served last runs in its stead."""
    observation, now = context.observation, context.now
    deployment = render(context, placed)
    terms = terms_of(placed, deployment)
    back = rollback_of(context, placed, terms, deployment)
    if back is not None:
        return _go_back(context, placed, back, approval)
    rollout = roll_out(context, placed, deployment, approval)
    reviewed = review(context, placed, deployment, rollout)
    plan_failed = reviewed.attempts.failed != context.attempts.failed
    found = replace(
        _found(context, placed, approval),
        target=rollout.target,
        image=image_of(deployment),
        readings=reviewed.readings,
        attempts=reviewed.attempts,
        plan=terms.hash,
        secondary=rollout.secondary,
        plan_failed=plan_failed,
    )
    moves_at = placed.prospect.moves_at if placed.prospect else None
    sets_out = placed.moved is not None and placed.moved.at == now
    return Plan(
        observation,
        now,
        found,
        actions=rollout.actions,
        reservations=rollout.reservations,
        requeue=Requeue.at_first(now, placed.leaves_at, moves_at).or_after(
            delays.REQUEUE_NOW if plan_failed else None
        ),
        children=rollout.children,
        waits_for_capacity=placed.is_short or _waits_to_return(context.accepted, placed),
        claims=find_claims(placed, observation, proposed=approval.is_proposed),
        moves=sets_out or is_under_way(observation.deployments),
        migration_candidate=candidate_of(
            placed.prospect, observation.owner, proposed=approval.is_proposed
        ),
        lessons=reviewed.lessons,
    )


def _go_back(
    context: ReconcileContext,
    outcome: Scheduled | Unschedulable | PendingApproval,
    back: Rollback,
    approval: ApprovalState,
) -> Plan:
    """Run by the last plan that served; what came after it leaves as that serves again."""
    observation = context.observation
    service = service_over_all(observation)
    others = [one for one in observation.deployments if one is not back.live and not one.beside]
    handover = hand_over(observation.key, others, back.settled, back.replicas)
    secondary = [one for one in observation.deployments if one is not back.live and one.beside]
    waits = not isinstance(outcome, Scheduled)
    return Plan(
        observation,
        context.now,
        _found(context, outcome, approval, back),
        actions=(
            *apply_if_changed(SERVICES, service, observation.service),
            *back.actions(observation.key),
            *handover.actions,
        ),
        reservations=(
            back.reservation(observation.owner),
            *reserve_all(observation.owner, secondary),
            *handover.reservations,
        ),
        children=(service, back.body, *(one.child.body for one in secondary)),
        waits_for_capacity=waits,
        claims=find_claims(outcome, observation, proposed=approval.is_proposed) if waits else (),
        moves=is_under_way(observation.deployments),
    )


def _pause(context: ReconcileContext, outcome: PlacementOutcome, approval: ApprovalState) -> Plan:
    """Replace and move nothing, also what Kubernetes is in the middle of; follow the number of
    replicas alone."""
    observation = context.observation
    running = newest(observation.deployments)
    target = running if running and is_carried_out(context, outcome, running) else None
    found = replace(
        _found(context, outcome, approval),
        target=target,
        image=image_of(target.child.body) if target else "",
        secondary=inspect_secondary(context, outcome) if isinstance(outcome, Scheduled) else (),
    )
    plan = replace(
        _keep_all(observation, context.now, found),
        actions=tuple(action for one in observation.deployments for action in hold_still(one)),
        children=tuple(one.child.body for one in observation.deployments),
    )
    return _with_service(plan if plan.actions else _scaled(context, plan))


def _with_service(plan: Plan) -> Plan:
    """The plan with the Service of what runs, which is marked before an InferencePool is made."""
    observation = plan.observation
    if not observation.deployments:
        return plan
    service = service_over_all(observation)
    applied = apply_if_changed(SERVICES, service, observation.service)
    children = (service, *plan.children)
    return replace(plan, actions=(*applied, *plan.actions), children=children)


def _found(
    context: ReconcileContext,
    outcome: PlacementOutcome,
    approval: ApprovalState,
    back: Rollback | None = None,
) -> StatusInput:
    """What every plan of an accepted spec came to."""
    return StatusInput(
        context.accepted,
        outcome,
        target=back.settled if back else None,
        approval=approval,
        attempts=context.attempts,
        rollback=back,
        scaling=_scaling(context.accepted, outcome, back),
    )


def _scaling(
    accepted: Accepted, outcome: PlacementOutcome, back: Rollback | None
) -> ScalingStatus | None:
    """What the measured load asks for, of the placement that was taken."""
    if accepted.by_load is None:
        return None
    if back is not None:
        return scaling_status(accepted.by_load, Taken(back.last.placement.name, back.wanted))
    return scaling_status(accepted.by_load, taken_by(outcome))


def _waits_to_return(accepted: Accepted, placed: Scheduled) -> bool:
    """Whether capacity in the pool that the replicas had to leave is what they wait for."""
    fell_back = placed.moved is not None and placed.moved.reason is MoveReason.FELL_BACK
    return fell_back and accepted.spec.placement.fallback.back is not FallbackReturn.NEVER
