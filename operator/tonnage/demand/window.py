"""Past recommendations that still count, as in the stabilization windows of the HPA.

    scale up:    to the lowest recommendation of the scale-up window
    scale down:  to the highest recommendation of the scale-down window

Only recommendations that can still be the highest or the lowest are kept, each with the time until
which it applied. The state is small and changes only when the recommendation does. Without it, the
windows start again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

MAX_PAST: Final = 16
"""Recommendations kept in each direction. Beyond that, the two farthest ones are merged into the
one that delays scaling for longer."""


@dataclass(frozen=True, slots=True)
class PastRecommendations:
    """A recommendation that was replaced at `until`."""

    replicas: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Recommendations:
    """The current recommendation, and past ones that were higher or lower than all later ones; the
    oldest first, which is the farthest from the current one."""

    now: int
    higher: tuple[PastRecommendations, ...] = ()
    lower: tuple[PastRecommendations, ...] = ()

    def then(
        self, replicas: int, at: datetime, up_window: timedelta, down_window: timedelta
    ) -> "Recommendations":
        """Add the recommendation made at `at`; returns self if it equals the current one."""
        if replicas == self.now:
            return self
        past = PastRecommendations(self.now, at)
        return Recommendations(
            now=replicas,
            higher=_prune(self.higher, past, replicas, at - down_window, 1),
            lower=_prune(self.lower, past, replicas, at - up_window, -1),
        )

    def highest(self, since: datetime) -> int:
        """The highest recommendation that applied after `since`."""
        return max((self.now, *_replicas_after(self.higher, since)))

    def lowest(self, since: datetime) -> int:
        """The lowest recommendation that applied after `since`."""
        return min((self.now, *_replicas_after(self.lower, since)))


def _replicas_after(past: Iterable[PastRecommendations], since: datetime) -> list[int]:
    return [recommendation.replicas for recommendation in past if recommendation.until > since]


def _prune(
    before: tuple[PastRecommendations, ...],
    past: PastRecommendations,
    now: int,
    since: datetime,
    upward: int,
) -> tuple[PastRecommendations, ...]:
    """Drop recommendations that no longer count; `upward` is 1 for higher ones, -1 for lower ones.

    A recommendation that a later one equals or exceeds never counts again.
    """
    unexceeded = [one for one in before if upward * one.replicas > upward * past.replicas]
    kept = [
        one
        for one in (*unexceeded, past)
        if upward * one.replicas > upward * now and one.until > since
    ]
    if len(kept) > MAX_PAST:
        first, second, *others = kept
        kept = [replace(first, until=second.until), *others]
    return tuple(kept)
