"""From all that was found to conditions: the contract with kubectl wait, Argo CD and kstatus."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from tonnage.api.conditions import MAX_MESSAGE_BYTES, Condition, ConditionType, Reason
from tonnage.api.inference import Approval
from tonnage.api.redact import redact
from tonnage.api.status import FailedPlan, PlacementStatus
from tonnage.api.text import truncate
from tonnage.fit.model import Parallelism
from tonnage.fit.weights import stored_bytes
from tonnage.kube.rights import Right
from tonnage.placement.messages import GIB, format_split
from tonnage.reconcile.accept import Accepted, Refused
from tonnage.reconcile.by_load import find_scaling
from tonnage.reconcile.failures import PodFailure
from tonnage.reconcile.findings import Finding, format_time
from tonnage.reconcile.measurement import find_accuracy
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outcome import (
    Pending,
    PendingApproval,
    Scheduled,
    Unschedulable,
    format_shares,
    format_shortage,
)
from tonnage.reconcile.proposal import Proposal
from tonnage.reconcile.reported import Remembered, Unobserved, read_finding
from tonnage.reconcile.rollback import Rollback
from tonnage.reconcile.serving import failure_to_serve
from tonnage.reconcile.status_input import StatusInput
from tonnage.render.names import placement_name

_ABNORMAL_TRUE: Final = frozenset(
    {ConditionType.RECONCILING, ConditionType.STALLED, ConditionType.DEGRADED}
)

_PERSISTENT: Final = frozenset(
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


def make_conditions(
    findings: Iterable[Finding],
    previous: Iterable[Mapping[str, Any]],
    generation: int,
    now: datetime,
) -> list[Condition]:
    """Conditions with times: a time changes only when the status does.

    Reconciling, Stalled and Degraded are abnormal-true (kstatus): listed only while they hold.
    """
    before = {condition.get("type"): condition for condition in previous}
    return [
        Condition(
            type=finding.type,
            status=finding.status,
            observed_generation=generation,
            last_transition_time=_transition_time(finding, before.get(finding.type), now),
            reason=finding.reason,
            message=truncate(redact(finding.message), MAX_MESSAGE_BYTES),
        )
        for finding in findings
        if finding.holds or finding.type not in _ABNORMAL_TRUE
    ]


def _transition_time(finding: Finding, before: Mapping[str, Any] | None, now: datetime) -> str:
    if before is not None and before.get("status") == finding.status:
        return str(before["lastTransitionTime"])
    return format_time(now)


def all_findings(observation: Observation, found: StatusInput) -> list[Finding]:
    """What becomes the object's conditions, in the order in which a person reads them: what was
    found of its own replicas, then what the integrations contribute."""
    findings = own_findings(observation, found)
    contributed = [] if found.inference_pool is None else [found.inference_pool]
    if found.missing_right is not None:
        observed = not isinstance(found.accepted, Unobserved)
        findings = _without_right(findings, found.missing_right, observed=observed)
    elif found.endpoints is not None:
        contributed += found.endpoints.findings
    replaced = {finding.type for finding in contributed}
    return [*(finding for finding in findings if finding.type not in replaced), *contributed]


def own_findings(observation: Observation, found: StatusInput) -> list[Finding]:
    """What was found of the object's own replicas, whatever becomes of its integrations."""
    if isinstance(found.accepted, Unobserved):
        return list(found.accepted.findings)
    accepted, placed = _accepted(found.accepted), _placed(found)
    failure = _first_failure(observation, found)
    available = _available(observation, found, placed, failure)
    if found.rollback is not None:
        return [accepted, placed, *_rolled_back(found.rollback, available), *_scaling(found)]
    ready = _ready(observation, found, (accepted, placed), failure)
    progressing = _progressing(found, ready, accepted, failure)
    return [
        accepted,
        placed,
        progressing,
        available,
        ready,
        _reconciling(progressing),
        _stalled(found, ready, accepted, placed, failure),
        *_accuracy(observation, found),
        *_scaling(found),
    ]


def _accepted(accepted: Accepted | Refused | Remembered) -> Finding:
    kind = ConditionType.ACCEPTED
    if isinstance(accepted, Remembered):
        return accepted.accepted
    if isinstance(accepted, Refused):
        holds = None if accepted.pending else False
        return Finding(kind, holds, accepted.reason, accepted.message)
    shape = accepted.checkpoint.shape
    size = accepted.checkpoint.weights_bytes or stored_bytes(shape)
    message = (
        f"{shape.architecture}, {size / GIB:.1f} GiB of weights,"
        f" {shape.max_position_embeddings} tokens of context"
    )
    return Finding(kind, True, Reason.VALID, message)


def _placed(found: StatusInput) -> Finding:
    kind = ConditionType.PLACED
    if isinstance(found.accepted, Remembered):
        return found.accepted.placed
    match found.outcome:
        case None:
            message = "no pool was judged: the spec is not accepted"
            return Finding(kind, None, Reason.NOT_ACCEPTED, message)
        case Unschedulable(decision):
            return Finding(kind, False, decision.reason, decision.message)
        case PendingApproval():
            return Finding(kind, False, Reason.AWAITING_APPROVAL, str(found.approval.proposal))
        case Pending(_, current, why, until):
            message = f"pool {current.pool} cannot take the replicas: {why}"
            stays = "those that run there stay" if until is None else _leaving(found, until)
            return _short_of_gpus(message, stays, found.approval.proposal)
        case Scheduled():
            return _scheduled(found, found.outcome)


def _leaving(found: StatusInput, at: datetime) -> str:
    """A time, not the seconds to it: they would be another status at every reconcile."""
    accepted = found.accepted
    manual = isinstance(accepted, Accepted) and accepted.spec.approval is Approval.MANUAL
    done = "proposed" if manual else "taken"
    return f"another pool is {done} at {format_time(at)} (spec.placement.fallback.after)"


def _short_of_gpus(message: str, otherwise: str, proposal: Proposal | None) -> Finding:
    """GPUs are lacking; where a person can have another pool taken, that is what it waits for."""
    kind = ConditionType.PLACED
    if proposal is not None:
        return Finding(kind, False, Reason.AWAITING_APPROVAL, f"{message}; {proposal}")
    return Finding(kind, False, Reason.INSUFFICIENT_GPUS, f"{message}; {otherwise}")


def _scheduled(found: StatusInput, placed: Scheduled) -> Finding:
    """Placed means room now; nodes that an autoscaler may come to add are none yet."""
    message, option = format_shares(placed) or placed.decision.message, placed.option
    if option.replicas == 0:
        return Finding(ConditionType.PLACED, True, Reason.SCALED_TO_ZERO, _zero(found))
    proposal = found.approval.proposal
    if placed.is_short:
        leaves = f"{_leaving(found, placed.leaves_at)}; " if placed.leaves_at else ""
        several = placed.beside and not placed.silent
        have = "the pools have" if several else f"pool {option.pool.name} has"
        shortage = f"{have} {format_shortage(placed)}"
        return _short_of_gpus(shortage, f"{leaves}{message}", proposal)
    if proposal is not None:
        message = f"{message}; {proposal}"
    return Finding(ConditionType.PLACED, True, Reason.POOL_CHOSEN, message)


def _zero(found: StatusInput) -> str:
    if isinstance(found.accepted, Accepted) and found.accepted.demanded is not None:
        return "nobody asks for anything: no replica is kept for it (spec.scaling.scaleToZero)"
    return "spec.replicas is 0: nothing is to be served"


def _first_failure(observation: Observation, found: StatusInput) -> PodFailure | None:
    """The first failure of the placements that are to carry replicas."""
    if not isinstance(found.outcome, Scheduled):
        return failure_to_serve(observation, None)
    options = (found.outcome.option, *(share.option for share in found.outcome.beside))
    failures = (failure_to_serve(observation, placement_name(option)) for option in options)
    return next((failure for failure in failures if failure is not None), None)


def _available(
    observation: Observation, found: StatusInput, placed: Finding, failure: PodFailure | None
) -> Finding:
    ready = sum(deployment.ready for deployment in observation.deployments)
    kind = ConditionType.AVAILABLE
    if ready > 0:
        total = max(found.wanted, sum(deployment.wanted for deployment in observation.deployments))
        return Finding(kind, True, Reason.REPLICAS_READY, f"{ready} of {total} replicas answer")
    if failure is not None:
        return Finding(kind, False, failure.reason, str(failure))
    if not observation.deployments and placed.holds is not True:
        return Finding(kind, False, Reason.NOT_PLACED, "no replica exists")
    if isinstance(found.outcome, Scheduled) and found.wanted == 0:
        return Finding(kind, False, Reason.SCALED_TO_ZERO, placed.message)
    return Finding(kind, False, Reason.CONTAINERS_NOT_READY, "no replica answers yet")


def _ready(
    observation: Observation,
    found: StatusInput,
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
    ready, wanted, targets = found.ready, found.wanted, found.targets
    settled = all(target is not None and target.settled for target in targets)
    in_place = settled and len(observation.deployments) == len(targets)
    if found.paused and not in_place:
        return Finding(kind, False, Reason.ROLLOUT_PAUSED, f"{_PAUSED}; a change waits")
    if not in_place:
        updated = f"{ready} of {wanted} replicas"
        return Finding(kind, False, Reason.ROLLING_OUT, f"rolling out: {updated} are ready")
    if ready < wanted:
        message = f"{ready} of {wanted} replicas are ready; loading a model takes minutes"
        return Finding(kind, False, Reason.CONTAINERS_NOT_READY, message)
    if wanted == 0:
        return Finding(kind, True, Reason.SCALED_TO_ZERO, earlier[1].message)
    return Finding(kind, True, Reason.REPLICAS_READY, f"{wanted} of {wanted} replicas are ready")


def _progressing(
    found: StatusInput, ready: Finding, accepted: Finding, failure: PodFailure | None
) -> Finding:
    kind = ConditionType.PROGRESSING
    if accepted.holds is None:
        return Finding(kind, True, accepted.reason, accepted.message)
    if found.paused:
        return Finding(kind, False, Reason.ROLLOUT_PAUSED, _PAUSED)
    if ready.holds:
        return Finding(kind, False, Reason.SETTLED, "nothing is left to do")
    if _replicas_change(found) and not _lasts(found, failure):
        return Finding(kind, True, ready.reason, ready.message)
    return Finding(kind, False, Reason.WAITING, f"waiting: {ready.message}")


def _reconciling(progressing: Finding) -> Finding:
    """The same for kstatus."""
    kind = ConditionType.RECONCILING
    return Finding(kind, progressing.holds, progressing.reason, progressing.message)


def _replicas_change(found: StatusInput) -> bool:
    """Whether replicas come or go; one that has all it was granted only waits for more GPUs."""
    if isinstance(found.accepted, Remembered):
        return found.accepted.placed.holds is True
    if not isinstance(found.outcome, Scheduled):
        return False
    granted = (found.outcome.granted, *(one.placed.granted for one in found.secondary))
    has_all = all(
        target is not None and target.serves(replicas)
        for target, replicas in zip(found.targets, granted, strict=True)
    )
    return not has_all or sum(granted) == found.wanted


def _lasts(found: StatusInput, failure: PodFailure | None) -> bool:
    """Whether a failure does not pass by itself: not that of a plan that another one follows, and
    not that of pods whose template was replaced."""
    if failure is None or failure.reason not in _PERSISTENT or found.plan_failed:
        return False
    if not isinstance(found.outcome, Scheduled) or failure.reason is Reason.CHILD_REFUSED:
        return True
    return any(target is not None and target.updated > 0 for target in found.targets)


def _stalled(
    found: StatusInput,
    ready: Finding,
    accepted: Finding,
    placed: Finding,
    failure: PodFailure | None,
) -> Finding:
    """Without a change of the spec or the fleet nothing will get better. What waits for GPUs or for
    a person's word is not broken, and kstatus calls what is stalled failed."""
    waits = placed.reason in (Reason.INSUFFICIENT_GPUS, Reason.AWAITING_APPROVAL)
    unplaced = placed.holds is False and not waits
    holds = accepted.holds is False or unplaced or _lasts(found, failure)
    return Finding(ConditionType.STALLED, holds, ready.reason, ready.message)


def _accuracy(observation: Observation, found: StatusInput) -> list[Finding]:
    """Whether the prediction held, where that is known; where no plan was made, what was known."""
    if isinstance(found.outcome, Scheduled):
        spread = bool(found.outcome.beside)
        return [find_accuracy(found.readings, spread=spread)] if found.readings else []
    kind = ConditionType.PREDICTION_ACCURATE
    before = observation.previous_status.get("conditions") or []
    return [read_finding(one) for one in before if one["type"] == kind and observation.deployments]


def _scaling(found: StatusInput) -> list[Finding]:
    return find_scaling(found.scaling)


def _rolled_back(back: Rollback, available: Finding) -> list[Finding]:
    """The conditions from Progressing on, while the last plan that served runs in the stead of one
    that failed."""
    failed, last, done = back.failed, back.last, back.is_complete
    message = (
        f"{_name(failed.hash, failed)} failed: {failed.reason}: {failed.message};"
        f" {_name(last.hash, last.placement)} runs in its stead; the failed one is tried again when"
        " the spec, the fleet or a version changes"
    )
    kind = ConditionType.PROGRESSING
    if done:
        progressing = Finding(kind, False, Reason.WAITING, f"waiting: {message}")
    else:
        count = f"{back.live.ready} of {back.replicas} replicas are ready"
        returning = f"going back to plan {last.hash}: {count}"
        progressing = Finding(kind, True, Reason.ROLLING_OUT, returning)
    return [
        progressing,
        available,
        Finding(ConditionType.READY, False, Reason.ROLLED_BACK, message),
        _reconciling(progressing),
        Finding(ConditionType.STALLED, done, Reason.ROLLED_BACK, message),
        Finding(ConditionType.DEGRADED, True, Reason.ROLLED_BACK, message),
    ]


def _name(plan: str, place: FailedPlan | PlacementStatus) -> str:
    split = Parallelism(place.tensor_parallel_size, place.pipeline_parallel_size)
    return f"plan {plan} (pool {place.pool}, {format_split(split)}, {place.image})"


def _without_right(own: Iterable[Finding], right: Right, *, observed: bool) -> list[Finding]:
    """What is known stays; nothing goes on until somebody grants the right. Where the operator may
    not even observe the object, Ready is unknown."""
    known = {finding.type: finding for finding in own}
    message, ready = f"the operator may not {right}; {right.remedy}", False if observed else None
    if not observed:
        message = f"nobody knows what runs: {message}"
    kept = [known[kind] for kind in (ConditionType.ACCEPTED, ConditionType.PLACED) if kind in known]
    available = known.get(ConditionType.AVAILABLE)
    return [
        *kept,
        Finding(ConditionType.PROGRESSING, False, Reason.WAITING, f"waiting: {message}"),
        *([available] if available is not None else []),
        Finding(ConditionType.READY, ready, Reason.FORBIDDEN, message),
        Finding(ConditionType.STALLED, True, Reason.FORBIDDEN, message),
    ]
