"""Pieces of a status as it was reported before."""

from collections.abc import Mapping
from typing import Any, TypeVar

from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.schema import ReportedModel
from tonnage.api.status import PlacementStatus

Reported = TypeVar("Reported", bound=ReportedModel)


def read_reported(model: type[Reported], raw: object) -> Reported | None:
    """The piece; one that is not there, or that another version or somebody else wrote otherwise,
    counts as absent."""
    if raw is None:
        return None
    try:
        return parse_model(model, raw, f"status: {model.__name__}")
    except InvalidSpecError:
        return None


def read_placements(status: Mapping[str, Any]) -> list[PlacementStatus]:
    """The placements of a status; one that an older version wrote otherwise is dropped."""
    read = (read_reported(PlacementStatus, raw) for raw in status.get("placements") or ())
    return [found for found in read if found is not None]
