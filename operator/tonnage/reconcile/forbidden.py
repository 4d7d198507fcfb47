"""What the operator lacks a right for, told in the status without unsaying what is known."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from tonnage.api.conditions import Condition, ConditionType, Reason
from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.kube.rights import Right
from tonnage.reconcile.findings import Finding, make_conditions
from tonnage.reconcile.observe import Observation

RETRY_SECONDS: Final = 60.0
"""A role is changed by people; it is looked at again so soon after."""

_KEPT: Final = (ConditionType.ACCEPTED, ConditionType.PLACED, ConditionType.AVAILABLE)


def tell_unchanged(
    status: InferenceDeploymentStatus, observation: Observation, right: Right, now: datetime
) -> InferenceDeploymentStatus:
    """The status of a plan that could not be carried out for want of this right."""
    told = f"the operator may not {right}; {right.remedy}"
    return _with_conditions(status, observation, _hold_up(status.conditions, False, told), now)


def tell_unseen(
    observation: Observation, right: Right, now: datetime
) -> InferenceDeploymentStatus | None:
    """The status of an object whose children, or what it needs, could not be read.

    All stays as it was reported but Ready, which nobody knows. None where an older version wrote
    the status in a way that cannot be kept.
    """
    try:
        before = parse_model(InferenceDeploymentStatus, dict(observation.previous_status), "status")
    except InvalidSpecError:
        return None
    told = f"nobody knows what runs: the operator may not {right}; {right.remedy}"
    # What was said of another spec says nothing of this one.
    holds = before.observed_generation == observation.generation
    findings = _hold_up(before.conditions if holds else (), None, told)
    seen = before.model_copy(update={"observed_generation": observation.generation})
    return _with_conditions(seen, observation, findings, now)


def _hold_up(conditions: Iterable[Condition], ready: bool | None, told: str) -> list[Finding]:
    """What is known stays; nothing goes on until somebody grants the right."""
    known = {found.type: found for found in conditions}
    waiting = Finding(ConditionType.PROGRESSING, False, Reason.WAITING, f"waiting: {told}")
    hindered = Finding(ConditionType.READY, ready, Reason.FORBIDDEN, told)
    kept = {kind: _finding(kind, known[kind]) for kind in _KEPT if kind in known}
    accepted_and_placed = [kept[kind] for kind in _KEPT[:2] if kind in kept]
    available = [kept[kind] for kind in _KEPT[2:] if kind in kept]
    stalled = Finding(ConditionType.STALLED, True, Reason.FORBIDDEN, told)
    return [*accepted_and_placed, waiting, *available, hindered, stalled]


def _finding(kind: ConditionType, condition: Condition) -> Finding:
    holds = {"True": True, "False": False}.get(condition.status)
    return Finding(kind, holds, condition.reason, condition.message)


def _with_conditions(
    status: InferenceDeploymentStatus,
    observation: Observation,
    findings: list[Finding],
    now: datetime,
) -> InferenceDeploymentStatus:
    before = observation.previous_status.get("conditions") or []
    conditions = make_conditions(findings, before, observation.generation, now)
    return status.model_copy(update={"conditions": conditions})
