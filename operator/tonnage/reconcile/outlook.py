"""What one reconcile came to: the findings behind the conditions, told in sentences."""

from dataclasses import dataclass
from datetime import datetime

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.inference import Approval
from tonnage.fit.weights import stored_bytes
from tonnage.reconcile.accept import Accepted, Refused
from tonnage.reconcile.approval import UNASKED, Awaiting, Proposal, Standing
from tonnage.reconcile.children import ChildDeployment, secret_values
from tonnage.reconcile.failures import PodFailure, find_failure, find_refusal
from tonnage.reconcile.findings import Finding, format_time
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.place import Held, Placed, Unplaced, tell_short
from tonnage.reconcile.remember import Remembered
from tonnage.render.names import placement_name

GIB = 2**30

_PERSISTENT = frozenset(
    {
        Reason.OUT_OF_MEMORY,
        Reason.SERVER_EXITED,
        Reason.CRASH_LOOPING,
        Reason.IMAGE_PULL_FAILED,
        Reason.CHILD_REFUSED,
    }
)
"""Failures that do not pass by themselves: they make the object Stalled."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The plan so far: was the spec accepted, where do the replicas belong, and on what.

    `target` is the Deployment that already is what was rendered; None while it has to be applied.
    """

    accepted: Accepted | Refused | Remembered
    placing: Placed | Held | Unplaced | Awaiting | None = None
    target: ChildDeployment | None = None
    image: str = ""
    standing: Standing = UNASKED

    @property
    def wanted(self) -> int:
        """Replicas that the workload or the user wants: on the pool that was taken, else on the one
        that came closest; 0 while that is not known."""
        if isinstance(self.accepted, Remembered):
            return self.accepted.status.desired_replicas
        if isinstance(self.placing, Placed):
            return self.placing.option.replicas
        if isinstance(self.placing, Awaiting):
            return self.placing.placed.option.replicas
        if isinstance(self.accepted, Refused):
            return 0
        if self.accepted.spec.replicas is not None or self.placing is None:
            return self.accepted.spec.replicas or 0
        options = (found.option for found in self.placing.decision.candidates)
        return next((option.replicas for option in options if option is not None), 0)


def find_all(observation: Observation, outlook: Outlook) -> list[Finding]:
    """All conditions of the object, in the order in which a person reads them."""
    accepted = _find_accepted(outlook.accepted)
    placed = _find_placed(outlook)
    failure = _find_failure(observation, outlook)
    available = _find_available(observation, outlook, placed, failure)
    ready = _find_ready(observation, outlook, (accepted, placed), failure)
    progressing = _find_progressing(outlook, ready, accepted, failure)
    return [
        accepted,
        placed,
        progressing,
        available,
        ready,
        Finding(
            ConditionType.RECONCILING,
            progressing.holds,
            progressing.reason,
            progressing.message,
        ),
        _find_stalled(ready, accepted, placed, failure),
    ]


def _find_accepted(accepted: Accepted | Refused | Remembered) -> Finding:
    if isinstance(accepted, Remembered):
        return accepted.accepted
    if isinstance(accepted, Refused):
        holds = None if accepted.pending else False
        return Finding(ConditionType.ACCEPTED, holds, accepted.reason, accepted.message)
    shape = accepted.checkpoint.shape
    size = accepted.checkpoint.weights_bytes or stored_bytes(shape)
    return Finding(
        ConditionType.ACCEPTED,
        True,
        Reason.VALID,
        f"{shape.architecture}, {size / GIB:.1f} GiB of weights,"
        f" {shape.max_position_embeddings} tokens of context",
    )


def _find_placed(outlook: Outlook) -> Finding:
    if isinstance(outlook.accepted, Remembered):
        return outlook.accepted.placed
    match outlook.placing:
        case None:
            return Finding(
                ConditionType.PLACED,
                None,
                Reason.NOT_ACCEPTED,
                "no pool was judged: the spec is not accepted",
            )
        case Unplaced(decision):
            return Finding(ConditionType.PLACED, False, decision.reason, decision.message)
        case Awaiting():
            told = str(outlook.standing.proposal)
            return Finding(ConditionType.PLACED, False, Reason.AWAITING_APPROVAL, told)
        case Held(_, current, why, until):
            told = f"pool {current.pool} cannot take the replicas: {why}"
            stays = "those that run there stay" if until is None else _tell_leaving(outlook, until)
            return _tell_waiting(told, stays, outlook.standing.proposal)
        case Placed():
            return _tell_placed(outlook, outlook.placing)


def _tell_leaving(outlook: Outlook, at: datetime) -> str:
    """A time, not the seconds to it: they would be another status at every look."""
    accepted = outlook.accepted
    manual = isinstance(accepted, Accepted) and accepted.spec.approval is Approval.MANUAL
    done = "proposed" if manual else "taken"
    return f"another pool is {done} at {format_time(at)} (spec.placement.fallback.after)"


def _tell_waiting(told: str, otherwise: str, proposal: Proposal | None) -> Finding:
    """GPUs are lacking; where a person can have another pool taken, that is what it waits for."""
    if proposal is not None:
        told = f"{told}; {proposal}"
        return Finding(ConditionType.PLACED, False, Reason.AWAITING_APPROVAL, told)
    told = f"{told}; {otherwise}"
    return Finding(ConditionType.PLACED, False, Reason.INSUFFICIENT_GPUS, told)


def _tell_placed(outlook: Outlook, placed: Placed) -> Finding:
    """Placed means room now; nodes that an autoscaler may come to add are none yet."""
    message, option = placed.decision.message, placed.option
    if option.replicas == 0:
        told = "spec.replicas is 0: nothing is to be served"
        return Finding(ConditionType.PLACED, True, Reason.SCALED_TO_ZERO, told)
    proposal = outlook.standing.proposal
    if placed.is_short:
        leaves = f"{_tell_leaving(outlook, placed.leaves_at)}; " if placed.leaves_at else ""
        told = f"pool {option.pool.name} has {tell_short(placed)}"
        return _tell_waiting(told, f"{leaves}{message}", proposal)
    if proposal is not None:
        message = f"{message}; {proposal}"
    return Finding(ConditionType.PLACED, True, Reason.POOL_CHOSEN, message)


def _find_failure(observation: Observation, outlook: Outlook) -> PodFailure | None:
    """The failure of the placement and template that are to serve; those of old ones leave."""
    placements = (
        {placement_name(outlook.placing.option)} if isinstance(outlook.placing, Placed) else None
    )
    pods = [pod for pod in observation.pods if placements is None or pod.placement in placements]
    newest = {pod.placement: pod.template for pod in pods}  # pods are sorted, the oldest first
    serving = [pod for pod in pods if pod.template == newest[pod.placement]]
    secrets = {value for found in observation.deployments for value in secret_values(found)}
    return find_failure(serving, observation.logs, secrets) or find_refusal(
        found
        for found in observation.deployments
        if placements is None or found.placement in placements
    )


def _find_available(
    observation: Observation, outlook: Outlook, placed: Finding, failure: PodFailure | None
) -> Finding:
    ready = sum(found.ready for found in observation.deployments)
    kind = ConditionType.AVAILABLE
    if ready > 0:
        total = max(outlook.wanted, sum(found.wanted for found in observation.deployments))
        return Finding(kind, True, Reason.REPLICAS_READY, f"{ready} of {total} replicas answer")
    if failure is not None:
        return Finding(kind, False, failure.reason, str(failure))
    if not observation.deployments and placed.holds is not True:
        return Finding(kind, False, Reason.NOT_PLACED, "no replica exists")
    if isinstance(outlook.placing, Placed) and outlook.wanted == 0:
        return Finding(kind, False, Reason.SCALED_TO_ZERO, placed.message)
    return Finding(kind, False, Reason.CONTAINERS_NOT_READY, "no replica answers yet")


def _find_ready(
    observation: Observation,
    outlook: Outlook,
    earlier: tuple[Finding, Finding],
    failure: PodFailure | None,
) -> Finding:
    """True for all wanted replicas of this very spec, else the first cause in the same words."""
    kind = ConditionType.READY
    for finding in earlier:
        if finding.holds is not True:
            return Finding(kind, False, finding.reason, finding.message)
    if failure is not None:
        return Finding(kind, False, failure.reason, str(failure))
    target, wanted = outlook.target, outlook.wanted
    if target is None or not target.settled or len(observation.deployments) > 1:
        updated = f"{target.ready if target else 0} of {wanted} replicas"
        return Finding(kind, False, Reason.ROLLING_OUT, f"rolling out: {updated} are ready")
    if target.ready < wanted:
        told = f"{target.ready} of {wanted} replicas are ready; loading a model takes minutes"
        return Finding(kind, False, Reason.CONTAINERS_NOT_READY, told)
    if wanted == 0:
        return Finding(kind, True, Reason.SCALED_TO_ZERO, earlier[1].message)
    return Finding(kind, True, Reason.REPLICAS_READY, f"{wanted} of {wanted} replicas are ready")


def _find_progressing(
    outlook: Outlook,
    ready: Finding,
    accepted: Finding,
    failure: PodFailure | None,
) -> Finding:
    kind = ConditionType.PROGRESSING
    if accepted.holds is None:
        return Finding(kind, True, accepted.reason, accepted.message)
    if ready.holds:
        return Finding(kind, False, Reason.SETTLED, "nothing is left to do")
    if _is_moving(outlook) and (failure is None or failure.reason not in _PERSISTENT):
        return Finding(kind, True, ready.reason, ready.message)
    return Finding(kind, False, Reason.WAITING, f"waiting: {ready.message}")


def _is_moving(outlook: Outlook) -> bool:
    """Whether replicas come or go; one that has all it was granted only waits for more GPUs."""
    if isinstance(outlook.accepted, Remembered):
        return outlook.accepted.placed.holds is True
    if not isinstance(outlook.placing, Placed):
        return False
    target, granted = outlook.target, outlook.placing.granted
    has_all = target is not None and target.settled and target.ready >= granted
    return not has_all or granted == outlook.wanted


def _find_stalled(
    ready: Finding,
    accepted: Finding,
    placed: Finding,
    failure: PodFailure | None,
) -> Finding:
    """Without a change of the spec or the fleet nothing will get better. What waits for GPUs or for
    a person's word is not broken, and kstatus calls what is stalled failed."""
    waits = placed.reason in (Reason.INSUFFICIENT_GPUS, Reason.AWAITING_APPROVAL)
    holds = (
        accepted.holds is False
        or (placed.holds is False and not waits)
        or (failure is not None and failure.reason in _PERSISTENT)
    )
    return Finding(ConditionType.STALLED, holds, ready.reason, ready.message)
