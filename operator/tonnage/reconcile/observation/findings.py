"""A finding about an object: a condition without its generation and its time."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from tonnage.api.conditions import ConditionType

_MAX_WORDS: Final = 300
"""Characters of a message of a pod or a Job in a condition."""


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


def format_age(age: timedelta) -> str:
    """A duration in two units, as kubectl writes it, for example 45s, 3m10s or 1h2m."""
    minutes, seconds = divmod(max(0, round(age.total_seconds())), 60)
    if minutes == 0:
        return f"{seconds}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m" if hours else f"{minutes}m{seconds}s"


def shorten(words: object) -> str:
    """Foreign text as one short printable line."""
    line = " ".join(str(words or "")[: 8 * _MAX_WORDS].split())
    return "".join(char for char in line if char.isprintable())[:_MAX_WORDS]
