"""Why a pool that could run the model was not the one taken."""

from tonnage.api.inference import PlacementPolicy
from tonnage.placement.messages import (
    format_devices,
    tell_band,
    tell_fit,
    tell_room,
    tell_speed,
)
from tonnage.placement.model import Option
from tonnage.placement.pricing import NO_PRICE, format_money
from tonnage.placement.ranking import room_class
from tonnage.placement.reasons import FeasibleReason

Comparison = tuple[FeasibleReason, str]


def compare(option: Option, chosen: Option, policy: PlacementPolicy, *, kept: bool) -> Comparison:
    """The first thing in which `option` comes behind `chosen`, in a word and in a sentence.

    `kept`: the choice stands because its replicas run there already.
    """
    if kept:
        reason, told = FeasibleReason.REPLICAS_RUN_ELSEWHERE, _against(option, chosen, policy)
        return reason, f"{tell_fit(option)}; {told}; replicas stay on {chosen.pool.name}"
    reason, told = (
        _compare_room(option, chosen)
        or _compare_risk(option, chosen)
        or _COMPARISONS[policy](option, chosen)
        or _break_tie(option, chosen)
    )
    return reason, f"{tell_fit(option)}; {told}"


def _compare_room(option: Option, chosen: Option) -> Comparison | None:
    if room_class(option) <= room_class(chosen):
        return None
    return FeasibleReason.LESS_ROOM, tell_room(option)


def _compare_risk(option: Option, chosen: Option) -> Comparison | None:
    if chosen.avoided or not option.avoided:
        return None
    told = "spec.placement.tightFit is Avoid, and what is left may be less than is needed"
    return FeasibleReason.TIGHT_FIT, told


def _compare_cost(option: Option, chosen: Option) -> Comparison | None:
    if option.compared_cost is None and chosen.compared_cost is not None:
        told = f"{NO_PRICE} against {_cost(chosen)}"
        return FeasibleReason.NO_PRICE_KNOWN, told
    if option.compared_cost is None or chosen.compared_cost is None:
        return _compare_gpus(option, chosen)
    if option.compared_cost > chosen.compared_cost:
        return FeasibleReason.COSTS_MORE, f"{_cost(option)} against {_cost(chosen)}"
    return None


def _compare_gpus(option: Option, chosen: Option) -> Comparison | None:
    if option.gpus > chosen.gpus:
        told = f"{format_devices(option.pool, option.gpus)} against {chosen.gpus}"
        return FeasibleReason.NEEDS_MORE_GPUS, told
    return None


def _compare_speed(option: Option, chosen: Option) -> Comparison | None:
    speed, other = option.tokens_per_second, chosen.tokens_per_second
    if option.estimate is None or speed is None:
        if other is None:
            return None
        return FeasibleReason.NO_ESTIMATE, f"no estimate against {tell_speed(chosen)}"
    if other is not None and speed < other:
        told = f"{tell_speed(option)} against {tell_speed(chosen)} ({tell_band(option.estimate)})"
        return FeasibleReason.SLOWER, told
    return None


def _break_tie(option: Option, chosen: Option) -> Comparison:
    """Equal under the policy: what decided is in ranking.rank."""
    weight, other = option.pool.weight, chosen.pool.weight
    if weight != other:
        told = f"weight {weight} against {other} of {chosen.pool.name}"
    elif option.compared_cost != chosen.compared_cost:
        told = f"{_cost(option)} against {_cost(chosen)}"
    else:
        told = f"as good as {chosen.pool.name}, which comes first"
    return FeasibleReason.RANKS_LOWER, told


def _against(option: Option, chosen: Option, policy: PlacementPolicy) -> str:
    if policy is PlacementPolicy.FEWEST_GPUS:
        return f"{format_devices(option.pool, option.gpus)} against {chosen.gpus}"
    if policy is PlacementPolicy.HIGHEST_THROUGHPUT:
        return f"{tell_speed(option)} against {tell_speed(chosen)} (estimates)"
    return f"{_cost(option)} against {_cost(chosen)}"


def _cost(option: Option) -> str:
    if option.compared_cost is None:
        return NO_PRICE
    return f"{format_money(option.compared_cost)}/h"


_COMPARISONS = {
    PlacementPolicy.LOWEST_COST: _compare_cost,
    PlacementPolicy.FEWEST_GPUS: _compare_gpus,
    PlacementPolicy.HIGHEST_THROUGHPUT: _compare_speed,
}
