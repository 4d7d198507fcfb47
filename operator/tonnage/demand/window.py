"""Recommendations of the past that still count, as HPA's stabilization windows have them.

    more replicas:   to the lowest recommendation of the window for more
    fewer replicas:  to the highest recommendation of the window for fewer

Only those are kept that can still be the highest or the lowest, each with the time when it was
given last; so little is kept, and it changes only when a recommendation does. Whoever has lost it
begins a window anew, nothing more.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

MAX_PAST: Final = 16
"""Recommendations kept in each direction. Of more, neighbours are taken together: the one that
holds the number back for longer."""


@dataclass(frozen=True, slots=True)
class Past:
    """A recommendation that another has replaced at `until`."""

    replicas: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Recommendations:
    """The one that is given now, and past ones that were higher or lower than all since; the oldest
    first, so the farthest from the present one first."""

    now: int
    higher: tuple[Past, ...] = ()
    lower: tuple[Past, ...] = ()

    def then(
        self, replicas: int, at: datetime, up_window: timedelta, down_window: timedelta
    ) -> "Recommendations":
        """With the one that is given at a later moment; the same where it is the same."""
        if replicas == self.now:
            return self
        past = Past(self.now, at)
        return Recommendations(
            now=replicas,
            higher=_kept(self.higher, past, replicas, at - down_window, 1),
            lower=_kept(self.lower, past, replicas, at - up_window, -1),
        )

    def highest(self, since: datetime) -> int:
        """The highest that was given after that moment."""
        return max((self.now, *_after(self.higher, since)))

    def lowest(self, since: datetime) -> int:
        """The lowest that was given after that moment."""
        return min((self.now, *_after(self.lower, since)))


def _after(past: Iterable[Past], since: datetime) -> list[int]:
    return [found.replicas for found in past if found.until > since]


def _kept(
    before: tuple[Past, ...], past: Past, now: int, since: datetime, upward: int
) -> tuple[Past, ...]:
    """Those beyond the present one that still count; `upward` is 1 for higher ones, -1 for lower.

    One that a later one goes beyond, or is equal to, is never needed again.
    """
    outlasting = [found for found in before if upward * found.replicas > upward * past.replicas]
    kept = [
        found
        for found in (*outlasting, past)
        if upward * found.replicas > upward * now and found.until > since
    ]
    if len(kept) > MAX_PAST:
        first, second, *others = kept
        kept = [replace(first, until=second.until), *others]
    return tuple(kept)
