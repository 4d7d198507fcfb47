"""Ranks options as the user prefers them; the order of equal ones is deterministic."""

from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple

from tonnage.api.placement import PlacementPolicy, PlacementSpec, SpreadPolicy
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

    @property
    def is_now(self) -> bool:
        """Whether any replica can start now."""
        return self <= CapacityClass.SOME_NOW

    @property
    def after_growth(self) -> "CapacityClass":
        """The class where a replica on a node to come counts as one that can start now."""
        match self:
            case CapacityClass.SOME_NOW_ALL_LATER | CapacityClass.ALL_LATER:
                return CapacityClass.ALL_NOW
            case CapacityClass.SOME_LATER:
                return CapacityClass.SOME_NOW
            case _:
                return self

    @property
    def of_some_replicas(self) -> "CapacityClass":
        """The class where capacity for some replicas counts as capacity for all."""
        if self.is_now:
            return CapacityClass.ALL_NOW
        return CapacityClass.NONE if self is CapacityClass.NONE else CapacityClass.ALL_LATER


class Precedence(NamedTuple):
    """What decides between options before the policy does, the smaller value first.

    `later`: no replica can start now. `unverified`: a compatibility rule warns of the model there.
    `avoided`: it fits tightly, unless the user accepts that. With `spec.placement.preferGrowth`,
    nodes to come count as capacity now; with the spread policy ByCost, capacity for some replicas
    is as good as capacity for all.
    """

    later: bool
    unverified: bool
    capacity: CapacityClass
    avoided: bool


def precedence(option: Option, placement: PlacementSpec) -> Precedence:
    """Return what decides about the option before the policy does. A model runs where it is not
    verified only while no verified pool can start a replica."""
    capacity = capacity_class(option)
    if placement.prefer_growth:
        capacity = capacity.after_growth
    if _fills_by_cost(placement):
        capacity = capacity.of_some_replicas
    return Precedence(not capacity.is_now, bool(option.unverified), capacity, option.avoided)


def precedence_of(ranked: Rank) -> Precedence:
    """Return the precedence that a rank begins with."""
    return Precedence(*ranked[: len(Precedence._fields)])


def rank(option: Option, placement: PlacementSpec) -> Rank:
    """Return the sort key of an option: its precedence; then the policy's metric; then capacity
    now before nodes to come, where these count as well; then fewer nodes a replica, the pool's
    weight, cost, GPUs, fewer data-parallel ranks, the smaller tensor-parallel group, and the
    name."""
    first, metric = precedence(option, placement), _metric(option, placement.policy)
    if _fills_by_cost(placement):
        return (*first, metric, *_break_ties(option))
    return (*first, metric, capacity_class(option), *_break_ties(option))


def preference(option: Option, policy: PlacementPolicy) -> Rank:
    """Return the rank without capacity: the order in which pools are filled one after the other."""
    risks = bool(option.unverified), option.avoided
    return (*risks, _metric(option, policy), *_break_ties(option))


def _break_ties(option: Option) -> Rank:
    return (
        option.parallelism.nodes,
        -option.pool.weight,
        _cost(option),
        option.gpus,
        option.parallelism.data,
        option.parallelism.tensor,
        option.parallelism.pipeline,
        option.pool.name,
    )


def is_better(option: Option, other: Option, policy: PlacementPolicy) -> bool:
    """Whether the policy's metric alone is better."""
    metric: Any = _metric(option, policy)
    return bool(metric < _metric(other, policy))


def capacity_class(option: Option) -> CapacityClass:
    """Classify how many of the wanted replicas can start, and when: replicas that start now count
    more than those on nodes that a node autoscaler may add, and these more than none."""
    if option.capacity >= option.replicas:
        return CapacityClass.ALL_NOW
    all_later = option.grown_capacity >= option.replicas
    if option.capacity > 0:
        return CapacityClass.SOME_NOW_ALL_LATER if all_later else CapacityClass.SOME_NOW
    if option.grown_capacity > 0:
        return CapacityClass.ALL_LATER if all_later else CapacityClass.SOME_LATER
    return CapacityClass.NONE


def _fills_by_cost(placement: PlacementSpec) -> bool:
    return placement.spread.policy is SpreadPolicy.BY_COST


def _metric(option: Option, policy: PlacementPolicy) -> object:
    match policy:
        case PlacementPolicy.LOWEST_COST:
            return _cost(option)
        case PlacementPolicy.FEWEST_GPUS:
            return option.gpus
        case PlacementPolicy.HIGHEST_THROUGHPUT:
            speed = option.tokens_per_second
            return (True, 0.0) if speed is None else (False, -speed)


def _cost(option: Option) -> Cost:
    """Return the sort key for cost: options without a price come last, ordered by their GPUs."""
    cost = option.compared_cost
    return (True, Decimal(option.gpus)) if cost is None else (False, cost)
