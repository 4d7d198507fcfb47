"""A finding about an object: a condition without its generation and its time."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from tonnage.api.conditions import ConditionType


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition without its generation and its time; `holds` None means Unknown."""

    type: ConditionType
    holds: bool | None
    reason: str
    message: str

    @property
    def status(self) -> Literal["True", "False", "Unknown"]:
        """The condition's status."""
        if self.holds is None:
            return "Unknown"
        return "True" if self.holds else "False"


def format_time(moment: datetime) -> str:
    """Format a time as the API server does: RFC 3339 in UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Parse a time as the API server writes it."""
    return datetime.fromisoformat(text)
