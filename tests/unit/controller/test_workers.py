"""Workers: how the controller handles each error, and that no error ends a worker."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from tests.support.faults.fake_clock import FakeClock
from tonnage.controller.queueing.priority import Priority
from tonnage.controller.queueing.workqueue import WorkQueue
from tonnage.controller.workers import Controller, drain
from tonnage.kube.protocol import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    NotLeadingError,
    TransientError,
)
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.write_log import enter_write
from tonnage.reconcile.key import Key, Requeue

LLAMA = Key("chat", "llama")


class Observer:
    """Observes queue and controller."""

    def __init__(self) -> None:
        self.results: list[str] = []
        self.bugs = 0
        self.given_up = 0
        self._ended: asyncio.Queue[None] = asyncio.Queue()

    def reconciled(self, result: str, seconds: float) -> None:
        self.results.append(result)
        self._ended.put_nowait(None)

    async def wait_for(self, count: int) -> None:
        """Wait until so many more reconciles have ended."""
        async with asyncio.timeout(60):
            for _ in range(count):
                await self._ended.get()

    def observe_panic(self) -> None:
        self.bugs += 1

    def observe_terminal_error(self) -> None:
        self.given_up += 1

    def key_added(self) -> None: ...

    def key_retried(self) -> None: ...

    def key_waited(self, seconds: float) -> None: ...


class Bench:
    """A controller with two workers, whose queue has a fake clock."""

    def __init__(
        self, reconcile: Callable[[Key], Awaitable[Requeue]], deadline_seconds: float = 60
    ) -> None:
        self.clock = FakeClock()
        self.observer = Observer()
        self.delays: dict[Key, float] = {}
        self.queue = _Queue(self)
        self.controller = Controller(
            reconcile,
            self.queue,
            self.observer,
            workers=2,
            deadline_seconds=deadline_seconds,
            clock=self.clock.monotonic,
        )

    async def run(self, *keys: Key) -> None:
        """Reconcile these keys, then stop."""
        running = asyncio.create_task(self.controller.run())
        for key in keys:
            self.queue.add(key)
        await self.observer.wait_for(len(keys))
        assert await drain(running, self.queue, 60)


class _Queue(WorkQueue[Key]):
    def __init__(self, bench: Bench) -> None:
        super().__init__(
            bench.observer,
            retries=TokenBucket(1, 1000, bench.clock.monotonic),
            clock=bench.clock.monotonic,
            jitter=lambda: 1.0,
        )
        self._bench = bench

    def add_after(self, key: Key, seconds: float, priority: Priority = Priority.EVENT) -> None:
        self._bench.delays[key] = seconds
        super().add_after(key, seconds, priority)


def raising(error: BaseException) -> Callable[[Key], Awaitable[Requeue]]:
    async def reconcile(_: Key) -> Requeue:
        raise error

    return reconcile


def answering(requeue: Requeue) -> Callable[[Key], Awaitable[Requeue]]:
    async def reconcile(_: Key) -> Requeue:
        return requeue

    return reconcile


ERRORS: dict[str, tuple[Exception, str, float | None, int]] = {
    "rejected object waits for a change": (InvalidError("no"), "error", None, logging.ERROR),
    "conflict is requeued at once": (ConflictError("old"), "requeue", 0.2, logging.INFO),
    "vanished object is read again": (NotFoundError("gone"), "requeue", 0.2, logging.INFO),
    "busy server is retried": (TransientError("busy"), "error", 0.2, logging.WARNING),
    "Retry-After is respected": (TransientError("busy", 17), "error", 17, logging.WARNING),
    "missing permission is retried later": (ForbiddenError("role"), "error", 60, logging.ERROR),
    "lost lease ends the work": (NotLeadingError("lost"), "requeue", None, logging.INFO),
    "bug is retried": (KeyError("spec"), "error", 0.2, logging.ERROR),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_error(name: str, caplog: pytest.LogCaptureFixture) -> None:
    error, want_result, want_delay, want_level = ERRORS[name]
    caplog.set_level(logging.DEBUG, "tonnage")
    bench = Bench(raising(error))
    await bench.run(LLAMA)
    assert bench.observer.results == [want_result]
    assert bench.observer.given_up == isinstance(error, InvalidError)
    assert bench.delays.get(LLAMA) == want_delay
    (record,) = caplog.records
    assert record.levelno == want_level
    assert record.__dict__["requeue_seconds"] == want_delay


async def test_bug_is_counted_and_logged_with_traceback(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(raising(ZeroDivisionError("division by zero")))
    await bench.run(LLAMA)
    assert bench.observer.bugs == 1
    (record,) = caplog.records
    assert record.exc_info
    assert record.exc_info[0] is ZeroDivisionError


async def test_worker_outlives_every_error() -> None:
    keys = [Key("chat", str(number)) for number in range(20)]
    bench = Bench(raising(RuntimeError("bug")))
    await bench.run(*keys)
    assert len(bench.observer.results) == 20


async def test_reconcile_beyond_its_deadline_is_cancelled_and_retried() -> None:
    async def reconcile(_: Key) -> Requeue:
        await asyncio.Event().wait()
        return Requeue()

    bench = Bench(reconcile, deadline_seconds=0.01)
    await bench.run(LLAMA)
    assert (bench.observer.results, bench.delays[LLAMA]) == (["error"], 0.2)


async def test_reconciles_that_await_nothing_let_other_tasks_run() -> None:
    bench = Bench(answering(Requeue()))
    reconciled_meanwhile = 0

    async def renew_lease() -> None:
        """A request, which takes a few steps of the event loop."""
        nonlocal reconciled_meanwhile
        for _ in range(10):
            await asyncio.sleep(0)
        reconciled_meanwhile = len(bench.observer.results)

    keys = [Key("chat", f"llama-{number}") for number in range(200)]
    await asyncio.gather(bench.run(*keys), renew_lease())
    assert 0 < reconciled_meanwhile < 50


async def test_converged_key_is_not_requeued() -> None:
    bench = Bench(answering(Requeue()))
    await bench.run(LLAMA)
    assert (bench.observer.results, bench.delays) == (["success"], {})


async def test_key_is_requeued_after_its_delay() -> None:
    bench = Bench(answering(Requeue(30)))
    await bench.run(LLAMA)
    assert (bench.observer.results, bench.delays) == (["requeue_after"], {LLAMA: 30})


async def test_success_forgets_earlier_failures() -> None:
    outcomes: list[Exception | None] = [TransientError("a"), TransientError("b"), None]

    async def reconcile(_: Key) -> Requeue:
        outcome = outcomes.pop(0)
        if outcome:
            raise outcome
        return Requeue()

    bench = Bench(reconcile)
    running = asyncio.create_task(bench.controller.run())
    for _ in range(3):
        bench.queue.add(LLAMA)
        await bench.observer.wait_for(1)
    assert bench.queue.retry(LLAMA) == pytest.approx(0.2)
    await drain(running, bench.queue, 60)


async def test_reconcile_is_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async def reconcile(_: Key) -> Requeue:
        enter_write("apply Deployment chat/llama")
        return Requeue(10)

    caplog.set_level(logging.INFO, "tonnage")
    await Bench(reconcile).run(LLAMA)
    (record,) = caplog.records
    names = ("key", "result", "writes", "requeue_seconds")
    assert {name: record.__dict__[name] for name in names} == {
        "key": "chat/llama",
        "result": "requeue_after",
        "writes": ["apply Deployment chat/llama"],
        "requeue_seconds": 10,
    }


async def test_writes_of_concurrent_reconciles_are_logged_separately(
    caplog: pytest.LogCaptureFixture,
) -> None:
    both = asyncio.Barrier(2)

    async def reconcile(key: Key) -> Requeue:
        enter_write(f"first of {key.name}")
        await both.wait()
        enter_write(f"second of {key.name}")
        return Requeue()

    caplog.set_level(logging.INFO, "tonnage")
    await Bench(reconcile).run(Key("n", "a"), Key("n", "b"))
    writes = {record.__dict__["key"]: record.__dict__["writes"] for record in caplog.records}
    assert writes == {"n/a": ["first of a", "second of a"], "n/b": ["first of b", "second of b"]}


async def test_age_of_the_oldest_reconcile_in_flight() -> None:
    release, started = asyncio.Event(), asyncio.Event()

    async def reconcile(_: Key) -> Requeue:
        started.set()
        await release.wait()
        return Requeue()

    bench = Bench(reconcile)
    running = asyncio.create_task(bench.controller.run())
    assert bench.controller.oldest_in_flight_seconds() == 0
    bench.queue.add(LLAMA)
    await started.wait()
    bench.clock.advance(42)
    assert bench.controller.oldest_in_flight_seconds() == 42
    assert bench.controller.in_flight_seconds() == [42]
    release.set()
    assert await drain(running, bench.queue, 60)
    assert bench.controller.oldest_in_flight_seconds() == 0


async def test_drain_lets_running_reconciles_end_and_starts_no_more() -> None:
    release, started = asyncio.Event(), asyncio.Event()

    async def reconcile(_: Key) -> Requeue:
        started.set()
        await release.wait()
        return Requeue()

    bench = Bench(reconcile)
    running = asyncio.create_task(bench.controller.run())
    for number in range(5):
        bench.queue.add(Key("n", str(number)))
    await started.wait()
    draining = asyncio.create_task(drain(running, bench.queue, 60))
    await asyncio.sleep(0)
    release.set()
    assert await draining
    assert len(bench.observer.results) == 2


async def test_drain_cancels_reconciles_that_do_not_end() -> None:
    started = asyncio.Event()

    async def reconcile(_: Key) -> Requeue:
        started.set()
        await asyncio.Event().wait()
        return Requeue()

    bench = Bench(reconcile)
    running = asyncio.create_task(bench.controller.run())
    bench.queue.add(LLAMA)
    await started.wait()
    assert not await drain(running, bench.queue, 0.01)
    assert running.done()
