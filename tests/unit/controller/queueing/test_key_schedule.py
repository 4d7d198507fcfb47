"""The order of keys: priorities, namespaces, kept workers, delays."""

from collections import Counter

import pytest

from tests.support.faults.fake_clock import FakeClock
from tonnage.controller.queueing.delayed_keys import DelayedKeys
from tonnage.controller.queueing.key_schedule import KeySchedule
from tonnage.controller.queueing.priority import Priority, WeightedFairOrder, WorkerShares

NEW, EVENT, RESYNC = Priority


def schedule_of(workers: int | None = None, clock: FakeClock | None = None) -> KeySchedule[str]:
    """The namespace of a key is its first character."""
    shares = WorkerShares() if workers is None else WorkerShares.among(workers)
    return KeySchedule((clock or FakeClock()).monotonic, shares, lambda key: key[0])


def take_all(schedule: KeySchedule[str]) -> list[str]:
    keys = []
    while (taken := schedule.take()) is not None:
        keys.append(taken[0])
    return keys


def test_priorities_that_always_have_keys_share_the_hand_outs_four_three_one() -> None:
    schedule = schedule_of()
    for number in range(80):
        for priority in Priority:
            schedule.add(f"{priority}{number}", priority)
    first = take_all(schedule)[:80]
    assert Counter(key[0] for key in first) == {"0": 40, "1": 30, "2": 10}
    assert first[:8] == ["00", "10", "20", "01", "11", "02", "12", "03"]


def test_a_priority_without_keys_costs_the_others_nothing() -> None:
    schedule = schedule_of()
    for number in range(3):
        schedule.add(f"r{number}", RESYNC)
    assert take_all(schedule) == ["r0", "r1", "r2"]


def test_a_priority_that_had_no_keys_comes_first_once_and_makes_up_for_no_more() -> None:
    order = WeightedFairOrder({NEW: 1, EVENT: 1, RESYNC: 1})
    for _ in range(100):
        order.pick([NEW])
    assert [order.pick([NEW, EVENT]) for _ in range(6)] == [EVENT, NEW] * 3


def test_namespaces_alternate_and_each_keeps_its_order() -> None:
    schedule = schedule_of()
    for key in ("a1", "a2", "a3", "b1", "b2", "c1"):
        schedule.add(key)
    assert take_all(schedule) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_namespaces_alternate_within_each_priority() -> None:
    schedule = schedule_of()
    for number in range(9):
        schedule.add(f"a{number}", NEW)
    schedule.add("b0", NEW)
    schedule.add("b1")
    assert take_all(schedule)[:3] == ["a0", "b1", "b0"]


def test_a_namespace_with_keys_again_goes_behind_the_others() -> None:
    schedule = schedule_of()
    for key in ("a1", "b1", "b2", "c1"):
        schedule.add(key)
    assert schedule.take() == ("a1", 0)
    schedule.add("a2")
    assert take_all(schedule) == ["b1", "c1", "a2", "b2"]


def test_without_namespaces_keys_are_first_in_first_out() -> None:
    schedule: KeySchedule[str] = KeySchedule(FakeClock().monotonic)
    for key in ("a2", "a1", "b1"):
        schedule.add(key)
    assert take_all(schedule) == ["a2", "a1", "b1"]


@pytest.mark.parametrize(
    ("workers", "kept"),
    [
        (1, (0, 0, 0)),
        (2, (0, 1, 0)),
        (3, (1, 1, 0)),
        (4, (1, 1, 1)),
        (8, (2, 2, 1)),
        (9, (2, 2, 1)),
        (16, (4, 4, 2)),
    ],
)
def test_workers_are_kept_for_each_priority(workers: int, kept: tuple[int, int, int]) -> None:
    assert tuple(WorkerShares.among(workers).kept[priority] for priority in Priority) == kept
    for priority in Priority:
        taken = take_all(schedule_with(workers, priority))
        assert len(taken) == workers - sum(kept) + kept[priority]


def schedule_with(workers: int, priority: Priority) -> KeySchedule[str]:
    schedule = schedule_of(workers)
    for number in range(2 * workers):
        schedule.add(f"{priority}{number}", priority)
    return schedule


@pytest.mark.parametrize("workers", [4, 5, 8, 20])
@pytest.mark.parametrize("hung", Priority)
def test_keys_that_are_never_done_leave_a_worker_for_each_other_priority(
    workers: int, hung: Priority
) -> None:
    schedule = schedule_with(workers, hung)
    take_all(schedule)
    for priority in set(Priority) - {hung}:
        key = f"other {priority}"
        for _ in range(5):
            schedule.add(key, priority)
            assert schedule.take() == (key, 0)
            schedule.done(key)


@pytest.mark.parametrize("workers", [2, 3])
def test_few_workers_keep_one_for_events(workers: int) -> None:
    schedule = schedule_with(workers, NEW)
    for number in range(workers):
        schedule.add(f"r{number}", RESYNC)
    take_all(schedule)
    schedule.add("event")
    assert schedule.take() == ("event", 0)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8])
def test_no_priority_starves_where_all_always_have_keys(workers: int) -> None:
    schedule = schedule_of(workers)
    running: list[str] = []
    handed_out: Counter[str] = Counter()
    for number in range(2000):
        for priority in Priority:
            schedule.add(f"{priority}{number}", priority)
        while (taken := schedule.take()) is not None:
            running.append(taken[0])
            handed_out[taken[0][0]] += 1
        schedule.done(running.pop(0))
    assert min(handed_out[f"{priority}"] for priority in Priority) > 2000 / 11, handed_out


def test_shares_that_starve_a_priority_are_rejected() -> None:
    with pytest.raises(ValueError, match="2 of 2 workers kept"):
        WorkerShares(2, {NEW: 1, EVENT: 1})
    with pytest.raises(ValueError, match="3 of 2 workers kept"):
        WorkerShares(2, dict.fromkeys(Priority, 1))
    with pytest.raises(ValueError, match="without weight"):
        WorkerShares(weights={NEW: 4, EVENT: 0, RESYNC: 1})
    WorkerShares(3, dict.fromkeys(Priority, 1))


def test_an_event_moves_a_resync_up_with_the_time_that_it_has_waited() -> None:
    clock = FakeClock()
    schedule = schedule_of(clock=clock)
    schedule.add("k", RESYNC)
    clock.advance(3)
    schedule.add("e")
    assert not schedule.add("k")
    clock.advance(4)
    assert [schedule.take() for _ in range(3)] == [("e", 4), ("k", 7), None]


def test_a_resync_moves_no_event_down() -> None:
    schedule = schedule_of()
    schedule.add("k")
    schedule.add("l")
    schedule.add("k", RESYNC)
    assert take_all(schedule) == ["k", "l"]


def test_an_event_while_a_key_is_processed_keeps_its_priority_after_a_resync() -> None:
    schedule = schedule_of()
    schedule.add("k")
    schedule.take()
    assert schedule.add("k")
    assert not schedule.add("k", RESYNC)
    assert schedule.take() is None
    schedule.add("r", RESYNC)
    schedule.done("k")
    assert set(take_all(schedule)) == {"k", "r"}
    assert schedule.priority_in_process("k") is EVENT


@pytest.mark.parametrize("priority", Priority)
def test_a_delayed_key_is_ready_at_its_priority(priority: Priority) -> None:
    clock = FakeClock()
    schedule = schedule_of(clock=clock)
    schedule.add_after("k", 5, priority)
    assert schedule.seconds_to_next() == 5
    assert schedule.take() is None
    clock.advance(5)
    assert schedule.take() == ("k", 0)
    assert schedule.priority_in_process("k") is priority


def test_of_several_delays_the_earliest_and_the_highest_priority_apply() -> None:
    clock = FakeClock()
    schedule = schedule_of(clock=clock)
    schedule.add_after("k", 9, NEW)
    schedule.add_after("k", 2, RESYNC)
    schedule.add_after("k", 5)
    assert schedule.seconds_to_next() == 2
    clock.advance(2)
    schedule.take()
    assert schedule.priority_in_process("k") is NEW
    assert schedule.seconds_to_next() is None


def test_taking_a_key_cancels_its_delay() -> None:
    clock = FakeClock()
    schedule = schedule_of(clock=clock)
    schedule.add_after("k", 5)
    schedule.add("k")
    schedule.take()
    schedule.done("k")
    clock.advance(9)
    assert (schedule.take(), schedule.seconds_to_next()) == (None, None)


def test_a_delay_added_while_a_key_is_processed_applies() -> None:
    clock = FakeClock()
    schedule = schedule_of(clock=clock)
    schedule.add("k")
    schedule.take()
    schedule.add_after("k", 1)
    clock.advance(1)
    assert schedule.take() is None
    schedule.done("k")
    assert schedule.take() == ("k", 0)


def test_outdated_delays_take_bounded_memory() -> None:
    delays: DelayedKeys[str] = DelayedKeys()
    for number in range(10_000):
        delays.add("k", 300.0 + number, EVENT)
        delays.discard("k")
    for number in range(10_000):
        delays.add("l", 300.0 - number, EVENT)
    assert delays.heap_size < 100
    assert delays.earliest() == 300 - 9_999
    assert delays.pop_due(0) == ("l", EVENT)
    assert delays.earliest() is None
