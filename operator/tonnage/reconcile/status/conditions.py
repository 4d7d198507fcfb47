"""Make the conditions of an object: the contract with kubectl wait, Argo CD and kstatus."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from tonnage.api.conditions import MAX_MESSAGE_BYTES, Condition, ConditionType, Reason
from tonnage.api.status import FailedPlan, PlacementStatus
from tonnage.api.text import redact, truncate
from tonnage.fit.messages import GIB, format_parallelism
from tonnage.fit.weights.total import stored_bytes
from tonnage.fleet.devices.resources import dra_driver_of
from tonnage.kube.rights import Right
from tonnage.placement.report import read_parallelism
from tonnage.reconcile.accept import Accepted, Refused
from tonnage.reconcile.calibration import find_accuracy
from tonnage.reconcile.observation.deadline import deadline_of
from tonnage.reconcile.observation.findings import Finding, format_time
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.pods.failures import PodFailure
from tonnage.reconcile.observation.previous import Remembered, Unobserved, read_finding
from tonnage.reconcile.observation.serving import failure_to_serve
from tonnage.reconcile.rollout.rollback import Rollback
from tonnage.reconcile.scheduling.outcome import Pending, Scheduled, Unschedulable
from tonnage.reconcile.status.placed import describe_fallback, find_placed
from tonnage.reconcile.status.scaling import find_scaling
from tonnage.reconcile.status.starting import describe_starts
from tonnage.reconcile.status.status_input import StatusInput

_ABNORMAL_TRUE: Final = frozenset(
    {ConditionType.RECONCILING, ConditionType.STALLED, ConditionType.DEGRADED}
)

_PERSISTENT: Final = frozenset(
    {
        Reason.OUT_OF_MEMORY,
        Reason.SERVER_EXITED,
        Reason.CRASH_LOOPING,
        Reason.IMAGE_PULL_FAILED,
        Reason.WEIGHTS_NOT_DOWNLOADED,
        Reason.CHILD_REFUSED,
    }
)
"""Failures that last until something changes: they make the object Stalled."""

_WAITING: Final = (
    Reason.INSUFFICIENT_GPUS,
    Reason.INSUFFICIENT_RESOURCES,
    Reason.QUOTA_EXCEEDED,
    Reason.AWAITING_APPROVAL,
)
"""Reasons of Placed that end without a change of the spec."""

_PAUSED: Final = "spec.rollout.paused is true: no replica is replaced or migrated"


def make_conditions(
    findings: Iterable[Finding],
    previous: Iterable[Mapping[str, Any]],
    generation: int,
    now: datetime,
) -> list[Condition]:
    """Make conditions with times: a time changes only when the status does.

    Reconciling, Stalled and Degraded are abnormal-true (kstatus): listed only while they hold.
    """
    previous_by_type = {condition.get("type"): condition for condition in previous}
    return [
        Condition(
            type=finding.type,
            status=finding.status,
            observed_generation=generation,
            last_transition_time=_transition_time(finding, previous_by_type.get(finding.type), now),
            reason=finding.reason,
            message=truncate(redact(finding.message), MAX_MESSAGE_BYTES),
        )
        for finding in findings
        if finding.holds or finding.type not in _ABNORMAL_TRUE
    ]


def _transition_time(finding: Finding, previous: Mapping[str, Any] | None, now: datetime) -> str:
    if previous is not None and previous.get("status") == finding.status:
        return str(previous["lastTransitionTime"])
    return format_time(now)


def all_findings(observation: Observation, inputs: StatusInput) -> list[Finding]:
    """The findings that become conditions, in reading order: those of the object's own replicas,
    then those of the integrations."""
    findings = own_findings(observation, inputs)
    contributed = [] if inputs.inference_pool is None else [inputs.inference_pool]
    if inputs.missing_right is not None:
        observed = not isinstance(inputs.accepted, Unobserved)
        findings = _without_right(findings, inputs.missing_right, observed=observed)
    elif inputs.endpoints is not None:
        contributed += inputs.endpoints.findings
    replaced = {finding.type for finding in contributed}
    return [*(finding for finding in findings if finding.type not in replaced), *contributed]


def own_findings(observation: Observation, inputs: StatusInput) -> list[Finding]:
    """The findings of the object's own replicas, without those of its integrations."""
    if isinstance(inputs.accepted, Unobserved):
        return list(inputs.accepted.findings)
    accepted, placed = _find_accepted(inputs.accepted), find_placed(inputs)
    failure = _find_first_failure(observation, inputs)
    available = _find_available(observation, inputs, placed, failure)
    if inputs.rollback is not None and inputs.wanted > 0:
        rolled_back = _find_rolled_back(inputs.rollback, available)
        return [accepted, placed, *rolled_back, *find_scaling(inputs.scaling)]
    ready = _find_ready(observation, inputs, (accepted, placed), failure)
    progressing = _find_progressing(inputs, ready, accepted, failure)
    return [
        accepted,
        placed,
        progressing,
        available,
        ready,
        _find_reconciling(progressing),
        _find_stalled(inputs, ready, accepted, placed, failure),
        *_find_accuracy(observation, inputs),
        *find_scaling(inputs.scaling),
    ]


def _find_accepted(accepted: Accepted | Refused | Remembered) -> Finding:
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
    if accepted.unconfirmed is None and accepted.unconfirmed_adapter is None:
        return Finding(kind, True, Reason.VALID, message)
    if accepted.unconfirmed is not None:
        message += f", as of commit {accepted.checkpoint.revision}, which is not confirmed now"
        message += f": {accepted.unconfirmed.message}"
    if accepted.unconfirmed_adapter is not None:
        message += f"; not confirmed now: {accepted.unconfirmed_adapter}"
    return Finding(kind, True, Reason.MODEL_NOT_CONFIRMED, message)


def _find_first_failure(observation: Observation, inputs: StatusInput) -> PodFailure | None:
    """The first failure of the placements that carry replicas."""
    if not isinstance(inputs.outcome, Scheduled):
        return failure_to_serve(observation, None)
    options = (inputs.outcome.option, *(share.option for share in inputs.outcome.secondary))
    failures = (failure_to_serve(observation, option.placement_name) for option in options)
    return next((failure for failure in failures if failure is not None), None)


def _find_available(
    observation: Observation, inputs: StatusInput, placed: Finding, failure: PodFailure | None
) -> Finding:
    ready = sum(deployment.ready for deployment in observation.deployments)
    kind = ConditionType.AVAILABLE
    if ready > 0:
        total = max(inputs.wanted, sum(live.wanted for live in observation.deployments))
        return Finding(kind, True, Reason.REPLICAS_READY, f"{ready} of {total} replicas answer")
    if failure is not None:
        return Finding(kind, False, failure.reason, str(failure))
    if not observation.deployments and placed.holds is not True:
        return Finding(kind, False, Reason.NOT_PLACED, "no replica exists")
    if placed.reason == Reason.SCALED_TO_ZERO:
        return Finding(kind, False, Reason.SCALED_TO_ZERO, placed.message)
    return Finding(kind, False, Reason.CONTAINERS_NOT_READY, "no replica answers yet")


def _find_ready(
    observation: Observation,
    inputs: StatusInput,
    earlier: tuple[Finding, Finding],
    failure: PodFailure | None,
) -> Finding:
    """True if all wanted replicas of this spec are ready, else the first cause, same message."""
    kind = ConditionType.READY
    for finding in earlier:
        if finding.holds is not True:
            return Finding(kind, False, finding.reason, finding.message)
    leaves_at = inputs.outcome.leaves_at if isinstance(inputs.outcome, Scheduled) else None
    fallback = describe_fallback(inputs, leaves_at) if leaves_at else None
    if failure is not None:
        message = f"{failure}; {fallback}" if fallback else str(failure)
        upgrade = _explain_old_requests(observation, inputs, failure)
        message = f"{message.rstrip('.')}; {upgrade}" if upgrade else message
        return Finding(kind, False, failure.reason, message)
    if inputs.weights is not None:
        return Finding(kind, False, inputs.weights.reason, inputs.weights.message)
    return _find_ready_replicas(observation, inputs, earlier[1], fallback)


def _explain_old_requests(
    observation: Observation, inputs: StatusInput, failure: PodFailure
) -> str | None:
    """What to do where new pods still request GPUs of a device plugin, and the nodes of their pool
    have moved to ResourceSlices: that alone changes no pod template."""
    if failure.reason is not Reason.UNSCHEDULABLE or not isinstance(inputs.outcome, Scheduled):
        return None
    key = observation.key
    for option in (inputs.outcome.option, *(share.option for share in inputs.outcome.secondary)):
        is_claimed = dra_driver_of(option.pool.resource) is not None
        if is_claimed and f"Insufficient {option.accelerator.resource}" in failure.words:
            return (
                f"the GPUs of pool {option.pool.name} are in ResourceSlices now, and pods claim "
                f"them after `kubectl tonnage upgrade {key.name} -n {key.namespace}`"
            )
    return None


def _find_ready_replicas(
    observation: Observation, inputs: StatusInput, placed: Finding, fallback: str | None
) -> Finding:
    """Whether all replicas of a placement whose pods do not fail are ready."""
    kind = ConditionType.READY
    ready, wanted, targets = inputs.ready, inputs.wanted, inputs.targets
    if isinstance(inputs.outcome, Unschedulable | Pending):  # placed, so no replica is wanted
        targets = observation.deployments
    settled = all(target is not None and target.settled for target in targets)
    in_place = settled and len(observation.deployments) == len(targets)
    if inputs.paused and not in_place:
        return Finding(kind, False, Reason.ROLLOUT_PAUSED, f"{_PAUSED}; a change waits")
    starts = describe_starts(observation)
    if not in_place:
        updated = f"rolling out: {ready} of {wanted} replicas are ready"
        message = f"{updated}; {starts}" if starts else updated
        return Finding(kind, False, Reason.ROLLING_OUT, message)
    if ready < wanted:
        reason, message = Reason.CONTAINERS_NOT_READY, f"{ready} of {wanted} replicas are ready"
        if _is_overdue(inputs, None):
            reason, meanwhile = Reason.PROGRESS_DEADLINE_EXCEEDED, _describe_overdue(inputs)
        else:
            meanwhile = starts or "loading a model takes minutes"
        return Finding(kind, False, reason, f"{message}; {fallback or meanwhile}")
    if wanted == 0:
        return Finding(kind, True, Reason.SCALED_TO_ZERO, placed.message)
    return Finding(kind, True, Reason.REPLICAS_READY, f"{wanted} of {wanted} replicas are ready")


def _find_progressing(
    inputs: StatusInput, ready: Finding, accepted: Finding, failure: PodFailure | None
) -> Finding:
    kind = ConditionType.PROGRESSING
    if accepted.holds is None:
        return Finding(kind, True, accepted.reason, accepted.message)
    if inputs.paused:
        return Finding(kind, False, Reason.ROLLOUT_PAUSED, _PAUSED)
    if ready.holds:
        return Finding(kind, False, Reason.SETTLED, "nothing is left to do")
    if _is_changing_replicas(inputs) and not _is_lasting(inputs, failure):
        return Finding(kind, True, ready.reason, ready.message)
    return Finding(kind, False, Reason.WAITING, f"waiting: {ready.message}")


def _find_reconciling(progressing: Finding) -> Finding:
    """Progressing under the name that kstatus knows."""
    kind = ConditionType.RECONCILING
    return Finding(kind, progressing.holds, progressing.reason, progressing.message)


def _is_changing_replicas(inputs: StatusInput) -> bool:
    """Whether replicas start or stop; an object that has all it was granted waits for GPUs."""
    if isinstance(inputs.accepted, Remembered):
        return inputs.accepted.placed.holds is True
    if not isinstance(inputs.outcome, Scheduled):
        return False
    granted = (inputs.outcome.granted, *(one.placed.granted for one in inputs.secondary))
    has_all = all(
        target is not None and target.serves(replicas)
        for target, replicas in zip(inputs.targets, granted, strict=True)
    )
    return not has_all or sum(granted) == inputs.wanted


def _is_lasting(inputs: StatusInput, failure: PodFailure | None) -> bool:
    """Whether the failure lasts until something changes: not if another plan follows the failed
    one, and not if the template of the pods was replaced."""
    if inputs.plan_failed:
        return False
    if inputs.weights is not None and failure is None:
        return inputs.weights.is_lasting
    if failure is None or failure.reason not in _PERSISTENT:
        return _is_overdue(inputs, failure)
    if not isinstance(inputs.outcome, Scheduled) or failure.reason is Reason.CHILD_REFUSED:
        return True
    return any(target is not None and target.updated > 0 for target in inputs.targets)


def _is_overdue(inputs: StatusInput, failure: PodFailure | None) -> bool:
    """Whether replicas that have GPUs have not come up for longer than their progress deadline, the
    clock by which a plan fails. An object that waits for GPUs, or for a scheduling gate, waits."""
    if not isinstance(inputs.outcome, Scheduled) or inputs.outcome.is_short:
        return False
    targets = [target for target in inputs.targets if target is not None]
    if failure is not None and failure.reason is Reason.UNSCHEDULABLE:  # not for lack of GPUs
        return any(target.overdue for target in targets)
    return any(target.child.name in inputs.overdue for target in targets)


def _describe_overdue(inputs: StatusInput) -> str:
    deadlines = [deadline_of(target) for target in inputs.targets if target is not None]
    seconds = max(deadlines).total_seconds()
    return f"none of the others became ready within {seconds:.0f} s (spec.rollout.progressDeadline)"


def _find_stalled(
    inputs: StatusInput,
    ready: Finding,
    accepted: Finding,
    placed: Finding,
    failure: PodFailure | None,
) -> Finding:
    """Stalled until the spec or the fleet changes. An object that waits for GPUs or for approval is
    not stalled: kstatus reports a stalled object as failed."""
    is_waiting = placed.reason in _WAITING
    unplaced = placed.holds is False and not is_waiting
    holds = accepted.holds is False or unplaced or _is_lasting(inputs, failure)
    return Finding(ConditionType.STALLED, holds, ready.reason, ready.message)


def _find_accuracy(observation: Observation, inputs: StatusInput) -> list[Finding]:
    """Whether the prediction held, if known; without a new plan, the previous condition."""
    if isinstance(inputs.outcome, Scheduled):
        spread = bool(inputs.outcome.secondary)
        return [find_accuracy(inputs.readings, spread=spread)] if inputs.readings else []
    kind = ConditionType.PREDICTION_ACCURATE
    previous = observation.previous_status.get("conditions") or []
    return [
        read_finding(condition)
        for condition in previous
        if condition["type"] == kind and observation.deployments
    ]


def _find_rolled_back(rollback: Rollback, available: Finding) -> list[Finding]:
    """The findings from Progressing on, while the last plan that served replaces a failed one."""
    failed, last, done = rollback.failed, rollback.last, rollback.is_complete
    message = (
        f"{_describe_plan(failed.hash, failed)} failed: {failed.reason}: {failed.message};"
        f" {_describe_plan(last.hash, last.placement)} runs instead; the operator retries the"
        " failed plan when the spec, the fleet or a version changes"
    )
    kind = ConditionType.PROGRESSING
    if done:
        progressing = Finding(kind, False, Reason.WAITING, f"waiting: {message}")
    else:
        count = f"{rollback.live.ready} of {rollback.replicas} replicas are ready"
        rolling_back = f"rolling back to plan {last.hash}: {count}"
        progressing = Finding(kind, True, Reason.ROLLING_OUT, rolling_back)
    return [
        progressing,
        available,
        Finding(ConditionType.READY, False, Reason.ROLLED_BACK, message),
        _find_reconciling(progressing),
        Finding(ConditionType.STALLED, done, Reason.ROLLED_BACK, message),
        Finding(ConditionType.DEGRADED, True, Reason.ROLLED_BACK, message),
    ]


def _describe_plan(plan_hash: str, plan: FailedPlan | PlacementStatus) -> str:
    split = format_parallelism(read_parallelism(plan))
    return f"plan {plan_hash} (pool {plan.pool}, {split}, {plan.image})"


def _without_right(own: Iterable[Finding], right: Right, *, observed: bool) -> list[Finding]:
    """Keep what is known; the operator does nothing until an administrator grants the right. If it
    may not even observe the object, Ready is unknown."""
    known = {finding.type: finding for finding in own}
    message, ready = f"the operator may not {right}; {right.remedy}", False if observed else None
    if not observed:
        message = f"replica state is unknown: {message}"
    kept = [known[kind] for kind in (ConditionType.ACCEPTED, ConditionType.PLACED) if kind in known]
    available = known.get(ConditionType.AVAILABLE)
    return [
        *kept,
        Finding(ConditionType.PROGRESSING, False, Reason.WAITING, f"waiting: {message}"),
        *([available] if available is not None else []),
        Finding(ConditionType.READY, ready, Reason.FORBIDDEN, message),
        Finding(ConditionType.STALLED, True, Reason.FORBIDDEN, message),
    ]
