"""Explains why a pool that could run the model was not chosen."""

from tonnage.api.inference import PlacementPolicy
from tonnage.placement.messages import (
    format_band,
    format_capacity,
    format_devices,
    format_fit,
    format_speed,
)
from tonnage.placement.model import Option
from tonnage.placement.pricing import NO_PRICE, format_money
from tonnage.placement.reasons import FeasibleReason
from tonnage.placement.scoring.ranking import capacity_class

Comparison = tuple[FeasibleReason, str]


def compare(option: Option, chosen: Option, policy: PlacementPolicy, *, kept: bool) -> Comparison:
    """Return the first reason why `option` ranks behind `chosen`, and a sentence.

    `kept`: the choice is kept because its replicas already run there.
    """
    if kept:
        difference = _format_difference(option, chosen, policy)
        message = f"{format_fit(option)}; {difference}; replicas stay on {chosen.pool.name}"
        return FeasibleReason.REPLICAS_RUN_ELSEWHERE, message
    reason, difference = (
        _compare_capacity(option, chosen)
        or _compare_risk(option, chosen)
        or _COMPARISONS[policy](option, chosen)
        or _break_tie(option, chosen)
    )
    return reason, f"{format_fit(option)}; {difference}"


def _compare_capacity(option: Option, chosen: Option) -> Comparison | None:
    if capacity_class(option) <= capacity_class(chosen):
        return None
    return FeasibleReason.LESS_CAPACITY, format_capacity(option)


def _compare_risk(option: Option, chosen: Option) -> Comparison | None:
    if chosen.avoided or not option.avoided:
        return None
    message = "spec.placement.tightFit is Avoid, and what is left may be less than is needed"
    return FeasibleReason.TIGHT_FIT, message


def _compare_cost(option: Option, chosen: Option) -> Comparison | None:
    if option.compared_cost is None and chosen.compared_cost is not None:
        return FeasibleReason.NO_PRICE_KNOWN, f"{NO_PRICE} against {_format_cost(chosen)}"
    if option.compared_cost is None or chosen.compared_cost is None:
        return _compare_gpus(option, chosen)
    if option.compared_cost > chosen.compared_cost:
        message = f"{_format_cost(option)} against {_format_cost(chosen)}"
        return FeasibleReason.COSTS_MORE, message
    return None


def _compare_gpus(option: Option, chosen: Option) -> Comparison | None:
    if option.gpus > chosen.gpus:
        message = f"{format_devices(option.pool, option.gpus)} against {chosen.gpus}"
        return FeasibleReason.NEEDS_MORE_GPUS, message
    return None


def _compare_speed(option: Option, chosen: Option) -> Comparison | None:
    speed, other = option.tokens_per_second, chosen.tokens_per_second
    if option.estimate is None or speed is None:
        if other is None:
            return None
        return FeasibleReason.NO_ESTIMATE, f"no estimate against {format_speed(chosen)}"
    if other is not None and speed < other:
        speeds = f"{format_speed(option)} against {format_speed(chosen)}"
        return FeasibleReason.SLOWER, f"{speeds} ({format_band(option.estimate)})"
    return None


def _break_tie(option: Option, chosen: Option) -> Comparison:
    """Explain the order of options that are equal under the policy (see ranking.rank)."""
    weight, other = option.pool.weight, chosen.pool.weight
    if weight != other:
        message = f"weight {weight} against {other} of {chosen.pool.name}"
    elif option.compared_cost != chosen.compared_cost:
        message = f"{_format_cost(option)} against {_format_cost(chosen)}"
    else:
        message = f"as good as {chosen.pool.name}, which comes first"
    return FeasibleReason.RANKS_LOWER, message


def _format_difference(option: Option, chosen: Option, policy: PlacementPolicy) -> str:
    if policy is PlacementPolicy.FEWEST_GPUS:
        return f"{format_devices(option.pool, option.gpus)} against {chosen.gpus}"
    if policy is PlacementPolicy.HIGHEST_THROUGHPUT:
        return f"{format_speed(option)} against {format_speed(chosen)} (estimates)"
    return f"{_format_cost(option)} against {_format_cost(chosen)}"


def _format_cost(option: Option) -> str:
    if option.compared_cost is None:
        return NO_PRICE
    return f"{format_money(option.compared_cost)}/h"


_COMPARISONS = {
    PlacementPolicy.LOWEST_COST: _compare_cost,
    PlacementPolicy.FEWEST_GPUS: _compare_gpus,
    PlacementPolicy.HIGHEST_THROUGHPUT: _compare_speed,
}
