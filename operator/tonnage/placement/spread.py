"""How the replicas of one object are split over several pools. Pure.

Pools differ in what one replica of them carries, so the load is counted in work and not in
replicas: all of it is 1, and a replica of an option carries one over as many as the option alone
would need of it. Where the measured load says how many these are, they are not rounded to whole
replicas: what is rounded once for each pool adds up.

Algorithm. First what runs is kept, the most preferred first: work that is not asked for any more is
given back from the other end. Then what is still lacking is taken from the pools with room, the
most preferred first. A large replica may thereby carry what smaller ones did: those that nothing
depends on any more are given back, the least preferred first. A pool that is used at all has so
many replicas at least, and no more pools than so many are used. All together cost no more than the
user allows, though each pool alone may, and part of a replica be rounded up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Final

from tonnage.placement.model import Option

ALL_WORK: Final = Fraction(1)
"""What an object is asked to carry."""


@dataclass(frozen=True, slots=True)
class Share:
    """So many replicas of an option."""

    option: Option
    replicas: int

    @property
    def work(self) -> Fraction:
        """What they carry; all together may carry more than there is."""
        return self.replicas * work_of(self.option)

    def weight_of(self, shares: Sequence["Share"]) -> int:
        """Its part of what all of them can carry, in percent."""
        return round(100 * self.work / sum((one.work for one in shares), Fraction(0)))

    @property
    def alone(self) -> Option:
        """The option as if these replicas were all that is wanted."""
        price, gpus = self.option.price_per_gpu_hour, self.option.parallelism.gpus
        cost = None if price is None else price * gpus * self.replicas
        return replace(self.option, replicas=self.replicas, cost_per_hour=cost, needed=None)


@dataclass(frozen=True, slots=True)
class SpreadLimits:
    """Fewest replicas on a pool that is used, most pools that are used, and what all may cost in US
    dollars an hour, None where they may cost anything."""

    least_replicas: int
    most_pools: int
    budget_per_hour: Decimal | None = None


def work_of(option: Option) -> Fraction:
    """What one replica carries."""
    return 1 / (option.needed or Fraction(max(1, option.replicas)))


def lacking(shares: Sequence[Share]) -> Fraction:
    """Work that nobody carries."""
    return max(Fraction(0), ALL_WORK - sum((share.work for share in shares), Fraction(0)))


def split_over(
    options: Sequence[Option], held: Mapping[str, int], limits: SpreadLimits
) -> tuple[Share, ...]:
    """Replicas by option that carry all the work, as far as there is room.

    `options` stand in the order of preference, one a pool, all for the same load; their room counts
    what runs there. `held` are the replicas that run, by pool.
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
    left, money, pools, kept = ALL_WORK, limits.budget_per_hour, limits.most_pools, []
    for option in options:
        running = min(held.get(option.pool.name, 0), option.room, _affordable(option, money))
        replicas = min(running, _needed(left, option)) if pools else 0
        if replicas:
            replicas = max(replicas, min(running, limits.least_replicas))
            pools -= 1
        kept.append(replicas)
        left -= replicas * work_of(option)
        money = _spend(money, option, replicas)
    return kept


def _grow(options: Sequence[Option], kept: Sequence[int], limits: SpreadLimits) -> Sequence[int]:
    left, money = ALL_WORK, limits.budget_per_hour
    for option, replicas in zip(options, kept, strict=True):
        left -= replicas * work_of(option)
        money = _spend(money, option, replicas)
    pools = limits.most_pools - sum(1 for replicas in kept if replicas)
    grown = []
    for option, replicas in zip(options, kept, strict=True):
        most = min(option.room, replicas + _affordable(option, money))
        wanted = min(most, max(replicas + _needed(left, option), limits.least_replicas))
        opens = replicas == 0
        if left <= 0 or wanted < limits.least_replicas or (opens and not pools):
            grown.append(replicas)
            continue
        pools -= opens
        left -= (wanted - replicas) * work_of(option)
        money = _spend(money, option, wanted - replicas)
        grown.append(wanted)
    return grown


def _trim(options: Sequence[Option], grown: Sequence[int], limits: SpreadLimits) -> Sequence[int]:
    spare = -ALL_WORK + sum(
        replicas * work_of(option) for option, replicas in zip(options, grown, strict=True)
    )
    trimmed = []
    for option, replicas in zip(reversed(options), reversed(grown), strict=True):
        rest = replicas - min(replicas, max(0, floor(spare / work_of(option))))
        fewest = min(replicas, limits.least_replicas) if rest else 0
        trimmed.append(max(rest, fewest))
        spare -= (replicas - trimmed[-1]) * work_of(option)
    return trimmed[::-1]


def _affordable(option: Option, money: Decimal | None) -> int:
    """Replicas that the money pays for, at most as many as there is room for."""
    price = (option.price_per_gpu_hour or Decimal(0)) * option.parallelism.gpus
    return option.room if money is None or not price else max(0, int(money // price))


def _spend(money: Decimal | None, option: Option, replicas: int) -> Decimal | None:
    price = (option.price_per_gpu_hour or Decimal(0)) * option.parallelism.gpus
    return None if money is None else money - replicas * price


def _needed(work: Fraction, option: Option) -> int:
    return max(0, ceil(work / work_of(option)))
