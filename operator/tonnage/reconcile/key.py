"""Which object needs work, and when it needs it again."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


class Key(NamedTuple):
    """An InferenceDeployment by namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Requeue:
    """When a key is to be reconciled again without any event; None: only on an event."""

    seconds: float | None = None

    @classmethod
    def never(cls) -> "Requeue":
        """Nothing is left to wait for."""
        return cls(None)

    def or_after(self, seconds: float | None) -> "Requeue":
        """Then too, where it is sooner; None asks for nothing."""
        wanted = [each for each in (self.seconds, seconds) if each is not None]
        return Requeue(min(wanted, default=None))

    @classmethod
    def after(cls, seconds: float) -> "Requeue":
        """Look again then, if no event came before."""
        return cls(seconds)

    @classmethod
    def at_first(cls, now: datetime, *moments: datetime | None) -> "Requeue":
        """At the first of the moments that are still to come; without one, only on an event."""
        to_come = [moment for moment in moments if moment is not None and moment > now]
        return cls((min(to_come) - now).total_seconds() if to_come else None)
