"""The result of one plan, of which the status is made, and nothing else."""

from dataclasses import dataclass, replace

from tonnage.api.scaling import ScalingStatus
from tonnage.api.status import AvailableUpdate, EndpointStatus
from tonnage.kube.rights import Right
from tonnage.reconcile.accept import Accepted, Refused
from tonnage.reconcile.calibration import Reading
from tonnage.reconcile.observation.attempts import Attempts
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.deadline import is_overdue
from tonnage.reconcile.observation.findings import Finding
from tonnage.reconcile.observation.previous import Remembered, Unobserved
from tonnage.reconcile.rollout.approval.state import NOT_ASKED, ApprovalState
from tonnage.reconcile.rollout.placements import PlacementWorkload
from tonnage.reconcile.rollout.prefetch import NO_PREFETCH, PlannedPrefetch, end_prefetch
from tonnage.reconcile.rollout.rollback import Rollback
from tonnage.reconcile.rollout.weights import MissingWeights
from tonnage.reconcile.scheduling.context import ReconcileContext
from tonnage.reconcile.scheduling.holders import Holder, find_holders
from tonnage.reconcile.scheduling.outcome import PendingApproval, PlacementOutcome, Scheduled
from tonnage.reconcile.status.scaling import report_scaling


@dataclass(frozen=True, slots=True)
class EndpointFindings:
    """The endpoints as the status lists them; `findings` replace the object's own, which is not
    ready before its endpoint for long requests is."""

    listed: tuple[EndpointStatus, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusInput:
    """Was the spec accepted, where do the replicas belong, what runs, and what did the integrations
    find?

    `target` is the Deployment that already matches what was rendered, from this `image`; None while
    it has to be applied. `readings` are what engines measured, of placements with a measurement.
    `attempts` are the known outcomes of plans, None where they were not read; `plan` is the hash of
    the plan that is carried out, `rollback` the plan that runs in its stead. `secondary` are the
    placements in addition to the first. `plan_failed`: the failure of a plan was just found, which
    the next reconcile acts on. `scaling` is what the measured load requests. `endpoints` is None
    where they stay as the status lists them. `missing_right` is the right that the operator lacks
    to carry the plan out, or to observe the object. `holders` reserve the GPUs that it waits for.
    `overdue` are the Deployments whose replicas have not come up for longer than their deadline.
    `update` is what the operator would run the replicas with now, in place of what it retains.
    `weights` is why no workload is made for the placement yet, `prefetch` what is done to bring
    them to further nodes.
    """

    accepted: Accepted | Refused | Remembered | Unobserved
    outcome: PlacementOutcome | None = None
    target: ChildDeployment | None = None
    image: str = ""
    approval: ApprovalState = NOT_ASKED
    readings: tuple[Reading, ...] = ()
    attempts: Attempts | None = None
    plan: str = ""
    rollback: Rollback | None = None
    secondary: tuple[PlacementWorkload, ...] = ()
    plan_failed: bool = False
    scaling: ScalingStatus | None = None
    inference_pool: Finding | None = None
    endpoints: EndpointFindings | None = None
    missing_right: Right | None = None
    holders: tuple[Holder, ...] = ()
    overdue: frozenset[str] = frozenset()
    update: AvailableUpdate | None = None
    weights: MissingWeights | None = None
    prefetch: PlannedPrefetch = NO_PREFETCH

    @property
    def paused(self) -> bool:
        """Whether spec.rollout.paused forbids replacing or migrating replicas."""
        return isinstance(self.accepted, Accepted) and bool(self.accepted.spec.rollout.paused)

    @property
    def is_carried_out(self) -> bool:
        """Whether the children of a plan are made or changed, and none has to be awaited first."""
        return bool(self.plan) and self.weights is None

    @property
    def targets(self) -> tuple[ChildDeployment | None, ...]:
        """The target of each placement that is to carry replicas, the first placement's first."""
        return (self.target, *(secondary.target for secondary in self.secondary))

    @property
    def ready(self) -> int:
        """Ready replicas whose Deployment already matches what was rendered."""
        return sum(target.ready for target in self.targets if target is not None)

    @property
    def wanted(self) -> int:
        """Replicas that the workload or the user wants: on the chosen pool, else on the pool that
        came closest; 0 while that is unknown."""
        accepted = self.accepted
        if isinstance(accepted, Remembered | Unobserved):
            return accepted.status.desired_replicas
        if self.rollback is not None:
            return self.rollback.wanted
        if isinstance(self.outcome, Scheduled):
            return self.outcome.wanted
        if isinstance(self.outcome, PendingApproval):
            return self.outcome.placed.wanted
        if isinstance(accepted, Refused):
            return 0
        if accepted.spec.replicas is not None or self.outcome is None:
            return accepted.spec.replicas or 0
        options = (candidate.option for candidate in self.outcome.decision.candidates)
        return next((option.replicas for option in options if option is not None), 0)


def make_status_input(
    context: ReconcileContext,
    outcome: PlacementOutcome,
    approval: ApprovalState,
    rollback: Rollback | None = None,
) -> StatusInput:
    """The status input that plans of an accepted spec share."""
    if rollback is not None and approval.plan is not None:
        approval = replace(approval, plan=rollback.last.hash)
    return StatusInput(
        context.accepted,
        outcome,
        target=rollback.settled if rollback else None,
        approval=approval,
        attempts=context.attempts,
        rollback=rollback,
        scaling=report_scaling(context.accepted.by_load, outcome, rollback),
        holders=find_holders(context, outcome),
        overdue=frozenset(
            deployment.child.name
            for deployment in context.observation.deployments
            if is_overdue(context.observation, deployment, context.now)
        ),
        prefetch=end_prefetch(context),
    )
