"""Amounts in US dollars: their text, and the price of generated tokens."""

from decimal import Decimal
from typing import Final

_HUNDREDTH: Final = Decimal("0.01")
_SMALLEST: Final = Decimal("0.000001")
_TOKENS: Final = 1_000_000
_SECONDS_PER_HOUR: Final = 3600


def cost_per_million_tokens(cost_per_hour: Decimal, tokens_per_second: float) -> Decimal:
    """Dollars per million generated tokens, at a speed above 0."""
    return cost_per_hour * _TOKENS / (Decimal(tokens_per_second) * _SECONDS_PER_HOUR)


def format_money(amount: Decimal) -> str:
    """Format dollars with cents, or with more digits where cents would hide a small amount."""
    rounded = amount.quantize(_HUNDREDTH)
    cents_suffice = rounded == amount or abs(amount) >= 10 * _HUNDREDTH
    return f"{rounded if cents_suffice else amount.quantize(_SMALLEST).normalize():f}"
