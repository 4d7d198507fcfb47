"""Explains why a pool was chosen, and why another one that could run the model was not."""

from collections.abc import Collection
from typing import Final

from tonnage.api.placement import PlacementPolicy, PlacementSpec
from tonnage.catalog.prices import format_money
from tonnage.fit.messages import format_count
from tonnage.placement.messages import (
    format_band,
    format_capacity,
    format_devices,
    format_fit,
    format_speed,
)
from tonnage.placement.model import Option
from tonnage.placement.pricing import NO_PRICE
from tonnage.placement.reasons import FeasibleReason
from tonnage.placement.scoring.ranking import (
    CapacityClass,
    capacity_class,
    is_better,
    precedence,
)

Comparison = tuple[FeasibleReason, str]

_BEST_OF: Final = {
    PlacementPolicy.LOWEST_COST: "the lowest cost",
    PlacementPolicy.FEWEST_GPUS: "the fewest GPUs",
    PlacementPolicy.HIGHEST_THROUGHPUT: "the highest estimated throughput",
}


def explain_choice(chosen: Option, feasible: Collection[Option], placement: PlacementSpec) -> str:
    """Return what the best option is the best of: only the pools that nothing but the policy
    decides about count, and where others are left out, the text says by what."""
    first = precedence(chosen, placement)
    all_ranks = [precedence(option, placement) for option in feasible]
    pools = format_count(all_ranks.count(first), "pool")
    ranks = set(all_ranks)
    which = [_format_capacity_class(chosen, feasible, placement)]
    if any(rank.unverified > first.unverified for rank in ranks):
        which.append("where no compatibility rule warns")
    if any(rank[:3] == first[:3] and rank.avoided > first.avoided for rank in ranks):
        which.append("with memory to spare")
    return f"{_BEST_OF[placement.policy]} of {pools} {' '.join(which)}"


def _format_capacity_class(
    chosen: Option, feasible: Collection[Option], placement: PlacementSpec
) -> str:
    """Format the capacity that the compared pools have in common, in more words where others have
    less."""
    classes = {option.pool.name: precedence(option, placement).capacity for option in feasible}
    first = classes[chosen.pool.name]
    if not first.is_now:
        return "that can grow"
    others = {capacity for capacity in classes.values() if capacity is not first}
    growth = any(
        not capacity_class(option).is_now
        for option in feasible
        if classes[option.pool.name] is first
    )
    if not others and not growth:
        return "with capacity"
    when = ", now or after growth" if growth else " now"
    if not any(capacity.is_now for capacity in others):
        return f"with capacity{when}"
    replicas = "all" if first is CapacityClass.ALL_NOW else "some"
    return f"with capacity for {replicas} replicas{when}"


def compare(option: Option, chosen: Option, placement: PlacementSpec, *, kept: bool) -> Comparison:
    """Return the first reason why `option` ranks behind `chosen`, and a sentence.

    `kept`: the choice is kept because its replicas already run there.
    """
    policy = placement.policy
    if kept:
        difference = _format_difference(option, chosen, policy)
        message = f"{format_fit(option)}; {difference}; replicas stay on {chosen.pool.name}"
        return FeasibleReason.REPLICAS_RUN_ELSEWHERE, message
    reason, difference = (
        _compare_precedence(option, chosen, placement)
        or _COMPARISONS[policy](option, chosen)
        or _break_tie(option, chosen)
    )
    return reason, f"{format_fit(option)}; {difference}"


def _compare_precedence(
    option: Option, chosen: Option, placement: PlacementSpec
) -> Comparison | None:
    """Explain the first criterion before the policy's by which the option ranks behind."""
    rank, first = precedence(option, placement), precedence(chosen, placement)
    if rank.later > first.later:
        return _explain_growth(option, chosen, placement)
    if rank.unverified > first.unverified:
        return FeasibleReason.NOT_VERIFIED, _format_unverified(option, chosen)
    if rank.capacity > first.capacity:
        return FeasibleReason.LESS_CAPACITY, format_capacity(option)
    if rank.avoided > first.avoided:
        message = "spec.placement.tightFit is Avoid, and what is left may be less than is needed"
        return FeasibleReason.TIGHT_FIT, message
    return None


def _explain_growth(option: Option, chosen: Option, placement: PlacementSpec) -> Comparison:
    """Explain that a pool has to grow first, and how to take it where the policy prefers it."""
    message = format_capacity(option)
    if is_better(option, chosen, placement.policy) and not option.unverified:
        difference = _format_difference(option, chosen, placement.policy)
        message += f"; {difference}, spec.placement.preferGrowth takes it first"
    return FeasibleReason.LESS_CAPACITY, message


def _format_unverified(option: Option, chosen: Option) -> str:
    rules = ", ".join(option.unverified)
    plural = "s" if len(option.unverified) > 1 else ""
    return (
        f"the compatibility rule{plural} {rules} warn{'' if plural else 's'} of the model there and"
        f" not on {chosen.pool.name} (spec.placement.allow)"
    )


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
    if not capacity_class(option).is_now and capacity_class(chosen).is_now:
        return FeasibleReason.LESS_CAPACITY, format_capacity(option)
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
