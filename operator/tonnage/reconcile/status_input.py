"""All that one plan came to: what the status is made of, and nothing else."""

from dataclasses import dataclass

from tonnage.api.scaling_status import ScalingStatus
from tonnage.api.status import EndpointStatus
from tonnage.kube.rights import Right
from tonnage.reconcile.accept import Accepted, Refused
from tonnage.reconcile.approval import NOT_ASKED, ApprovalState
from tonnage.reconcile.attempts import Attempts
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.findings import Finding
from tonnage.reconcile.measurement import Reading
from tonnage.reconcile.outcome import PendingApproval, PlacementOutcome, Scheduled
from tonnage.reconcile.placements import SecondaryPlacement
from tonnage.reconcile.reported import Remembered, Unobserved
from tonnage.reconcile.rollback import Rollback


@dataclass(frozen=True, slots=True)
class EndpointFindings:
    """The endpoints as the status lists them; `findings` stand in place of the object's own, which
    is not ready before its endpoint for long requests is."""

    listed: tuple[EndpointStatus, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusInput:
    """Was the spec accepted, where do the replicas belong, what runs, and what did the integrations
    find?

    `target` is the Deployment that already is what was rendered, from this `image`; None while it
    has to be applied. `readings` are what vLLM measured, of each placement that told. `attempts` is
    what is known of plans, None where that was not looked into; `plan` the hash of the one that is
    carried out, `rollback` the one that runs in the stead of another that failed. `secondary` are
    the placements in addition to the first. `plan_failed`: a plan was just found to have failed,
    which the next reconcile acts on. `scaling` is what the measured load asks for. `endpoints` is
    None where they stay as the status lists them. `missing_right` is what keeps the operator from
    carrying the plan out, or from observing the object.
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
    secondary: tuple[SecondaryPlacement, ...] = ()
    plan_failed: bool = False
    scaling: ScalingStatus | None = None
    inference_pool: Finding | None = None
    endpoints: EndpointFindings | None = None
    missing_right: Right | None = None

    @property
    def paused(self) -> bool:
        """Whether nothing is to be replaced or moved (spec.rollout.paused)."""
        return isinstance(self.accepted, Accepted) and bool(self.accepted.spec.rollout.paused)

    @property
    def targets(self) -> tuple[ChildDeployment | None, ...]:
        """That of each placement that is to carry replicas, the first one's first."""
        return (self.target, *(one.target for one in self.secondary))

    @property
    def ready(self) -> int:
        """Replicas that answer, and already are what was rendered."""
        return sum(target.ready for target in self.targets if target is not None)

    @property
    def wanted(self) -> int:
        """Replicas that the workload or the user wants: on the pool that was taken, else on the one
        that came closest; 0 while that is not known."""
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
