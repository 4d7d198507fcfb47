"""What is to be done about one InferenceDeployment, as data. Pure: no I/O, no clock.

The steps: accept the spec, place the replicas, render the children, and report the findings. A
refusal at any step leaves children that serve as they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from tonnage import delays
from tonnage.api.conditions import Reason
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.fit.calibration.corrections import MemoryCorrection
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import SERVICES
from tonnage.kube.protocol import Object
from tonnage.kube.rights import Right
from tonnage.reconcile.accept import Accepted, Refused, accept, give_back, was_refused
from tonnage.reconcile.actions import Action, Scale, apply_if_changed
from tonnage.reconcile.autoscaling import follow_load
from tonnage.reconcile.integrations.disruption_budget import plan_budget
from tonnage.reconcile.integrations.endpoints import plan_endpoints
from tonnage.reconcile.integrations.gateway import GatewayPlan, plan_gateway, plan_without_pool
from tonnage.reconcile.key import Requeue
from tonnage.reconcile.observation.attempts import attempts_now
from tonnage.reconcile.observation.kept_release import keep_release
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.optional.optional_child import OptionalChildError
from tonnage.reconcile.observation.previous import read_remembered
from tonnage.reconcile.observation.serving import newest, serving_deployment
from tonnage.reconcile.rollout.approval.state import ApprovalState, settle, terms_of
from tonnage.reconcile.rollout.available_update import find_update
from tonnage.reconcile.rollout.deleted_children import create_deleted
from tonnage.reconcile.rollout.drain import shift_replicas
from tonnage.reconcile.rollout.live_adapters import plan_adapter_calls
from tonnage.reconcile.rollout.pending_scale import (
    scale_reserved,
    scale_secondary,
    scales_down,
    scales_in_force,
)
from tonnage.reconcile.rollout.placements import image_of, inspect_secondary, roll_out
from tonnage.reconcile.rollout.prefetch import plan_prefetch
from tonnage.reconcile.rollout.review import review, without_recovered
from tonnage.reconcile.rollout.rollback import (
    Rollback,
    find_rollback,
    find_rollback_of_running,
    pause_rollout,
    split_others,
)
from tonnage.reconcile.rollout.services import make_service
from tonnage.reconcile.rollout.strategy import is_carried_out, render
from tonnage.reconcile.rollout.weights import delete_unwanted_jobs, find_missing_weights
from tonnage.reconcile.scheduling.admission import UNCONTESTED, Admission
from tonnage.reconcile.scheduling.context import Dependencies, ReconcileContext, owner_of
from tonnage.reconcile.scheduling.migration_lock import (
    MigrationCandidate,
    candidate_of,
    is_under_way,
)
from tonnage.reconcile.scheduling.outcome import (
    Pending,
    PendingApproval,
    PlacementOutcome,
    Scheduled,
    Unschedulable,
    find_claims,
)
from tonnage.reconcile.scheduling.reservations import reserve_all
from tonnage.reconcile.scheduling.retain import waits_to_return
from tonnage.reconcile.status.scaling import scaling_before
from tonnage.reconcile.status.status import make_status
from tonnage.reconcile.status.status_input import StatusInput, make_status_input
from tonnage.telemetry.served_adapters import PodCalls


@dataclass(frozen=True)
class Plan:
    """Ordered actions, the input of the status, and the GPUs to reserve meanwhile.

    `optional` actions come after all others; the failure of one is only reported. So do those of
    `budget`, on the PodDisruptionBudget, whose failure is logged. `children` are
    the objects that the replicas are to run as, complete, whether or not they have to be written
    now. `waits_for_capacity`: the key is woken when GPUs become free, of which the object would
    take `claims`. `is_migrating`: it has left a pool and not all replicas serve from the new one
    yet. `migration_candidate` is set where it is to leave its pool by choice. `corrections` are
    what its replicas show about memory, for later plans; `adapter_calls` go to running pods.
    """

    observation: Observation
    now: datetime
    status_input: StatusInput
    reservations: tuple[Reservation, ...]
    actions: tuple[Action, ...] = ()
    requeue: Requeue = field(default_factory=Requeue)
    optional: tuple[Action, ...] = ()
    budget: tuple[Action, ...] = ()
    children: tuple[Object, ...] = ()
    waits_for_capacity: bool = False
    claims: tuple[Reservation, ...] = ()
    is_migrating: bool = False
    migration_candidate: MigrationCandidate | None = None
    corrections: tuple[MemoryCorrection, ...] = ()
    adapter_calls: tuple[PodCalls, ...] = ()

    @cached_property
    def status(self) -> InferenceDeploymentStatus:
        """The status to report. A plan with another StatusInput has another status."""
        return make_status(self.observation, self.status_input, self.now)

    @property
    def all_actions(self) -> tuple[Action, ...]:
        """All actions, the optional ones included."""
        return (*self.actions, *self.optional, *self.budget, *self.status_input.prefetch.actions)


def make_plan(
    observation: Observation,
    fleet: Fleet,
    dependencies: Dependencies,
    now: datetime,
    admission: Admission = UNCONTESTED,
) -> Plan:
    """Plan the next step that brings the object closer to its spec; `admission` is what other
    objects leave to it."""
    plan = _with_gateway(_plan_replicas(observation, fleet, dependencies, now, admission))
    status_input, actions = plan.status_input, plan.actions
    if not status_input.is_carried_out:
        actions = (*create_deleted(observation, fleet, actions), *actions)
    wanted = status_input.wanted if isinstance(status_input.accepted, Accepted) else None
    budget = plan_budget(observation, wanted, plan.children)
    endpoints = plan_endpoints(observation, status_input)
    # A change of the load sends no event, and the Hub sends none either.
    sample = dependencies.scaling_interval_seconds if status_input.scaling else None
    calls, again = plan_adapter_calls(observation, status_input.accepted)
    due = plan.requeue.or_after(sample).or_after(observation.asks_hub_after_seconds)
    due = due.or_after(delays.REQUEUE_NOW if endpoints.listing else None)
    return replace(
        plan,
        actions=(*actions, *delete_unwanted_jobs(observation), *endpoints.actions),
        budget=budget.actions,
        children=(*plan.children, *budget.children, *endpoints.children),
        status_input=replace(status_input, endpoints=endpoints.findings),
        adapter_calls=calls,
        requeue=due.or_after(again),
    )


def plan_refusal(observation: Observation, refused: Refused, now: datetime) -> Plan:
    """Plan what remains when a plan cannot be carried out: release GPUs that no replica can use,
    and report why."""
    return _with_gateway(_keep_serving(observation, refused, now))


def plan_without_right(plan: Plan, right: Right) -> Plan:
    """Plan what remains when the operator lacks a right: the findings, and the missing right.

    Only what exists is reserved, since other objects may be able to go on.
    """
    status_input = replace(plan.status_input, missing_right=right)
    remainder = _keep_all(plan.observation, plan.now, status_input)
    return _with_gateway(replace(remainder, requeue=Requeue(delays.REQUEUE_FORBIDDEN)))


def with_optional_child_error(plan: Plan, error: OptionalChildError) -> Plan:
    """The plan as carried out except for its optional actions, with the error that stopped them."""
    return _with_pool_finding(plan, plan_without_pool(error))


def _plan_replicas(
    observation: Observation,
    fleet: Fleet,
    dependencies: Dependencies,
    now: datetime,
    admission: Admission,
) -> Plan:
    """Plan the replicas and their Service, independent of all optional children."""
    catalog = keep_release(observation, dependencies.catalog)
    accepted = accept(observation, catalog)
    if isinstance(accepted, Refused):
        return _keep_serving(observation, accepted, now)
    by_load = follow_load(observation, dependencies.scaling_interval_seconds, now)
    accepted = replace(accepted, by_load=by_load)
    attempts = attempts_now(observation, accepted.spec, fleet, catalog)
    context = ReconcileContext(
        observation, accepted, fleet, dependencies, catalog, now, admission, attempts
    )
    context = without_recovered(context)
    outcome, approval = settle(context)
    if accepted.spec.rollout.paused:
        return _pause(context, outcome, approval)
    if isinstance(outcome, Scheduled):
        return _await_weights(context, outcome, _carry_out(context, outcome, approval))
    return _wait(context, outcome, approval)


def _with_gateway(plan: Plan) -> Plan:
    """The plan with the actions on the InferencePool of the replicas."""
    has_children, owner = bool(plan.children), owner_of(plan.observation)
    gateway = plan_gateway(plan.observation, owner, placed=has_children)
    plan = replace(plan, optional=gateway.actions, children=(*plan.children, *gateway.children))
    return _with_pool_finding(plan, gateway)


def _with_pool_finding(plan: Plan, gateway: GatewayPlan) -> Plan:
    status_input = replace(plan.status_input, inference_pool=gateway.finding)
    requeue = plan.requeue.or_after(gateway.again_seconds)
    return replace(plan, status_input=status_input, requeue=requeue)


def _keep_all(observation: Observation, now: datetime, status_input: StatusInput) -> Plan:
    """A plan without actions: what exists goes on as it is."""
    return Plan(
        observation,
        now,
        status_input,
        reservations=reserve_all(observation.key, observation.deployments),
        is_migrating=is_under_way(observation.deployments),
    )


def _keep_serving(observation: Observation, refused: Refused, now: datetime) -> Plan:
    """Change nothing that may serve, except for the number of replicas, where fewer are requested.
    Where the refusal only means that the model is unknown for now, the previous status stays."""
    idle_actions, scaling = give_back(observation, refused), scaling_before(observation)
    remembered = None
    if refused.pending or refused.reason is Reason.MODEL_SOURCE_UNREACHABLE:
        remembered = read_remembered(observation.previous_status, observation.generation)
    target = serving_deployment(observation) if remembered else None
    status_input = StatusInput(remembered or refused, target=target, scaling=scaling)
    plan = replace(
        _keep_all(observation, now, status_input),
        requeue=Requeue(delays.REQUEUE_NOW if idle_actions else refused.retry_after_seconds),
    )
    if idle_actions and was_refused(observation, refused.reason):
        return replace(plan, actions=idle_actions)
    return _with_scales(plan, scales_down(observation))


def _wait(
    context: ReconcileContext,
    outcome: Pending | Unschedulable | PendingApproval,
    approval: ApprovalState,
) -> Plan:
    """Without capacity, a fit or an approval, running replicas go on and free GPUs wake the key.
    Where what runs has failed, the plan that served before runs in its stead."""
    if not isinstance(outcome, Pending):
        rollback = find_rollback_of_running(context)
        if rollback is not None:
            return _roll_back(context, outcome, rollback, approval)
    until = outcome.until if isinstance(outcome, Pending) else None
    plan = replace(
        _keep_all(context.observation, context.now, make_status_input(context, outcome, approval)),
        requeue=Requeue.at_first(context.now, until),
        waits_for_capacity=True,
        claims=find_claims(outcome, context.observation, proposed=approval.is_proposed),
    )
    # No pool takes the new spec, so what runs by the old one does not grow for it.
    may_grow = not isinstance(outcome, Unschedulable)
    return _with_scales(plan, scales_in_force(context, may_grow=may_grow))


def _with_scales(plan: Plan, scales: Iterable[Scale]) -> Plan:
    """The plan that also scales what runs, with the reservations that follow."""
    actions = tuple(scales)
    reservations = scale_reserved(plan.reservations, actions)
    return replace(plan, actions=(*plan.actions, *actions), reservations=reservations)


def _carry_out(context: ReconcileContext, placed: Scheduled, approval: ApprovalState) -> Plan:
    """Roll out the children of the placement; old placements drain. Where this plan has failed
    before, the plan that served last runs in its stead."""
    observation, now = context.observation, context.now
    deployment = render(context, placed)
    terms = terms_of(placed, deployment.body)
    rollback = find_rollback(context, placed, terms, deployment.body)
    if rollback is not None:
        return _roll_back(context, placed, rollback, approval)
    rollout = roll_out(context, placed, deployment, approval)
    reviewed = review(context, rollout)
    plan_failed = reviewed.attempts.failed != context.attempts.failed
    status_input = replace(
        make_status_input(context, placed, approval),
        target=rollout.first.target,
        image=image_of(deployment.body),
        readings=reviewed.readings,
        attempts=reviewed.attempts,
        plan=terms.hash,
        secondary=rollout.secondary,
        plan_failed=plan_failed,
        update=find_update(context, placed, deployment),
        prefetch=plan_prefetch(context, placed, rollout.first.target),
    )
    starts_migration = placed.last_migration is not None and placed.last_migration.at == now
    return Plan(
        observation,
        now,
        status_input,
        actions=rollout.actions,
        reservations=rollout.reservations,
        requeue=Requeue.at_first(now, placed.leaves_at, placed.moves_at).or_after(
            delays.REQUEUE_NOW if plan_failed else status_input.prefetch.again_seconds
        ),
        children=(*rollout.children, *status_input.prefetch.children),
        waits_for_capacity=placed.is_short or waits_to_return(context.spec, placed.last_migration),
        claims=find_claims(placed, observation, proposed=approval.is_proposed),
        is_migrating=starts_migration or is_under_way(observation.deployments),
        migration_candidate=candidate_of(
            placed.migration, observation.key, proposed=approval.is_proposed
        ),
        corrections=reviewed.corrections,
    )


def _await_weights(context: ReconcileContext, placed: Scheduled, plan: Plan) -> Plan:
    """The plan; while its weights are downloaded, what runs goes on and no GPU is reserved."""
    missing = find_missing_weights(context, placed)
    if missing is None or plan.status_input.rollback is not None:
        return plan
    status_input = replace(plan.status_input, weights=missing)
    held = replace(
        _keep_all(context.observation, context.now, status_input),
        actions=missing.actions,
        children=(*missing.children, *plan.children),
        requeue=Requeue(missing.again_seconds),
    )
    return _with_scales(held, scales_in_force(context))


def _roll_back(
    context: ReconcileContext,
    outcome: Scheduled | Unschedulable | PendingApproval,
    rollback: Rollback,
    approval: ApprovalState,
) -> Plan:
    """Run the last plan that served; newer placements drain as its replicas become ready."""
    observation, service = context.observation, make_service(context.observation)
    secondary, old = split_others(context, rollback)
    drain = shift_replicas(observation.key, old, rollback.settled, rollback.replicas)
    scales = tuple(scale_secondary(secondary, rollback.wanted - rollback.replicas))
    waits = not isinstance(outcome, Scheduled)
    return Plan(
        observation,
        context.now,
        make_status_input(context, outcome, approval, rollback),
        actions=(
            *apply_if_changed(SERVICES, service, observation.service),
            *rollback.actions,
            *scales,
            *drain.actions,
        ),
        reservations=(
            rollback.reservation(observation.key),
            *scale_reserved(reserve_all(observation.key, secondary), scales),
            *drain.reservations,
        ),
        children=(service, rollback.body, *(deployment.child.body for deployment in secondary)),
        waits_for_capacity=waits,
        claims=find_claims(outcome, observation, proposed=approval.is_proposed) if waits else (),
        is_migrating=is_under_way(observation.deployments),
    )


def _pause(context: ReconcileContext, outcome: PlacementOutcome, approval: ApprovalState) -> Plan:
    """Replace and migrate nothing, and stop rollouts that Kubernetes has begun; only the number of
    replicas is followed."""
    observation = context.observation
    running = newest(observation.deployments)
    target = running if running and is_carried_out(context, outcome, running) else None
    status_input = replace(
        make_status_input(context, outcome, approval),
        target=target,
        image=image_of(target.child.body) if target else "",
        secondary=inspect_secondary(context, outcome) if isinstance(outcome, Scheduled) else (),
        update=find_update(context, outcome, render(context, outcome))
        if target and isinstance(outcome, Scheduled)
        else None,
    )
    plan = replace(
        _keep_all(observation, context.now, status_input),
        actions=tuple(
            action for deployment in observation.deployments for action in pause_rollout(deployment)
        ),
        children=tuple(deployment.child.body for deployment in observation.deployments),
    )
    return _with_service(plan if plan.actions else _with_scales(plan, scales_in_force(context)))


def _with_service(plan: Plan) -> Plan:
    """The plan with the Service of what runs, which is marked before an InferencePool is made."""
    observation = plan.observation
    if not observation.deployments:
        return plan
    service = make_service(observation)
    actions = (*apply_if_changed(SERVICES, service, observation.service), *plan.actions)
    return replace(plan, actions=actions, children=(service, *plan.children))
