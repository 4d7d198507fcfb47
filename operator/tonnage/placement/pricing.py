"""Prices of GPUs: the pool's own price, else the dated price list, else unknown.

Pools without a known price are compared by the number of their GPUs.
"""

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final

from tonnage.api.status import PriceSourceName
from tonnage.fleet.model import Pool

NO_PRICE: Final = "no price known"

_MAX_PARTS: Final = 64
"""No GPU is divided into more partitions; shares are stored as floating-point numbers."""


@dataclass(frozen=True, slots=True)
class PriceSource:
    """The origin of a price: the value for status, and a text for people.

    `date` is the day of a list price (ISO 8601), None for other prices.
    """

    kind: PriceSourceName
    text: str
    date: str | None = None


_BY_GPU_COUNT: Final = PriceSource("GPUCount", NO_PRICE)


def price_per_gpu_hour(pool: Pool) -> tuple[Decimal | None, PriceSource]:
    """Return the price of a whole GPU in US dollars per hour, None when unknown, and its source."""
    if pool.declared is not None and pool.declared.cost_per_gpu_hour is not None:
        source = PriceSource("Pool", f"price of AcceleratorPool {pool.name}")
        return Decimal(pool.declared.cost_per_gpu_hour), source
    if pool.accelerator is not None and pool.accelerator.price is not None:
        price = pool.accelerator.price
        return price.usd_per_gpu_hour, PriceSource(
            "List", f"list price of {price.date}", price.date
        )
    return None, _BY_GPU_COUNT


def price_per_device_hour(pool: Pool) -> tuple[Decimal | None, PriceSource]:
    """Return the price of one device of the pool and its source; a partition costs its share."""
    price, source = price_per_gpu_hour(pool)
    if price is None or pool.partition is None:
        return price, source
    share = Fraction(pool.partition.share).limit_denominator(_MAX_PARTS)
    return price * Decimal(str(pool.partition.share)), replace(
        source, text=f"{share} of the {source.text}"
    )
