"""Amounts of money as text, and the price of tokens."""

from decimal import Decimal

import pytest

from tonnage.catalog.prices import cost_per_million_tokens, format_money


@pytest.mark.parametrize(
    ("amount", "want"),
    [("1.99", "1.99"), ("3", "3.00"), ("0.004567", "0.004567"), ("12.345", "12.34")],
)
def test_money_has_cents_and_more_where_they_would_hide_it(amount: str, want: str) -> None:
    assert format_money(Decimal(amount)) == want


def test_a_million_tokens_cost_what_the_time_for_them_costs() -> None:
    assert cost_per_million_tokens(Decimal("3.60"), 1000.0) == Decimal("1")
