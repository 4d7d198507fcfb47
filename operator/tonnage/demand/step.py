"""The number of replicas that is wanted next. It rises fast and falls slowly; it never follows what
is missing or cannot be."""

from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Final

from tonnage.demand.opinion import NoOpinion, Opinion
from tonnage.demand.terms import Terms
from tonnage.demand.window import Recommendations

_ROUNDING: Final = 1e-9
"""What floating point may add to a need that is a whole number."""


@dataclass(frozen=True, slots=True)
class Step:
    """Replicas that are wanted, and the recommendations to be remembered."""

    replicas: int
    recommendations: Recommendations


def next_step(
    wanted: int,
    before: Recommendations | None,
    opinion: Opinion | NoOpinion,
    terms: Terms,
    now: datetime,
) -> Step:
    """What follows from an opinion for an object of which `wanted` replicas are wanted so far.

    Without an opinion that very number is recommended, so that a gap in what is known counts as a
    time in which no less was asked for.
    """
    wanted = terms.within(wanted)
    recommended = wanted if isinstance(opinion, NoOpinion) else recommend(wanted, opinion, terms)
    memory = max(terms.down_window, terms.zero_after or terms.down_window)
    recommendations = (before or Recommendations(wanted)).then(
        recommended, now, terms.up_window, memory
    )
    replicas = max(wanted, recommendations.lowest(now - terms.up_window))
    replicas = min(replicas, recommendations.highest(now - terms.down_window))
    if replicas == 0 and wanted > 0 and not _may_end(recommendations, terms, now):
        replicas = terms.min_replicas
    return Step(terms.within(replicas), recommendations)


def recommend(wanted: int, opinion: Opinion, terms: Terms) -> int:
    """What the load asks for at this moment, within the bounds."""
    if opinion.is_idle and terms.fewest == 0:
        return 0
    conventions, need = terms.conventions, opinion.need.replicas
    asked = max(terms.min_replicas, ceil(need - _ROUNDING))
    if asked < wanted:
        spared = ceil(need * (1 + conventions.spare) - _ROUNDING)
        # Whatever is in flight has to find room on those that are left.
        held = ceil(opinion.in_flight / opinion.room - _ROUNDING)
        asked = min(wanted, max(asked, spared, held))
    if opinion.is_bound:
        asked = max(asked, wanted)
    if wanted > 0:
        most = max(wanted * conventions.growth_factor, wanted + conventions.growth_replicas)
        asked = min(asked, most)
    return terms.within(asked)


def _may_end(recommendations: Recommendations, terms: Terms, now: datetime) -> bool:
    """Whether nothing was asked for long enough to stop serving."""
    return terms.zero_after is not None and recommendations.highest(now - terms.zero_after) == 0
