"""Short days of small fleets: cost, migrations, time without a ready replica, violations.

The days of a large fleet are played by `python -m benchmarks.in_memory.simulator`.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.simulator.account import Account
from tests.simulator.acts import (
    HOUR,
    MINUTE,
    Attract,
    Event,
    Price,
    RunOutOfMemory,
    maintenance,
    outage,
)
from tests.simulator.day import Day, play
from tests.simulator.models import capacity_of
from tests.simulator.scalings import Scalings
from tests.simulator.scenarios import (
    FOLLOWS_PRICES,
    LARGE,
    LOAD_SECONDS,
    PRICES,
    RETURNS,
    SMALL,
    create,
    fleet,
    following_load,
    nodes,
)
from tests.support.load.synthetic_day import SyntheticDay
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.observation.attempts import Attempts
from tonnage.reconcile.scheduling import place, retain
from tonnage.reconcile.scheduling.migration_lock import MigrationLock

ON_H100, ON_MI300X = "h100-sxm-80gb", "mi300x"
MOST_STARTS = 14  # `starts` in catalog/data/oom_fallback.yaml


def objects(count: int, **placement: Any) -> tuple[Event, ...]:
    """So many objects of two replicas, which cost least on H100."""
    return tuple(Event(0, create(f"model-{n}", SMALL, 2, placement)) for n in range(count))


def day(*events: Event, **placement: Any) -> Day:
    """Six hours with three objects, and what happens to them."""
    return Day(fleet(mi300x=2, h100=2), PRICES, (*objects(3, **placement), *events), 6)


def out_of_memory(*placements: str, well_with: str = "") -> Day:
    """Four hours with one object, whose servers die there unless they have that argument."""
    (created,) = objects(1)
    dies = Event(0, RunOutOfMemory("model-0", placements, well_with))
    return Day(fleet(mi300x=1, h100=1), PRICES, (created, dies), 4)


CROWDED = Day(fleet(h100=1), PRICES, objects(6), 1)
LOST = outage(nodes("h100", 2), 2 * HOUR, 3 * HOUR)
LOST_AND_BACK = day(*LOST, **RETURNS)
SWING = [(2.0, "4.20"), (2.25, "2.10"), (3.0, "4.20")]
PRICE_SWING = day(
    *(Event(hour * HOUR, Price("h100", dollars)) for hour, dollars in SWING), **FOLLOWS_PRICES
)


async def test_a_day_without_changes_costs_six_gpus_and_no_write() -> None:
    account = await play(day())
    assert account.broken == []
    assert (account.gpu_hours, account.starts) == ({"h100": 36.0}, 6)
    assert account.dollars == pytest.approx(36 * 2.10)
    assert account.short_replica_hours == pytest.approx(6 * LOAD_SECONDS[SMALL] / HOUR)


async def test_a_lost_pool_costs_the_fallback_delay_and_one_load_and_the_return_nothing() -> None:
    account = await play(LOST_AND_BACK)
    assert account.broken == []
    assert account.moves == {"FellBack": 3, "Returned": 3}
    each = (5 * MINUTE + LOAD_SECONDS[SMALL]) / MINUTE
    assert account.unanswered_minutes == {f"model-{n}": each for n in range(3)}
    assert (account.starts, account.restarts) == (18, 6)
    # Gone from 2:05 to 3:30; they return one after another, each three minutes on both pools.
    h100 = 6 * 3 + 2 * (2.5 + 2.45 + 2.4)
    mi300x = 2 * (3 * (1.5 - 5 / 60) + 0.05 + 0.1 + 0.15)
    assert account.gpu_hours == pytest.approx({"h100": h100, "mi300x": mi300x})


async def test_a_drain_of_the_pool_always_leaves_a_ready_replica() -> None:
    work = maintenance(nodes("h100", 2), 2 * HOUR, HOUR / 2)
    account = await play(day(*work, **RETURNS))
    assert account.broken == []
    assert not account.unanswered_minutes
    assert not account.moves, "the pool's other node has free GPUs"


async def test_a_price_change_migrates_once_and_a_short_one_never() -> None:
    account = await play(PRICE_SWING)
    assert account.broken == []
    assert account.moves == {"Rebalanced": 3}
    assert not account.unanswered_minutes
    before_the_rise = 6 * (3 * 2.10 + 0.25 * 2.10)  # with a quarter of an hour at the double price
    moving, moved = 2 * (0.55 + 0.6 + 0.65) * 4.20, 2 * (2.5 + 2.45 + 2.4) * 2.60
    assert account.dollars == pytest.approx(before_the_rise + moving + moved)


@pytest.mark.parametrize(
    ("well_with", "want_pool", "want_moves"),
    [("", "mi300x", {"FellBack": 1}), ("--max-num-seqs=128", "h100", {})],
    ids=["another pool helps", "fewer sequences help"],
)
async def test_an_object_out_of_memory_finds_a_plan_and_tries_none_twice(
    well_with: str, want_pool: str, want_moves: dict[str, int]
) -> None:
    account = await play(out_of_memory(ON_H100, well_with=well_with))
    assert account.broken == []
    assert account.moves == want_moves
    assert account.starts <= 2 * (MOST_STARTS + 1)
    assert account.short_replica_hours < 2
    assert account.gpu_hours[want_pool] > 6


async def test_an_object_that_fails_on_every_pool_is_given_up() -> None:
    account = await play(out_of_memory(ON_H100, ON_MI300X))
    assert account.broken == []
    assert account.starts <= 2 * MOST_STARTS


async def test_a_load_gets_the_replicas_that_carry_it() -> None:
    load = 2.5 * capacity_of(LARGE, "mi300x", 1).most_per_second
    events = (
        Event(0, following_load("chat", LARGE)),
        Event(0, Attract("chat", SyntheticDay(load, load))),
    )
    account = await play(Day(fleet(mi300x=1), PRICES, events, 2))
    assert account.broken == []
    assert account.gpu_hours["mi300x"] < 2 * 7
    assert account.requests > 0.95 * 2 * HOUR * load
    assert account.late_requests < account.requests / 3, "those of the first load of the model"


def test_scaling_in_soon_after_scaling_out_is_a_violation() -> None:
    seen = Scalings()
    numbers = [(0.0, 1), (60.0, 3), (359.0, 2), (400.0, 2), (660.0, 1)]
    violations = [what for now, wanted in numbers for what in seen.note("chat", wanted, now)]
    assert violations == ["chat scaled in 299 s after it had scaled out"]
    assert seen.count == 3


def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempts, "with_failed", lambda self, plan: replace(self, failed=(plan,)))


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (place, retain):
        monkeypatch.setattr(module, "wait_of", lambda duration: timedelta(0))


def all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MigrationLock, "may_begin", lambda *_: True)


def without_a_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FleetState, "reserve", lambda *_: None)


@pytest.mark.parametrize(
    ("spoil", "scenario", "want"),
    [
        (impatient, LOST_AND_BACK, "fell back after"),
        (impatient, LOST_AND_BACK, "whose usable GPUs were"),
        (impatient, PRICE_SWING, "too early"),
        (all_at_once, PRICE_SWING, "moves by choice while"),
        (forgetful, replace(out_of_memory(ON_H100, ON_MI300X), hours=2), "tries again"),
        (without_a_ledger, CROWDED, "overpromised"),
    ],
)
async def test_an_operator_that_breaks_a_rule_is_detected(
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[pytest.MonkeyPatch], None],
    scenario: Day,
    want: str,
) -> None:
    spoil(monkeypatch)
    account: Account = await play(scenario)
    assert any(want in violation for violation in account.broken), account.broken
