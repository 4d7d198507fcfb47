"""When replicas of objects that scale by load were added and removed."""

from collections.abc import Iterator
from typing import Final

SCALE_DOWN_SECONDS: Final = 300.0
"""The default of `scaling.scaleDown.stabilizationWindow`."""


class Scalings:
    """Kept from the numbers that were wanted; `count` is how often one has changed."""

    def __init__(self) -> None:
        self.count = 0
        self._wanted: dict[str, int] = {}
        self._recorded_at: dict[str, float] = {}

    def note(self, name: str, wanted: int, now: float) -> Iterator[str]:
        """Record the wanted number; return a violation where new replicas are removed at once."""
        before = self._wanted.get(name, wanted)
        self._wanted[name] = wanted
        self.count += wanted != before
        kept = now - self._recorded_at.get(name, float("-inf"))
        if wanted > before:
            self._recorded_at[name] = now
        elif wanted < before and kept < SCALE_DOWN_SECONDS:
            yield f"{name} scaled in {kept:.0f} s after it had scaled out"
