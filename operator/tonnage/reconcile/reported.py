"""Pieces of a status as it was reported before."""

from typing import TypeVar

from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.schema import ReportedModel

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
