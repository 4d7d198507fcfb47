"""What GPUs cost: the pool's own price, else the dated price list, else nobody knows.

Where no price is known a pool is compared with the others of its kind by the number of its GPUs.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from tonnage.api.status import PriceSourceName
from tonnage.fleet.model import Pool

NO_PRICE: Final = "no price known"

_HUNDREDTH: Final = Decimal("0.01")
_SMALLEST: Final = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class PriceSource:
    """Where a price comes from, in the word that status has and in a few for people.

    `date` is the day a list price was seen (ISO 8601), None for other prices.
    """

    kind: PriceSourceName
    text: str
    date: str | None = None


_BY_GPU_COUNT: Final = PriceSource("GPUCount", NO_PRICE)


def price_per_gpu_hour(pool: Pool) -> tuple[Decimal | None, PriceSource]:
    """US dollars for one whole GPU for an hour, None when not known, and where that comes from."""
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
    """The same for one device of the pool: where that is a part of a GPU, as much of its price."""
    price, source = price_per_gpu_hour(pool)
    if price is None or pool.partition is None:
        return price, source
    return price * Decimal(str(pool.partition.share)), source


def format_money(amount: Decimal) -> str:
    """Dollars with cents, with more digits where cents would hide a small amount."""
    rounded = amount.quantize(_HUNDREDTH)
    told_by_cents = rounded == amount or abs(amount) >= 10 * _HUNDREDTH
    return f"{rounded if told_by_cents else amount.quantize(_SMALLEST).normalize():f}"
