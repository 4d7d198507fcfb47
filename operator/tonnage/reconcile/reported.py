"""What the status said before, as far as it still counts.

A status that another version or somebody else wrote otherwise counts as absent, piece by piece.

The operator keeps no facts of models that have to survive it. After a restart, or while a Hub is
out of reach, nothing is known of a model whose replicas serve all the same; that must not turn an
object that was accepted and placed into one that is not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tonnage.api.conditions import Condition, ConditionType
from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.schema import ReportedModel
from tonnage.api.status import InferenceDeploymentStatus, PlacementStatus
from tonnage.reconcile.findings import Finding

Reported = TypeVar("Reported", bound=ReportedModel)


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was found of this very spec before, while its model cannot be asked for again: that it
    was accepted, where it was placed, and the whole status."""

    accepted: Finding
    placed: Finding
    status: InferenceDeploymentStatus


@dataclass(frozen=True, slots=True)
class Unobserved:
    """All that is known of an object whose children, or what it needs, may not be read: the status
    before, and what it found of this very spec."""

    status: InferenceDeploymentStatus
    findings: tuple[Finding, ...]


def read_reported(model: type[Reported], raw: object) -> Reported | None:
    """One piece of a status; one that is not there, or not as this version writes it, counts as
    absent."""
    if raw is None:
        return None
    try:
        return parse_model(model, raw, f"status: {model.__name__}")
    except InvalidSpecError:
        return None


def read_placements(status: Mapping[str, Any]) -> list[PlacementStatus]:
    """The placements of a status."""
    read = (read_reported(PlacementStatus, raw) for raw in status.get("placements") or ())
    return [found for found in read if found is not None]


def read_finding(condition: Mapping[str, Any]) -> Finding:
    """The finding that a condition was made of."""
    return Finding(
        ConditionType(condition["type"]),
        {"True": True, "False": False}.get(condition["status"]),
        condition["reason"],
        condition["message"],
    )


def remember(previous_status: Mapping[str, Any], generation: int) -> Remembered | None:
    """The findings that still hold; None where the spec is another one, or was not accepted."""
    status = _read_status(previous_status)
    if status is None or status.observed_generation != generation:
        return None
    known = _by_type(status.conditions)
    accepted, placed = known.get(ConditionType.ACCEPTED), known.get(ConditionType.PLACED)
    if accepted is None or placed is None or not accepted.holds:
        return None
    return Remembered(accepted, placed, status)


def read_unobserved(previous_status: Mapping[str, Any], generation: int) -> Unobserved | None:
    """What is known of an object that cannot be observed; None where an older version wrote the
    status in a way that cannot be kept."""
    status = _read_status(previous_status)
    if status is None:
        return None
    # What was said of another spec says nothing of this one.
    holds = status.observed_generation == generation
    return Unobserved(status, tuple(_by_type(status.conditions).values()) if holds else ())


def _read_status(previous_status: Mapping[str, Any]) -> InferenceDeploymentStatus | None:
    return read_reported(InferenceDeploymentStatus, dict(previous_status))


def _by_type(conditions: Iterable[Condition]) -> dict[ConditionType, Finding]:
    """Those of a type that this version knows."""
    known = (one for one in conditions if one.type in list(ConditionType))
    return {ConditionType(one.type): read_finding(one.to_dict()) for one in known}
