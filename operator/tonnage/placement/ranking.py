"""Which of two options is better under a policy; equal ones are told apart the same way always."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tonnage.api.inference import PlacementPolicy
from tonnage.placement.model import Option

Rank = tuple[Any, ...]
"""Sorts options best first: compared element by element, all of the same types."""


def rank(option: Option, policy: PlacementPolicy) -> Rank:
    """Room for all replicas before room for some before none; what fits with memory to spare before
    what may not, unless the user accepts that; then what the policy asks; then the pool's weight,
    cost, GPUs, the smaller tensor-parallel group, and the name."""
    return (
        _room_class(option),
        option.avoided,
        _METRICS[policy](option),
        -option.pool.weight,
        _cost(option),
        option.gpus,
        option.parallelism.tensor,
        option.parallelism.pipeline,
        option.pool.name,
    )


def _room_class(option: Option) -> int:
    if option.room >= option.replicas:
        return 0
    return 1 if option.room > 0 else 2


def _cost(option: Option) -> tuple[bool, Decimal]:
    """Options without a price come after all with one, among each other by their GPUs."""
    if option.compared_cost is None:
        return True, Decimal(option.gpus)
    return False, option.compared_cost


def _slowness(option: Option) -> tuple[bool, float]:
    speed = option.tokens_per_second
    return (True, 0.0) if speed is None else (False, -speed)


_METRICS: dict[PlacementPolicy, Callable[[Option], Any]] = {
    PlacementPolicy.LOWEST_COST: _cost,
    PlacementPolicy.FEWEST_GPUS: lambda option: option.gpus,
    PlacementPolicy.HIGHEST_THROUGHPUT: _slowness,
}
