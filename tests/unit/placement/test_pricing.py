"""Prices: whose counts, how much of it a part of a GPU costs, and what a list price has to say."""

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from tests.support.fleets.gpu_nodes import amd_node, snapshot_of
from tests.support.fleets.placing import CATALOG
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.model import Partition, Pool
from tonnage.placement.pricing import PriceSource, price_per_device_hour, price_per_gpu_hour

(MI300X,) = build_pools(snapshot_of([amd_node("a")]), CATALOG)


def declared_at(price: str) -> Pool:
    spec = AcceleratorPoolSpec.model_validate(
        {"nodeSelector": {"pool": "a"}, "costPerGPUHour": price}
    )
    return replace(MI300X, name="mine", declared=spec)


def unpriced(pool: Pool) -> Pool:
    assert pool.accelerator is not None
    return replace(pool, accelerator=replace(pool.accelerator, price=None))


PRICES: dict[str, tuple[Pool, tuple[Decimal | None, PriceSource]]] = {
    "the pool's own before the list's": (
        declared_at("2.50"),
        (Decimal("2.50"), PriceSource("Pool", "price of AcceleratorPool mine")),
    ),
    "the list's, with its day": (
        MI300X,
        (Decimal("1.99"), PriceSource("List", "list price of 2026-05-18", "2026-05-18")),
    ),
    "unpriced": (unpriced(MI300X), (None, PriceSource("GPUCount", "no price known"))),
    "unpriced, of devices that are not recognised": (
        replace(MI300X, accelerator=None),
        (None, PriceSource("GPUCount", "no price known")),
    ),
}


@pytest.mark.parametrize(("pool", "want"), PRICES.values(), ids=PRICES.keys())
def test_whose_price_counts(pool: Pool, want: tuple[Decimal | None, PriceSource]) -> None:
    assert price_per_gpu_hour(pool) == want
    assert price_per_device_hour(pool) == want, "a whole GPU is a device"


def test_a_part_of_a_gpu_costs_its_share() -> None:
    eighth = Partition("cpx_nps4", 24 * 2**30, 0.125)
    pool = replace(declared_at("2.00"), partition=eighth)
    assert price_per_device_hour(pool)[0] == Decimal("0.25")
    assert price_per_gpu_hour(pool)[0] == Decimal("2.00")
    assert price_per_device_hour(replace(unpriced(MI300X), partition=eighth))[0] is None


@pytest.mark.parametrize(
    ("partition", "want"),
    [
        (Partition("cpx_nps4", 24 * 2**30, 0.125), "1/8 of the list price of 2026-05-18"),
        (Partition("3g.40gb", 40 * 2**30, 3 / 7), "3/7 of the list price of 2026-05-18"),
    ],
)
def test_the_price_of_a_part_says_of_which_price(partition: Partition, want: str) -> None:
    _, source = price_per_device_hour(replace(MI300X, partition=partition))
    assert (source.kind, source.text, source.date) == ("List", want, "2026-05-18")
    _, own = price_per_device_hour(replace(declared_at("2.00"), partition=partition))
    assert own.text == f"{want.split(maxsplit=1)[0]} of the price of AcceleratorPool mine"


def test_every_list_price_has_a_day_and_a_source() -> None:
    prices = [each.price for each in CATALOG.accelerators.values() if each.price is not None]
    assert len(prices) >= 16
    for price in prices:
        assert price.usd_per_gpu_hour > 0
        assert date.fromisoformat(price.date).year >= 2026
        assert "on demand" in price.source or "on-demand" in price.source
