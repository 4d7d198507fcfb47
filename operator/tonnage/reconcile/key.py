"""The key of an object to reconcile, and when to reconcile it again."""

from collections.abc import Callable
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
class Wake:
    """Requeues a key when it is called; equal for equal keys, so that each waits once."""

    requeue: Callable[[Key], None]
    key: Key

    def __call__(self) -> None:
        """Requeue the key."""
        self.requeue(self.key)


@dataclass(frozen=True, slots=True)
class Requeue:
    """After how many seconds a key is to be reconciled again without any event; None: only on an
    event."""

    seconds: float | None = None

    def or_after(self, seconds: float | None) -> "Requeue":
        """Requeue after `seconds` if that is sooner; None changes nothing."""
        delays = [delay for delay in (self.seconds, seconds) if delay is not None]
        return Requeue(min(delays, default=None))

    @classmethod
    def at_first(cls, now: datetime, *moments: datetime | None) -> "Requeue":
        """Requeue at the first of the moments in the future; without one, only on an event."""
        to_come = [moment for moment in moments if moment is not None and moment > now]
        return cls((min(to_come) - now).total_seconds() if to_come else None)
