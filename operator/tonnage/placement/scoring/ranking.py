"""Ranks options under a policy; the order of equal ones is deterministic."""

from decimal import Decimal
from enum import IntEnum
from typing import Any

from tonnage.api.inference import PlacementPolicy
from tonnage.placement.model import Option

Rank = tuple[Any, ...]
"""Sort key of options, best first; the elements at one index have the same type."""

Cost = tuple[bool, Decimal]


class CapacityClass(IntEnum):
    """How many of the wanted replicas can start now, and later on nodes that an autoscaler adds."""

    ALL_NOW = 0
    SOME_NOW_ALL_LATER = 1
    SOME_NOW = 2
    ALL_LATER = 3
    SOME_LATER = 4
    NONE = 5


def rank(option: Option, policy: PlacementPolicy) -> Rank:
    """Return the sort key of an option: more capacity first (`capacity_class`); then fits that are
    not tight, unless the user accepts tight ones; then the policy's metric; then the pool's weight,
    cost, GPUs, the smaller tensor-parallel group, and the name."""
    gpus, cost = option.gpus, _cost(option)
    return (
        capacity_class(option),
        option.avoided,
        _metric(option, policy, cost, gpus),
        -option.pool.weight,
        cost,
        gpus,
        option.parallelism.tensor,
        option.parallelism.pipeline,
        option.pool.name,
    )


def preference(option: Option, policy: PlacementPolicy) -> Rank:
    """Return the rank without capacity: the order in which pools are filled one after the other."""
    return rank(option, policy)[1:]


def capacity_class(option: Option) -> CapacityClass:
    """Classify how many of the wanted replicas can start, and when: replicas that start now count
    more than those on nodes that a node autoscaler may add, and these more than none."""
    all_later = option.grown_capacity >= option.replicas
    if option.capacity >= option.replicas:
        return CapacityClass.ALL_NOW
    if option.capacity > 0:
        return CapacityClass.SOME_NOW_ALL_LATER if all_later else CapacityClass.SOME_NOW
    if option.grown_capacity > 0:
        return CapacityClass.ALL_LATER if all_later else CapacityClass.SOME_LATER
    return CapacityClass.NONE


def _metric(option: Option, policy: PlacementPolicy, cost: Cost, gpus: int) -> object:
    match policy:
        case PlacementPolicy.LOWEST_COST:
            return cost
        case PlacementPolicy.FEWEST_GPUS:
            return gpus
        case PlacementPolicy.HIGHEST_THROUGHPUT:
            speed = option.tokens_per_second
            return (True, 0.0) if speed is None else (False, -speed)


def _cost(option: Option) -> Cost:
    """Return the sort key for cost: options without a price come last, ordered by their GPUs."""
    cost = option.compared_cost
    return (True, Decimal(option.gpus)) if cost is None else (False, cost)
