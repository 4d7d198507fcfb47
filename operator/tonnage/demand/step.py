"""Computes the next number of replicas. It rises fast and falls slowly, and ignores samples that
are missing or out of range."""

from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Final

from tonnage.demand.opinion import LoadEstimate, NoOpinion
from tonnage.demand.terms import ScalingTerms
from tonnage.demand.window import Recommendations

_ROUNDING: Final = 1e-9
"""Largest floating-point error of a need that is a whole number."""


@dataclass(frozen=True, slots=True)
class ScalingStep:
    """The wanted replicas, and the recommendations to store in status."""

    replicas: int
    recommendations: Recommendations


def next_step(
    wanted: int,
    before: Recommendations | None,
    opinion: LoadEstimate | NoOpinion,
    terms: ScalingTerms,
    now: datetime,
) -> ScalingStep:
    """Compute the next number of replicas for an object that wants `wanted` of them now.

    Without an opinion the recommendation is `wanted`: missing telemetry restarts the scale-down
    window.
    """
    wanted = terms.within(wanted)
    recommended = wanted if isinstance(opinion, NoOpinion) else recommend(wanted, opinion, terms)
    longest_window = max(terms.down_window, terms.zero_after or terms.down_window)
    recommendations = (before or Recommendations(wanted)).then(
        recommended, now, terms.up_window, longest_window
    )
    replicas = max(wanted, recommendations.lowest(now - terms.up_window))
    replicas = min(replicas, recommendations.highest(now - terms.down_window))
    if replicas == 0 and wanted > 0 and not _may_scale_to_zero(recommendations, terms, now):
        replicas = terms.min_replicas
    return ScalingStep(terms.within(replicas), recommendations)


def recommend(wanted: int, opinion: LoadEstimate, terms: ScalingTerms) -> int:
    """The replicas that the load needs at this moment, within the bounds."""
    if opinion.is_idle and terms.fewest == 0:
        return 0
    conventions, need = terms.conventions, opinion.need.replicas
    needed = max(terms.min_replicas, ceil(need - _ROUNDING))
    if needed < wanted:
        with_spare = ceil(need * (1 + conventions.spare) - _ROUNDING)
        # The remaining replicas must hold all requests in flight.
        for_in_flight = ceil(opinion.in_flight / opinion.smallest_capacity - _ROUNDING)
        needed = min(wanted, max(needed, with_spare, for_in_flight))
    if opinion.is_lower_bound:
        needed = max(needed, wanted)
    if wanted > 0:
        most = max(wanted * conventions.growth_factor, wanted + conventions.growth_replicas)
        needed = min(needed, most)
    return terms.within(needed)


def _may_scale_to_zero(
    recommendations: Recommendations, terms: ScalingTerms, now: datetime
) -> bool:
    """Whether no replica was needed for `zero_after`."""
    return terms.zero_after is not None and recommendations.highest(now - terms.zero_after) == 0
