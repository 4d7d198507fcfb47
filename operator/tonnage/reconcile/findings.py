"""From what was found to conditions: the contract with kubectl wait, Argo CD and kstatus."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from tonnage.api.conditions import MAX_MESSAGE_BYTES, Condition, ConditionType
from tonnage.api.redact import redact
from tonnage.api.text import truncate

_ABNORMAL_TRUE: Final = frozenset(
    {ConditionType.RECONCILING, ConditionType.STALLED, ConditionType.DEGRADED}
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One condition before it knows its generation and its time; `holds` None means Unknown."""

    type: ConditionType
    holds: bool | None
    reason: str
    message: str

    @property
    def status(self) -> Literal["True", "False", "Unknown"]:
        """As it stands in the condition."""
        if self.holds is None:
            return "Unknown"
        return "True" if self.holds else "False"


def read_finding(condition: Mapping[str, Any]) -> Finding:
    """The finding that a condition was made of."""
    return Finding(
        ConditionType(condition["type"]),
        {"True": True, "False": False}.get(condition["status"]),
        condition["reason"],
        condition["message"],
    )


def make_conditions(
    findings: Iterable[Finding],
    previous: Iterable[Mapping[str, Any]],
    generation: int,
    now: datetime,
) -> list[Condition]:
    """Conditions with times: a time changes only when the status does.

    Reconciling, Stalled and Degraded are abnormal-true (kstatus): listed only while they hold.
    """
    before = {found.get("type"): found for found in previous}
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


def format_time(moment: datetime) -> str:
    """A moment as the API server writes it: RFC 3339 in UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
