"""Read from the previous status what still counts.

A piece of the status that another version or another client wrote differently counts as absent.

A model may be unknown while its replicas serve: a Service without kept facts, and a Hub that is
being read or unreachable. An object that was accepted and placed must stay so.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from tonnage.api.conditions import Condition, ConditionType
from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.schema import ReportedModel
from tonnage.api.status import EndpointStatus, InferenceDeploymentStatus, PlacementStatus
from tonnage.api.workload import Context
from tonnage.reconcile.observation.findings import Finding, parse_time

Reported = TypeVar("Reported", bound=ReportedModel)


@dataclass(frozen=True, slots=True)
class Remembered:
    """Previous findings on this very spec, while its model cannot be read again: that it was
    accepted, where it was placed, and the whole status."""

    accepted: Finding
    placed: Finding
    status: InferenceDeploymentStatus


@dataclass(frozen=True, slots=True)
class Unobserved:
    """All that is known of an object whose children, or what it needs, may not be read: the
    previous status, and its findings on this very spec."""

    status: InferenceDeploymentStatus
    findings: tuple[Finding, ...]


def read_reported(model: type[Reported], raw: object) -> Reported | None:
    """One piece of a status; a piece that is missing, or in another version's format, counts as
    absent."""
    if raw is None:
        return None
    try:
        return parse_model(model, raw, f"status: {model.__name__}")
    except InvalidSpecError:
        return None


def read_placements(status: Mapping[str, Any]) -> list[PlacementStatus]:
    """The placements of a status."""
    placements = (read_reported(PlacementStatus, raw) for raw in status.get("placements") or ())
    return [placement for placement in placements if placement is not None]


def is_listed(status: Mapping[str, Any]) -> bool:
    """Whether a long endpoint may exist: the operator lists it in the object's own status before it
    creates it, and until it has gone, so that no crash leaves a forgotten endpoint."""
    return any(endpoint.context is Context.LONG for endpoint in read_endpoints(status))


def read_endpoints(status: Mapping[str, Any]) -> list[EndpointStatus]:
    """Read the endpoints that the status lists."""
    listed = status.get("endpoints")
    raw = listed if isinstance(listed, list) else []
    endpoints = (read_reported(EndpointStatus, one) for one in raw)
    return [endpoint for endpoint in endpoints if endpoint is not None]


def read_finding(condition: Mapping[str, Any]) -> Finding:
    """The finding that a condition was made of."""
    return Finding(
        ConditionType(condition["type"]),
        {"True": True, "False": False}.get(condition["status"]),
        condition["reason"],
        condition["message"],
    )


def read_remembered(previous_status: Mapping[str, Any], generation: int) -> Remembered | None:
    """The findings that still hold; None where they are of another spec, or it was not accepted."""
    status = _read_status(previous_status)
    if status is None or status.observed_generation != generation:
        return None
    findings = _by_type(status.conditions)
    accepted, placed = findings.get(ConditionType.ACCEPTED), findings.get(ConditionType.PLACED)
    if accepted is None or placed is None or not accepted.holds:
        return None
    return Remembered(accepted, placed, status)


def read_unobserved(previous_status: Mapping[str, Any], generation: int) -> Unobserved | None:
    """What is known of an object that cannot be observed; None where an older version wrote the
    status in a way that cannot be kept."""
    status = _read_status(previous_status)
    if status is None:
        return None
    # Findings on another generation do not apply to this one.
    is_current = status.observed_generation == generation
    return Unobserved(status, tuple(_by_type(status.conditions).values()) if is_current else ())


def _read_status(previous_status: Mapping[str, Any]) -> InferenceDeploymentStatus | None:
    return read_reported(InferenceDeploymentStatus, dict(previous_status))


def _by_type(conditions: Iterable[Condition]) -> dict[ConditionType, Finding]:
    """The findings of condition types that this version knows."""
    known = (condition for condition in conditions if condition.type in list(ConditionType))
    return {ConditionType(condition.type): read_finding(condition.to_dict()) for condition in known}


def read_since(
    previous_status: Mapping[str, Any], kind: ConditionType, status: str
) -> datetime | None:
    """Since when the condition has had this status; None where it has another."""
    for condition in previous_status.get("conditions") or []:
        if (condition.get("type"), condition.get("status")) == (kind, status):
            return read_time(str(condition.get("lastTransitionTime")))
    return None


def read_time(text: str) -> datetime | None:
    """A time of the object's own status; an unreadable one counts as absent."""
    try:
        time = parse_time(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
