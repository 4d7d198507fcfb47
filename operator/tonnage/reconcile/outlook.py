"""What one reconcile came to: the findings behind the conditions, told in sentences."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.inference import Approval
from tonnage.fit.weights import stored_bytes
from tonnage.reconcile.accept import Accepted, Refused
from tonnage.reconcile.approval import UNASKED, Proposal, Standing
from tonnage.reconcile.attempts import Attempts
from tonnage.reconcile.beside import Beside
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.failures import PodFailure
from tonnage.reconcile.findings import Finding, format_time, read_finding
from tonnage.reconcile.measurement import Reading, find_accuracy
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outcome import (
    Pending,
    PendingApproval,
    PlacementOutcome,
    Scheduled,
    Unschedulable,
    tell_shares,
    tell_short,
)
from tonnage.reconcile.remember import Remembered
from tonnage.reconcile.rollback import WayBack
from tonnage.reconcile.rolled_back import find_rolled_back
from tonnage.reconcile.serving import failure_to_serve
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


_PAUSED: Final = "spec.rollout.paused is true: no replica is replaced or moved"


@dataclass(frozen=True, slots=True)
class Outlook:
    """The plan so far: was the spec accepted, where do the replicas belong, and on what.

    `target` is the Deployment that already is what was rendered; None while it has to be applied.
    `readings` are what vLLM measured, of each placement that told. `attempts` is what is known of
    plans, None where that could not be looked at; `plan` the hash of the one that is carried out,
    `way_back` the one that runs in the stead of another that failed. `beside` are the placements
    beside the first. `goes_on`: a plan was just found to have failed, which the next look will act
    on.
    """

    accepted: Accepted | Refused | Remembered
    placing: PlacementOutcome | None = None
    target: ChildDeployment | None = None
    image: str = ""
    standing: Standing = UNASKED
    readings: tuple[Reading, ...] = ()
    attempts: Attempts | None = None
    plan: str = ""
    way_back: WayBack | None = None
    beside: tuple[Beside, ...] = ()
    goes_on: bool = False

    @property
    def paused(self) -> bool:
        """Whether nothing is to be replaced or moved (spec.rollout.paused)."""
        return isinstance(self.accepted, Accepted) and bool(self.accepted.spec.rollout.paused)

    @property
    def targets(self) -> tuple[ChildDeployment | None, ...]:
        """That of each placement that is to carry replicas, the first one's first."""
        return (self.target, *(one.target for one in self.beside))

    @property
    def ready(self) -> int:
        """Replicas that answer, and already are what was rendered."""
        return sum(found.ready for found in self.targets if found is not None)

    @property
    def wanted(self) -> int:
        """Replicas that the workload or the user wants: on the pool that was taken, else on the one
        that came closest; 0 while that is not known."""
        if isinstance(self.accepted, Remembered):
            return self.accepted.status.desired_replicas
        if self.way_back is not None:
            return self.way_back.wanted
        if isinstance(self.placing, Scheduled):
            return self.placing.wanted
        if isinstance(self.placing, PendingApproval):
            return self.placing.placed.wanted
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
    failure = _find_failure(observation, outlook.placing)
    available = _find_available(observation, outlook, placed, failure)
    if outlook.way_back is not None:
        return [accepted, placed, *find_rolled_back(outlook.way_back, available)]
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
        _find_stalled(outlook, ready, accepted, placed, failure),
        *_find_accuracy(observation, outlook),
    ]


def _find_failure(observation: Observation, placing: PlacementOutcome | None) -> PodFailure | None:
    """The first failure of the placements that are to carry replicas."""
    if not isinstance(placing, Scheduled):
        return failure_to_serve(observation, None)
    options = (placing.option, *(share.option for share in placing.beside))
    failures = (failure_to_serve(observation, placement_name(option)) for option in options)
    return next((failure for failure in failures if failure is not None), None)


def _find_accuracy(observation: Observation, outlook: Outlook) -> list[Finding]:
    """Whether the prediction held, where that is known; where no plan was made, what was known."""
    if isinstance(outlook.placing, Scheduled):
        spread = bool(outlook.placing.beside)
        return [find_accuracy(outlook.readings, spread=spread)] if outlook.readings else []
    kind = ConditionType.PREDICTION_ACCURATE
    before = observation.previous_status.get("conditions") or []
    return [read_finding(one) for one in before if one["type"] == kind and observation.deployments]


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
        case Unschedulable(decision):
            return Finding(ConditionType.PLACED, False, decision.reason, decision.message)
        case PendingApproval():
            told = str(outlook.standing.proposal)
            return Finding(ConditionType.PLACED, False, Reason.AWAITING_APPROVAL, told)
        case Pending(_, current, why, until):
            told = f"pool {current.pool} cannot take the replicas: {why}"
            stays = "those that run there stay" if until is None else _tell_leaving(outlook, until)
            return _tell_waiting(told, stays, outlook.standing.proposal)
        case Scheduled():
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


def _tell_placed(outlook: Outlook, placed: Scheduled) -> Finding:
    """Placed means room now; nodes that an autoscaler may come to add are none yet."""
    message, option = tell_shares(placed) or placed.decision.message, placed.option
    if option.replicas == 0:
        told = _tell_zero(outlook.accepted)
        return Finding(ConditionType.PLACED, True, Reason.SCALED_TO_ZERO, told)
    proposal = outlook.standing.proposal
    if placed.is_short:
        leaves = f"{_tell_leaving(outlook, placed.leaves_at)}; " if placed.leaves_at else ""
        several = placed.beside and not placed.silent
        have = "the pools have" if several else f"pool {option.pool.name} has"
        told = f"{have} {tell_short(placed)}"
        return _tell_waiting(told, f"{leaves}{message}", proposal)
    if proposal is not None:
        message = f"{message}; {proposal}"
    return Finding(ConditionType.PLACED, True, Reason.POOL_CHOSEN, message)


def _tell_zero(accepted: Accepted | Refused | Remembered) -> str:
    if isinstance(accepted, Accepted) and accepted.demanded is not None:
        return "nobody asks for anything: no replica is kept for it (spec.scaling.scaleToZero)"
    return "spec.replicas is 0: nothing is to be served"


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
    if isinstance(outlook.placing, Scheduled) and outlook.wanted == 0:
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
    ready, wanted, targets = outlook.ready, outlook.wanted, outlook.targets
    settled = all(found is not None and found.settled for found in targets)
    in_place = settled and len(observation.deployments) == len(targets)
    if outlook.paused and not in_place:
        return Finding(kind, False, Reason.ROLLOUT_PAUSED, f"{_PAUSED}; a change waits")
    if not in_place:
        updated = f"{ready} of {wanted} replicas"
        return Finding(kind, False, Reason.ROLLING_OUT, f"rolling out: {updated} are ready")
    if ready < wanted:
        told = f"{ready} of {wanted} replicas are ready; loading a model takes minutes"
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
    if outlook.paused:
        return Finding(kind, False, Reason.ROLLOUT_PAUSED, _PAUSED)
    if ready.holds:
        return Finding(kind, False, Reason.SETTLED, "nothing is left to do")
    if _is_moving(outlook) and not _lasts(outlook, failure):
        return Finding(kind, True, ready.reason, ready.message)
    return Finding(kind, False, Reason.WAITING, f"waiting: {ready.message}")


def _is_moving(outlook: Outlook) -> bool:
    """Whether replicas come or go; one that has all it was granted only waits for more GPUs."""
    if isinstance(outlook.accepted, Remembered):
        return outlook.accepted.placed.holds is True
    if not isinstance(outlook.placing, Scheduled):
        return False
    granted = (outlook.placing.granted, *(one.placed.granted for one in outlook.beside))
    has_all = all(
        found is not None and found.serves(replicas)
        for found, replicas in zip(outlook.targets, granted, strict=True)
    )
    return not has_all or sum(granted) == outlook.wanted


def _lasts(outlook: Outlook, failure: PodFailure | None) -> bool:
    """Whether a failure does not pass by itself: not that of a plan that another one follows, and
    not that of pods whose template was replaced."""
    if failure is None or failure.reason not in _PERSISTENT or outlook.goes_on:
        return False
    if not isinstance(outlook.placing, Scheduled) or failure.reason is Reason.CHILD_REFUSED:
        return True
    return any(found is not None and found.updated > 0 for found in outlook.targets)


def _find_stalled(
    outlook: Outlook,
    ready: Finding,
    accepted: Finding,
    placed: Finding,
    failure: PodFailure | None,
) -> Finding:
    """Without a change of the spec or the fleet nothing will get better. What waits for GPUs or for
    a person's word is not broken, and kstatus calls what is stalled failed."""
    waits = placed.reason in (Reason.INSUFFICIENT_GPUS, Reason.AWAITING_APPROVAL)
    holds = (
        accepted.holds is False or (placed.holds is False and not waits) or _lasts(outlook, failure)
    )
    return Finding(ConditionType.STALLED, holds, ready.reason, ready.message)
