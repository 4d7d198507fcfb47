"""Explains why a pool was chosen, and why another one that could run the model was not."""

from collections.abc import Collection, Set
from dataclasses import dataclass
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
    Precedence,
    Rank,
    capacity_class,
    is_better,
    precedence_of,
    rank,
)

Comparison = tuple[FeasibleReason, str]


@dataclass(frozen=True, slots=True)
class Ranked:
    """An option with its rank by a `spec.placement`, and what decides about it before the policy
    does. `starts_now`: a replica can start without more nodes. `fit` and `cost` are how every
    comparison states them."""

    option: Option
    rank: Rank
    precedence: Precedence
    starts_now: bool
    fit: str
    cost: str


def rank_option(option: Option, placement: PlacementSpec) -> Ranked:
    """Rank an option. Each is ranked once and compared with the choice of many plans."""
    by_placement = rank(option, placement)
    return Ranked(
        option,
        by_placement,
        precedence_of(by_placement),
        capacity_class(option).is_now,
        format_fit(option),
        _format_cost(option),
    )


_BEST_OF: Final = {
    PlacementPolicy.LOWEST_COST: "the lowest cost",
    PlacementPolicy.FEWEST_GPUS: "the fewest GPUs",
    PlacementPolicy.HIGHEST_THROUGHPUT: "the highest estimated throughput",
}


def explain_choice(best: Ranked, feasible: Collection[Ranked], placement: PlacementSpec) -> str:
    """Return what the best option is the best of: only the pools that nothing but the policy
    decides about count, and where others are left out, the text says by what."""
    first = best.precedence
    all_ranks = [each.precedence for each in feasible]
    pools = format_count(all_ranks.count(first), "pool")
    ranks = set(all_ranks)
    classes = {rank.capacity for rank in ranks}
    which = [_format_capacity_class(first.capacity, classes, feasible)]
    if any(rank.unverified > first.unverified for rank in ranks):
        which.append("where no compatibility rule warns")
    if any(rank[:3] == first[:3] and rank.avoided > first.avoided for rank in ranks):
        which.append("with memory to spare")
    return f"{_BEST_OF[placement.policy]} of {pools} {' '.join(which)}"


def _format_capacity_class(
    first: CapacityClass, classes: Set[CapacityClass], feasible: Collection[Ranked]
) -> str:
    """Format the capacity that the compared pools have in common, in more words where others have
    less."""
    if not first.is_now:
        return "that can grow"
    others = classes - {first}
    growth = any(not each.starts_now and each.precedence.capacity is first for each in feasible)
    if not others and not growth:
        return "with capacity"
    when = ", now or after growth" if growth else " now"
    if not any(capacity.is_now for capacity in others):
        return f"with capacity{when}"
    replicas = "all" if first is CapacityClass.ALL_NOW else "some"
    return f"with capacity for {replicas} replicas{when}"


def compare(other: Ranked, best: Ranked, placement: PlacementSpec, *, kept: bool) -> Comparison:
    """Return the first reason why the option `other` ranks behind `best`, and a sentence.

    `kept`: the choice is kept because its replicas already run there.
    """
    policy = placement.policy
    if kept:
        difference = _format_difference(other, best, policy)
        message = f"{other.fit}; {difference}; replicas stay on {best.option.pool.name}"
        return FeasibleReason.REPLICAS_RUN_ELSEWHERE, message
    reason, difference = (
        (other.precedence > best.precedence and _compare_precedence(other, best, placement))
        or _COMPARISONS[policy](other, best)
        or _break_tie(other, best)
    )
    return reason, f"{other.fit}; {difference}"


def _compare_precedence(other: Ranked, best: Ranked, placement: PlacementSpec) -> Comparison | None:
    """Explain the first criterion before the policy's by which the option ranks behind."""
    later, unverified, capacity, avoided = other.precedence
    first = best.precedence
    if later > first.later:
        return _explain_growth(other, best, placement)
    if unverified > first.unverified:
        return FeasibleReason.NOT_VERIFIED, _format_unverified(other.option, best.option)
    if capacity > first.capacity:
        return FeasibleReason.LESS_CAPACITY, format_capacity(other.option)
    if avoided > first.avoided:
        message = "spec.placement.tightFit is Avoid, and what is left may be less than is needed"
        return FeasibleReason.TIGHT_FIT, message
    return None


def _explain_growth(other: Ranked, best: Ranked, placement: PlacementSpec) -> Comparison:
    """Explain that a pool has to grow first, and how to take it where the policy prefers it."""
    option, message = other.option, format_capacity(other.option)
    if is_better(option, best.option, placement.policy) and not option.unverified:
        difference = _format_difference(other, best, placement.policy)
        message += f"; {difference}, spec.placement.preferGrowth takes it first"
    return FeasibleReason.LESS_CAPACITY, message


def _format_unverified(option: Option, chosen: Option) -> str:
    rules = ", ".join(option.unverified)
    plural = "s" if len(option.unverified) > 1 else ""
    return (
        f"the compatibility rule{plural} {rules} warn{'' if plural else 's'} of the model there and"
        f" not on {chosen.pool.name} (spec.placement.allow)"
    )


def _compare_cost(other: Ranked, best: Ranked) -> Comparison | None:
    cost, lowest = other.option.compared_cost, best.option.compared_cost
    if cost is None and lowest is not None:
        return FeasibleReason.NO_PRICE_KNOWN, f"{NO_PRICE} against {best.cost}"
    if cost is None or lowest is None:
        return _compare_gpus(other, best)
    if cost > lowest:
        return FeasibleReason.COSTS_MORE, f"{other.cost} against {best.cost}"
    return None


def _compare_gpus(other: Ranked, best: Ranked) -> Comparison | None:
    option, chosen = other.option, best.option
    if option.gpus > chosen.gpus:
        message = f"{format_devices(option.pool, option.gpus)} against {chosen.gpus}"
        return FeasibleReason.NEEDS_MORE_GPUS, message
    return None


def _compare_speed(other: Ranked, best: Ranked) -> Comparison | None:
    option, chosen = other.option, best.option
    speed, highest = option.tokens_per_second, chosen.tokens_per_second
    if option.estimate is None or speed is None:
        if highest is None:
            return None
        return FeasibleReason.NO_ESTIMATE, f"no estimate against {format_speed(chosen)}"
    if highest is not None and speed < highest:
        speeds = f"{format_speed(option)} against {format_speed(chosen)}"
        return FeasibleReason.SLOWER, f"{speeds} ({format_band(option.estimate)})"
    return None


def _break_tie(other: Ranked, best: Ranked) -> Comparison:
    """Explain the order of options that are equal under the policy (see ranking.rank)."""
    option, chosen = other.option, best.option
    if not capacity_class(option).is_now and capacity_class(chosen).is_now:
        return FeasibleReason.LESS_CAPACITY, format_capacity(option)
    weight, first = option.pool.weight, chosen.pool.weight
    if weight != first:
        message = f"weight {weight} against {first} of {chosen.pool.name}"
    elif option.compared_cost != chosen.compared_cost:
        message = f"{other.cost} against {best.cost}"
    else:
        message = f"as good as {chosen.pool.name}, which comes first"
    return FeasibleReason.RANKS_LOWER, message


def _format_difference(other: Ranked, best: Ranked, policy: PlacementPolicy) -> str:
    option, chosen = other.option, best.option
    if policy is PlacementPolicy.FEWEST_GPUS:
        return f"{format_devices(option.pool, option.gpus)} against {chosen.gpus}"
    if policy is PlacementPolicy.HIGHEST_THROUGHPUT:
        return f"{format_speed(option)} against {format_speed(chosen)} (estimates)"
    return f"{other.cost} against {best.cost}"


def _format_cost(option: Option) -> str:
    if option.compared_cost is None:
        return NO_PRICE
    return f"{format_money(option.compared_cost)}/h"


_COMPARISONS = {
    PlacementPolicy.LOWEST_COST: _compare_cost,
    PlacementPolicy.FEWEST_GPUS: _compare_gpus,
    PlacementPolicy.HIGHEST_THROUGHPUT: _compare_speed,
}
