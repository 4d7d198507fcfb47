"""Short days of small fleets: what they cost, who moves, who is without an answer, what is broken.

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
from tests.support.synthetic_day import SyntheticDay
from tonnage.controller.fleet_state import FleetState
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


async def test_when_nothing_happens_six_gpus_are_paid_for_and_nothing_is_written() -> None:
    found = await play(day())
    assert found.broken == []
    assert (found.gpu_hours, found.starts) == ({"h100": 36.0}, 6)
    assert found.dollars == pytest.approx(36 * 2.10)
    assert found.short_replica_hours == pytest.approx(6 * LOAD_SECONDS[SMALL] / HOUR)


async def test_a_lost_pool_costs_the_wait_and_the_load_once_and_the_way_back_nothing() -> None:
    found = await play(LOST_AND_BACK)
    assert found.broken == []
    assert found.moves == {"FellBack": 3, "Returned": 3}
    each = (5 * MINUTE + LOAD_SECONDS[SMALL]) / MINUTE
    assert found.unanswered_minutes == {f"model-{n}": each for n in range(3)}
    assert (found.starts, found.restarts) == (18, 6)
    # Gone from 2:05 to 3:30; they return one after another, each three minutes on both pools.
    h100 = 6 * 3 + 2 * (2.5 + 2.45 + 2.4)
    mi300x = 2 * (3 * (1.5 - 5 / 60) + 0.05 + 0.1 + 0.15)
    assert found.gpu_hours == pytest.approx({"h100": h100, "mi300x": mi300x})


async def test_a_drain_of_the_whole_pool_leaves_nobody_without_an_answer() -> None:
    work = maintenance(nodes("h100", 2), 2 * HOUR, HOUR / 2)
    found = await play(day(*work, **RETURNS))
    assert found.broken == []
    assert not found.unanswered_minutes
    assert not found.moves, "there is room on the pool's other node"


async def test_who_follows_prices_moves_once_and_not_for_a_flicker() -> None:
    found = await play(PRICE_SWING)
    assert found.broken == []
    assert found.moves == {"Rebalanced": 3}
    assert not found.unanswered_minutes
    before_the_rise = 6 * (3 * 2.10 + 0.25 * 2.10)  # with a quarter of an hour at the double price
    moving, moved = 2 * (0.55 + 0.6 + 0.65) * 4.20, 2 * (2.5 + 2.45 + 2.4) * 2.60
    assert found.dollars == pytest.approx(before_the_rise + moving + moved)


@pytest.mark.parametrize(
    ("well_with", "want_pool", "want_moves"),
    [("", "mi300x", {"FellBack": 1}), ("--max-num-seqs=128", "h100", {})],
    ids=["another pool helps", "fewer sequences help"],
)
async def test_who_runs_out_of_memory_comes_to_run_and_tries_no_plan_twice(
    well_with: str, want_pool: str, want_moves: dict[str, int]
) -> None:
    found = await play(out_of_memory(ON_H100, well_with=well_with))
    assert found.broken == []
    assert found.moves == want_moves
    assert found.starts <= 2 * (MOST_STARTS + 1)
    assert found.short_replica_hours < 2
    assert found.gpu_hours[want_pool] > 6


async def test_whose_servers_die_wherever_they_start_is_given_up() -> None:
    found = await play(out_of_memory(ON_H100, ON_MI300X))
    assert found.broken == []
    assert found.starts <= 2 * MOST_STARTS


async def test_who_follows_its_load_comes_to_the_replicas_that_carry_it() -> None:
    load = 2.5 * capacity_of(LARGE, "mi300x", 1).most_per_second
    events = (
        Event(0, following_load("chat", LARGE)),
        Event(0, Attract("chat", SyntheticDay(load, load))),
    )
    found = await play(Day(fleet(mi300x=1), PRICES, events, 2))
    assert found.broken == []
    assert found.gpu_hours["mi300x"] < 2 * 7
    assert found.requests > 0.95 * 2 * HOUR * load
    assert found.late_requests < found.requests / 3, "those of the first load of the model"


def test_replicas_that_go_just_after_they_came_are_told() -> None:
    seen = Scalings()
    numbers = [(0.0, 1), (60.0, 3), (359.0, 2), (400.0, 2), (660.0, 1)]
    told = [what for now, wanted in numbers for what in seen.note("chat", wanted, now)]
    assert told == ["chat scaled in 299 s after it had scaled out"]
    assert seen.count == 3


def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempts, "with_failed", lambda self, plan: replace(self, failed=(plan,)))


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (place, retain):
        monkeypatch.setattr(room, "wait_of", lambda duration: timedelta(0))


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
async def test_an_operator_that_breaks_its_word_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[pytest.MonkeyPatch], None],
    scenario: Day,
    want: str,
) -> None:
    spoil(monkeypatch)
    found: Account = await play(scenario)
    assert any(want in told for told in found.broken), found.broken
