"""Spreads the replicas of one object over several pools. Pure.

Replicas of different pools serve different parts of the load. So the load is counted in work, not
in replicas: the total is 1, and a replica of an option does 1/n of it where the option alone would
need n replicas. A measured load gives n as a fraction: rounding per pool would add up.

Algorithm. First keep running replicas, the most preferred option first; the least preferred lose
those that are no longer needed. Then add the missing replicas on pools with capacity, the most
preferred first. A large replica may do the work of smaller ones: remove replicas that are no longer
needed, the least preferred first. Each used pool has a minimum of replicas, and the number of used
pools has a maximum. The total cost stays within the user's bound, though each pool alone may reach
it, and part of a replica is rounded up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Final

from tonnage.placement.model import Option

ALL_WORK: Final = Fraction(1)
"""The total load of an object."""


@dataclass(frozen=True, slots=True)
class Share:
    """A number of replicas of an option."""

    option: Option
    replicas: int

    @property
    def work(self) -> Fraction:
        """Their part of the work; all shares together may exceed 1."""
        return self.replicas * work_of(self.option)

    def weight_of(self, shares: Sequence["Share"]) -> int:
        """The percentage of this share in the work of all shares."""
        return round(100 * self.work / sum((one.work for one in shares), Fraction(0)))

    @property
    def alone(self) -> Option:
        """The option as if only these replicas were wanted."""
        price, gpus = self.option.price_per_gpu_hour, self.option.parallelism.gpus
        cost = None if price is None else price * gpus * self.replicas
        return replace(self.option, replicas=self.replicas, cost_per_hour=cost, needed=None)


@dataclass(frozen=True, slots=True)
class SpreadLimits:
    """The fewest replicas per used pool, the most used pools, and the highest total cost in US
    dollars per hour, None without a bound."""

    least_replicas: int
    most_pools: int
    budget_per_hour: Decimal | None = None


def work_of(option: Option) -> Fraction:
    """Return the part of the work that one replica does."""
    return 1 / (option.needed or Fraction(max(1, option.replicas)))


def missing_work(shares: Sequence[Share]) -> Fraction:
    """Return the work that no replica does."""
    return max(Fraction(0), ALL_WORK - sum((share.work for share in shares), Fraction(0)))


def split_over(
    options: Sequence[Option], held: Mapping[str, int], limits: SpreadLimits
) -> tuple[Share, ...]:
    """Return replicas by option that do all the work, as far as capacity allows.

    `options` are in the order of preference, one per pool, all for the same load; their `capacity`
    includes running replicas. `held` are the running replicas by pool.
    """
    kept = _keep(options, held, limits)
    counts = _trim(options, _grow(options, kept, limits), limits)
    return tuple(
        Share(option, replicas)
        for option, replicas in zip(options, counts, strict=True)
        if replicas
    )


def _keep(
    options: Sequence[Option], held: Mapping[str, int], limits: SpreadLimits
) -> Sequence[int]:
    left, budget, pools, kept = ALL_WORK, limits.budget_per_hour, limits.most_pools, []
    for option in options:
        running = min(held.get(option.pool.name, 0), option.capacity, _affordable(option, budget))
        replicas = min(running, _needed(left, option)) if pools else 0
        if replicas:
            replicas = max(replicas, min(running, limits.least_replicas))
            pools -= 1
        kept.append(replicas)
        left -= replicas * work_of(option)
        budget = _spend(budget, option, replicas)
    return kept


def _grow(options: Sequence[Option], kept: Sequence[int], limits: SpreadLimits) -> Sequence[int]:
    left, budget = ALL_WORK, limits.budget_per_hour
    for option, replicas in zip(options, kept, strict=True):
        left -= replicas * work_of(option)
        budget = _spend(budget, option, replicas)
    pools = limits.most_pools - sum(1 for replicas in kept if replicas)
    grown = []
    for option, replicas in zip(options, kept, strict=True):
        most = min(option.capacity, replicas + _affordable(option, budget))
        wanted = min(most, max(replicas + _needed(left, option), limits.least_replicas))
        opens_pool = replicas == 0
        if left <= 0 or wanted < limits.least_replicas or (opens_pool and not pools):
            grown.append(replicas)
            continue
        pools -= opens_pool
        left -= (wanted - replicas) * work_of(option)
        budget = _spend(budget, option, wanted - replicas)
        grown.append(wanted)
    return grown


def _trim(options: Sequence[Option], grown: Sequence[int], limits: SpreadLimits) -> Sequence[int]:
    spare = -ALL_WORK + sum(
        replicas * work_of(option) for option, replicas in zip(options, grown, strict=True)
    )
    trimmed = []
    for option, replicas in zip(reversed(options), reversed(grown), strict=True):
        needed = replicas - min(replicas, max(0, floor(spare / work_of(option))))
        minimum = min(replicas, limits.least_replicas) if needed else 0
        trimmed.append(max(needed, minimum))
        spare -= (replicas - trimmed[-1]) * work_of(option)
    return trimmed[::-1]


def _affordable(option: Option, budget: Decimal | None) -> int:
    """Return the replicas that the budget pays for, all that can run without one."""
    price = (option.price_per_gpu_hour or Decimal(0)) * option.parallelism.gpus
    return option.capacity if budget is None or not price else max(0, int(budget // price))


def _spend(budget: Decimal | None, option: Option, replicas: int) -> Decimal | None:
    price = (option.price_per_gpu_hour or Decimal(0)) * option.parallelism.gpus
    return None if budget is None else budget - replicas * price


def _needed(work: Fraction, option: Option) -> int:
    return max(0, ceil(work / work_of(option)))
