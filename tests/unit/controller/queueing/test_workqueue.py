"""The work queue: retries and waiting workers. The key schedule decides the order."""

import asyncio

import pytest

from tests.support.faults.fake_clock import FakeClock
from tonnage.controller.queueing.priority import Priority, WorkerShares
from tonnage.controller.queueing.workqueue import WorkQueue
from tonnage.kube.throttle import TokenBucket


class Recorder:
    """A QueueObserver that records its calls."""

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
    recorder: Recorder | None = None,
    burst: int = 1000,
    workers: int | None = None,
) -> WorkQueue[str]:
    clock = clock or FakeClock()
    return WorkQueue(
        recorder or Recorder(),
        retries=TokenBucket(1, burst, clock.monotonic),
        shares=WorkerShares() if workers is None else WorkerShares.among(workers),
        namespace_of=lambda key: key[0],
        clock=clock.monotonic,
        jitter=lambda: 1.0,
    )


async def test_failing_key_is_retried_with_backoff_up_to_five_minutes() -> None:
    queue = queue_of()
    delays = [queue.retry("k") for _ in range(14)]
    assert delays[:4] == pytest.approx([0.2, 0.4, 0.8, 1.6])
    assert delays[-1] == 300
    assert [queue.retry("k") for _ in range(100)] == [300] * 100


async def test_key_that_succeeded_starts_with_the_first_delay() -> None:
    queue = queue_of()
    queue.retry("k")
    queue.retry("k")
    queue.forget("k")
    assert queue.retry("k") == pytest.approx(0.2)


async def test_the_servers_delay_is_the_minimum() -> None:
    assert queue_of().retry("k", at_least_seconds=30) == 30


async def test_retries_of_all_keys_share_one_bucket() -> None:
    queue = queue_of(burst=2)
    assert [queue.retry(key) for key in "abcd"] == pytest.approx([0.2, 0.2, 1.2, 2.2])


async def test_a_retry_that_an_event_overtakes_gives_its_token_back() -> None:
    clock = FakeClock()
    queue = queue_of(clock, burst=2)
    for _ in range(20):
        queue.add("conflicts")
        assert await queue.get() == "conflicts"
        queue.retry("conflicts")
        queue.done("conflicts")
    assert queue.retry("other") == pytest.approx(0.2)


async def test_a_retry_that_no_event_overtakes_uses_its_token() -> None:
    clock = FakeClock()
    bucket = TokenBucket(0.001, 2, clock.monotonic)
    queue: WorkQueue[str] = WorkQueue(
        Recorder(), retries=bucket, clock=clock.monotonic, jitter=lambda: 1.0
    )
    queue.retry("k")
    clock.advance(0.5)
    assert await queue.get() == "k"
    queue.retry("k")
    assert queue.retry("other") > 900


async def test_jitter_shortens_by_at_most_half() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(
        Recorder(), retries=TokenBucket(1, 9), clock=clock.monotonic, jitter=lambda: 0.0
    )
    assert queue.retry("k") == pytest.approx(0.1)


async def test_waiting_worker_gets_a_new_key() -> None:
    queue = queue_of()
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("k")
    assert await asyncio.wait_for(worker, 60) == "k"


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
    assert await asyncio.wait_for(second, 60) == "k"


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
    assert await asyncio.wait_for(waiting, 60) == "k"


async def test_delayed_key_wakes_a_waiting_worker() -> None:
    queue: WorkQueue[str] = WorkQueue(Recorder(), retries=TokenBucket(1, 9))
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add_after("late", 3600)
    queue.add_after("soon", 0.01)
    assert await asyncio.wait_for(worker, 60) == "soon"


async def test_closed_queue_ends_the_workers() -> None:
    queue = queue_of()
    workers = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.close()
    assert await asyncio.wait_for(asyncio.gather(*workers), 60) == [None, None]
    queue.add("k")
    assert await queue.get() is None


async def test_observer_counts_each_added_key_once() -> None:
    recorder, clock = Recorder(), FakeClock()
    queue = queue_of(clock, recorder)
    queue.add("k")
    queue.add("k")
    clock.advance(2)
    await queue.get()
    queue.retry("k")
    assert (recorder.added, recorder.waited, recorder.retried, queue.depth) == (1, [2], 1, 0)


class DelayRecorder(WorkQueue[str]):
    """A queue that records the priority of the last delay."""

    delayed_at: Priority | None = None

    def add_after(self, key: str, seconds: float, priority: Priority = Priority.EVENT) -> None:
        self.delayed_at = priority
        super().add_after(key, seconds, priority)


@pytest.mark.parametrize("priority", Priority)
async def test_a_key_that_failed_keeps_its_priority(priority: Priority) -> None:
    clock = FakeClock()
    queue = DelayRecorder(Recorder(), retries=TokenBucket(1, 9), clock=clock.monotonic)
    queue.add("k", priority)
    for _ in range(3):
        assert await asyncio.wait_for(queue.get(), 60) == "k"
        clock.advance(queue.retry("k"))
        assert queue.delayed_at is priority
        queue.done("k")


async def test_a_worker_is_free_for_an_event_while_new_generations_are_never_done() -> None:
    queue = queue_of(workers=8)
    for number in range(20):
        queue.add(f"n{number}", Priority.NEW_GENERATION)
    workers = [asyncio.create_task(queue.get()) for _ in range(8)]
    done, waiting = await asyncio.wait(workers, timeout=0.05)
    assert (len(done), len(waiting)) == (5, 3)
    for priority in (Priority.EVENT, Priority.EVENT, Priority.RESYNC):
        queue.add(f"p{len(waiting)}", priority)
        done, waiting = await asyncio.wait(waiting, timeout=60, return_when="FIRST_COMPLETED")
        assert len(done) == 1
    assert not waiting


async def test_a_waiting_worker_gets_a_key_when_a_kept_worker_is_done() -> None:
    queue = queue_of(workers=8)
    for number in range(6):
        queue.add(f"n{number}", Priority.NEW_GENERATION)
    keys = [await queue.get() for _ in range(5)]
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done(str(keys[0]))
    assert await asyncio.wait_for(waiting, 60) == "n5"
