"""Which of two options is better under a policy; equal ones are told apart the same way always."""

from decimal import Decimal
from enum import IntEnum
from typing import Any

from tonnage.api.inference import PlacementPolicy
from tonnage.placement.model import Option

Rank = tuple[Any, ...]
"""Sorts options best first: compared element by element, all of the same types."""

Cost = tuple[bool, Decimal]


class RoomClass(IntEnum):
    """How many of the wanted replicas can start now, and later on nodes that an autoscaler adds."""

    ALL_NOW = 0
    SOME_NOW_ALL_LATER = 1
    SOME_NOW = 2
    ALL_LATER = 3
    SOME_LATER = 4
    NONE = 5


def rank(option: Option, policy: PlacementPolicy) -> Rank:
    """More room before less (`room_class`); what fits with memory to spare before what may not,
    unless the user accepts that; then what the policy asks; then the pool's weight, cost, GPUs, the
    smaller tensor-parallel group, and the name."""
    gpus, cost = option.gpus, _cost(option)
    return (
        room_class(option),
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
    """The same whatever room there is: the order in which pools are filled one after the other."""
    return rank(option, policy)[1:]


def room_class(option: Option) -> RoomClass:
    """How much of what is wanted can start, and when: what starts now counts before what a node
    autoscaler may come to add, and that before nothing."""
    all_later = option.grown_room >= option.replicas
    if option.room >= option.replicas:
        return RoomClass.ALL_NOW
    if option.room > 0:
        return RoomClass.SOME_NOW_ALL_LATER if all_later else RoomClass.SOME_NOW
    if option.grown_room > 0:
        return RoomClass.ALL_LATER if all_later else RoomClass.SOME_LATER
    return RoomClass.NONE


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
    """Options without a price come after all with one, among each other by their GPUs."""
    cost = option.compared_cost
    return (True, Decimal(option.gpus)) if cost is None else (False, cost)
