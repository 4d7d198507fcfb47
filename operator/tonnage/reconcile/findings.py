"""What was found of an object: a condition before it knows its generation and its time."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from tonnage.api.conditions import ConditionType


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


def format_time(moment: datetime) -> str:
    """A moment as the API server writes it: RFC 3339 in UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
