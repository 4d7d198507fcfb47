"""The work queue: order, delays, retries, and workers that wait."""

import asyncio
from itertools import pairwise

import pytest

from tests.support.fake_clock import FakeClock
from tonnage.kube.throttle import TokenBucket
from tonnage.runtime.key_schedule import KeySchedule
from tonnage.runtime.others_at_once import (
    CROWD_SECONDS,
    LONG_SECONDS,
    WISH_SECONDS,
    OthersAtOnce,
)
from tonnage.runtime.priority import Priority
from tonnage.runtime.workqueue import WorkQueue


class Seen:
    """A QueueObserver that remembers."""

    def __init__(self) -> None:
        self.added = 0
        self.retried = 0
        self.waited: list[float] = []

    def key_added(self) -> None:
        self.added += 1

    def key_retried(self) -> None:
        self.retried += 1

    def key_waited(self, seconds: float) -> None:
        self.waited.append(seconds)


def queue_of(
    clock: FakeClock | None = None,
    seen: Seen | None = None,
    burst: int = 1000,
    others_at_once: OthersAtOnce[str] | None = None,
) -> WorkQueue[str]:
    clock = clock or FakeClock()
    return WorkQueue(
        seen or Seen(),
        retries=TokenBucket(1, burst, clock.monotonic),
        others_at_once=others_at_once,
        clock=clock.monotonic,
        jitter=lambda: 1.0,
    )


def test_events_come_before_resyncs_each_in_order() -> None:
    schedule: KeySchedule[str] = KeySchedule(FakeClock().monotonic)
    schedule.add("r1", Priority.RESYNC)
    schedule.add("r2", Priority.RESYNC)
    schedule.add("e1")
    schedule.add("e2")
    assert [schedule.take() for _ in range(5)] == [
        ("e1", 0),
        ("e2", 0),
        ("r1", 0),
        ("r2", 0),
        None,
    ]


def test_wishes_come_before_events_that_were_there_first() -> None:
    schedule: KeySchedule[str] = KeySchedule(FakeClock().monotonic)
    for key in ("e1", "w1"):
        schedule.add(key)
    schedule.add("w1", Priority.NEW_GENERATION)
    schedule.add("w2", Priority.NEW_GENERATION)
    schedule.add("w2")
    assert [schedule.take() for _ in range(4)] == [("w1", 0), ("w2", 0), ("e1", 0), None]


def test_a_wish_finds_a_worker_where_others_take_long() -> None:
    schedule: KeySchedule[str] = KeySchedule(FakeClock().monotonic, OthersAtOnce(1))
    for key in ("e1", "e2"):
        schedule.add(key)
    assert [schedule.take(), schedule.take()] == [("e1", 0), None]
    for key in ("w1", "w2"):
        schedule.add(key, Priority.NEW_GENERATION)
    assert [schedule.take() for _ in range(3)] == [("w1", 0), ("w2", 0), None]
    schedule.done("e1")
    assert schedule.take() == ("e2", 0)


def test_beside_wishes_others_are_fewer_until_no_wish_has_come_for_a_while() -> None:
    clock = FakeClock()
    schedule: KeySchedule[str] = KeySchedule(clock.monotonic, OthersAtOnce(2, beside_wishes=1))
    schedule.add("w", Priority.NEW_GENERATION)
    for key in ("e1", "e2"):
        schedule.add(key)
    assert [schedule.take() for _ in range(3)] == [("w", 0), ("e1", 0), None]
    schedule.done("w")
    clock.advance(WISH_SECONDS - 0.1)
    assert schedule.take() is None
    clock.advance(0.1)
    assert schedule.take() == ("e2", WISH_SECONDS)


def test_beside_wishes_others_that_take_long_are_not_counted() -> None:
    clock = FakeClock()
    schedule: KeySchedule[str] = KeySchedule(clock.monotonic, OthersAtOnce(3, beside_wishes=1))
    for key in ("e1", "e2"):
        schedule.add(key)
    assert schedule.take() == ("e1", 0)
    clock.advance(LONG_SECONDS - 0.25)
    schedule.add("w", Priority.NEW_GENERATION)
    assert schedule.take() == ("w", 0)
    assert schedule.take() is None
    assert schedule.seconds_to_next() == 0.25
    clock.advance(0.25)
    assert schedule.take() == ("e2", LONG_SECONDS)


def test_beside_wishes_others_rest_for_as_long_as_their_part_of_the_time_asks_for() -> None:
    clock = FakeClock()
    schedule: KeySchedule[str] = KeySchedule(clock.monotonic, OthersAtOnce(3, beside_wishes=0.25))
    schedule.add("w", Priority.NEW_GENERATION)
    for key in ("e1", "e2"):
        schedule.add(key)
    assert [schedule.take() for _ in range(3)] == [("w", 0), ("e1", 0), None]
    clock.advance(0.125)
    schedule.done("e1")
    assert schedule.take() is None
    assert schedule.seconds_to_next() == 3 * 0.125
    clock.advance(3 * 0.125)
    assert schedule.take() == ("e2", 4 * 0.125)


def test_work_that_took_long_calls_for_no_longer_rest() -> None:
    clock = FakeClock()
    schedule: KeySchedule[str] = KeySchedule(clock.monotonic, OthersAtOnce(3, beside_wishes=0.25))
    schedule.add("e1")
    assert schedule.take() == ("e1", 0)
    clock.advance(60)
    schedule.done("e1")
    pause = WISH_SECONDS / 2
    taken = []
    for _ in range(round(3 * LONG_SECONDS / pause) + 1):
        schedule.add("w", Priority.NEW_GENERATION)
        schedule.add("e2")
        taken += [one for one in (schedule.take(), schedule.take()) if one is not None]
        schedule.done("w")
        clock.advance(pause)
    assert [key for key, _ in taken].index("e2") == len(taken) - 1
    assert taken[-1] == ("e2", 3 * LONG_SECONDS)


def test_nobody_rests_beside_wishes_that_come_for_longer_than_people_wait() -> None:
    clock = FakeClock()
    schedule: KeySchedule[str] = KeySchedule(clock.monotonic, OthersAtOnce(3, beside_wishes=0.1))
    pause = WISH_SECONDS / 4
    began = []
    ends = clock.monotonic() + CROWD_SECONDS + 5 * pause
    while clock.monotonic() < ends:
        schedule.add("w", Priority.NEW_GENERATION)
        schedule.add("e")
        if [one for one, _ in filter(None, (schedule.take(), schedule.take()))] == ["w", "e"]:
            began.append(clock.monotonic())
        clock.advance(pause)
        schedule.done("w")
        schedule.done("e")
    gaps = [later - earlier for earlier, later in pairwise(began)]
    assert gaps[0] == 10 * pause
    assert gaps[-4:] == [pause] * 4


def test_nobody_rests_when_no_wish_has_come_for_a_while() -> None:
    clock = FakeClock()
    schedule: KeySchedule[str] = KeySchedule(clock.monotonic, OthersAtOnce(3, beside_wishes=0.25))
    schedule.add("w", Priority.NEW_GENERATION)
    for key in ("e1", "e2", "e3"):
        schedule.add(key)
    assert [schedule.take() for _ in range(3)] == [("w", 0), ("e1", 0), None]
    clock.advance(WISH_SECONDS - 0.25)
    schedule.done("e1")
    assert schedule.seconds_to_next() == 0.25
    clock.advance(0.25)
    assert [schedule.take() for _ in range(2)] == [("e2", WISH_SECONDS), ("e3", WISH_SECONDS)]


async def test_whoever_waited_beside_wishes_goes_on_though_none_is_added_or_done() -> None:
    clock = FakeClock()
    queue = queue_of(clock, others_at_once=OthersAtOnce(3, beside_wishes=1))
    queue.add("w", Priority.NEW_GENERATION)
    for key in ("e1", "e2", "e3"):
        queue.add(key)
    assert [await queue.get(), await queue.get()] == ["w", "e1"]
    clock.advance(WISH_SECONDS - 0.01)
    workers = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    clock.advance(0.01)
    async with asyncio.timeout(5):
        assert await asyncio.gather(*workers) == ["e2", "e3"]


def test_event_makes_a_resync_urgent() -> None:
    schedule: KeySchedule[str] = KeySchedule(FakeClock().monotonic)
    schedule.add("r", Priority.RESYNC)
    schedule.add("e")
    schedule.add("r")
    assert [schedule.take(), schedule.take(), schedule.take()] == [("e", 0), ("r", 0), None]


def test_event_during_a_resync_of_the_same_key_stays_urgent() -> None:
    schedule: KeySchedule[str] = KeySchedule(FakeClock().monotonic)
    schedule.add("k")
    schedule.take()
    schedule.add("k")
    schedule.add("k", Priority.RESYNC)
    schedule.add("r", Priority.RESYNC)
    schedule.done("k")
    assert schedule.take() == ("k", 0)


def test_key_tells_how_long_it_was_ready() -> None:
    clock = FakeClock()
    schedule: KeySchedule[str] = KeySchedule(clock.monotonic)
    schedule.add("k", Priority.RESYNC)
    clock.advance(3)
    schedule.add("k")
    clock.advance(4)
    assert schedule.take() == ("k", 7)


async def test_failing_key_comes_back_ever_later_and_at_least_every_five_minutes() -> None:
    queue = queue_of()
    delays = [queue.retry("k") for _ in range(14)]
    assert delays[:4] == pytest.approx([0.2, 0.4, 0.8, 1.6])
    assert delays[-1] == 300
    assert [queue.retry("k") for _ in range(100)] == [300] * 100


async def test_key_that_succeeded_begins_anew() -> None:
    queue = queue_of()
    queue.retry("k")
    queue.retry("k")
    queue.forget("k")
    assert queue.retry("k") == pytest.approx(0.2)


async def test_wish_of_the_server_is_the_least_delay() -> None:
    assert queue_of().retry("k", at_least_seconds=30) == 30


async def test_retries_of_all_keys_share_one_bucket() -> None:
    queue = queue_of(burst=2)
    assert [queue.retry(key) for key in "abcd"] == pytest.approx([0.2, 0.2, 1.2, 2.2])


async def test_jitter_shortens_by_at_most_half() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(
        Seen(), retries=TokenBucket(1, 9), clock=clock.monotonic, jitter=lambda: 0.0
    )
    assert queue.retry("k") == pytest.approx(0.1)


async def test_waiting_worker_gets_a_key_that_comes() -> None:
    queue = queue_of()
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("k")
    assert await asyncio.wait_for(worker, 1) == "k"


async def test_two_keys_wake_two_workers() -> None:
    queue = queue_of()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b")
    done, waiting = await asyncio.wait(workers, timeout=0.05)
    assert {task.result() for task in done} == {"a", "b"}
    for task in waiting:
        task.cancel()


async def test_key_is_not_lost_when_the_worker_woken_for_it_is_cancelled() -> None:
    queue = queue_of()
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    queue.add("k")
    first.cancel()
    assert await asyncio.wait_for(second, 1) == "k"


async def test_key_dirtied_in_work_goes_to_a_waiting_worker_when_done() -> None:
    queue = queue_of()
    queue.add("k")
    assert await queue.get() == "k"
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("k")
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done("k")
    assert await asyncio.wait_for(waiting, 1) == "k"


async def test_delayed_key_wakes_a_waiting_worker() -> None:
    seen = Seen()
    queue: WorkQueue[str] = WorkQueue(seen, retries=TokenBucket(1, 9))
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add_after("late", 60)
    queue.add_after("soon", 0.01)
    assert await asyncio.wait_for(worker, 1) == "soon"


async def test_closed_queue_sends_workers_home() -> None:
    queue = queue_of()
    workers = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.close()
    assert await asyncio.wait_for(asyncio.gather(*workers), 1) == [None, None]
    queue.add("k")
    assert await queue.get() is None


async def test_observer_is_told_once_for_each_wanted_key() -> None:
    seen, clock = Seen(), FakeClock()
    queue = queue_of(clock, seen)
    queue.add("k")
    queue.add("k")
    clock.advance(2)
    await queue.get()
    queue.retry("k")
    assert (seen.added, seen.waited, seen.retried, queue.depth) == (1, [2], 1, 0)
