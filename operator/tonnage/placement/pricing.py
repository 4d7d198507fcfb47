"""What GPUs cost: the pool's own price, else the dated price list, else nobody knows."""

from decimal import Decimal
from typing import Final

from tonnage.fleet.model import Pool

NO_PRICE: Final = "no price known"

_HUNDREDTH: Final = Decimal("0.01")
_SMALLEST: Final = Decimal("0.000001")


def price_per_gpu_hour(pool: Pool) -> tuple[Decimal | None, str]:
    """US dollars for one GPU for an hour, None when not known, and where that comes from."""
    if pool.declared is not None and pool.declared.cost_per_gpu_hour is not None:
        return Decimal(pool.declared.cost_per_gpu_hour), f"price of AcceleratorPool {pool.name}"
    if pool.accelerator is not None and pool.accelerator.price is not None:
        price = pool.accelerator.price
        return price.usd_per_gpu_hour, f"list price of {price.date}"
    return None, NO_PRICE


def format_money(amount: Decimal) -> str:
    """Dollars with cents, with more digits where cents would hide a small amount."""
    rounded = amount.quantize(_HUNDREDTH)
    told_by_cents = rounded == amount or abs(amount) >= 10 * _HUNDREDTH
    return f"{rounded if told_by_cents else amount.quantize(_SMALLEST).normalize():f}"
