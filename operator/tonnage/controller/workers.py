"""Workers that take keys from the queue and reconcile them.

No error ends a worker: the controller logs it and requeues the key after a delay.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tonnage import delays
from tonnage.controller.queueing.workqueue import WorkQueue
from tonnage.kube.protocol import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    NotLeadingError,
    TransientError,
)
from tonnage.kube.write_log import collect_writes
from tonnage.reconcile.key import Key, Requeue

_log = logging.getLogger(__name__)


class Result(StrEnum):
    """The result of a reconcile, with controller-runtime's label values."""

    SUCCESS = "success"
    REQUEUE_AFTER = "requeue_after"
    REQUEUE = "requeue"
    ERROR = "error"


class ReconcileObserver(Protocol):
    """Records each reconcile, for metrics."""

    def reconciled(self, result: Result, seconds: float) -> None:
        """Record that a reconcile ended after so many seconds."""
        ...

    def observe_terminal_error(self) -> None:
        """Record a terminal error: no retry can succeed."""
        ...

    def observe_panic(self) -> None:
        """Record an unexpected exception."""
        ...


@dataclass(frozen=True, slots=True)
class _Attempt:
    """`requeue_seconds` is None when only an event or a resync adds the key again."""

    result: Result
    requeue_seconds: float | None = None
    error: BaseException | None = None
    level: int = logging.INFO
    is_bug: bool = False
    is_final: bool = False


class Controller:
    """Reconciles keys with a fixed number of workers; never the same key in two of them."""

    def __init__(
        self,
        reconcile: Callable[[Key], Awaitable[Requeue]],
        queue: WorkQueue[Key],
        observer: ReconcileObserver,
        *,
        workers: int,
        deadline_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reconcile = reconcile
        self._queue = queue
        self._observer = observer
        self._workers = workers
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._started: dict[Key, float] = {}

    async def run(self) -> None:
        """Run until the queue is closed and the workers have finished their keys."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"worker {number}")

    def oldest_in_flight_seconds(self) -> float:
        """Seconds since the oldest running reconcile started; 0 when none runs."""
        return max(self.in_flight_seconds(), default=0.0)

    def in_flight_seconds(self) -> list[float]:
        """Seconds since the start of each reconcile that runs now."""
        now = self._clock()
        return [now - started for started in self._started.values()]

    async def _work(self) -> None:
        while (key := await self._queue.get()) is not None:
            self._started[key] = self._clock()
            try:
                await self._reconcile_and_log(key)
            finally:
                del self._started[key]
                self._queue.done(key)
            # A reconcile with nothing to do awaits nothing. After a start, thousands of them in a
            # row would keep the process from renewing the Lease.
            await asyncio.sleep(0)

    async def _reconcile_and_log(self, key: Key) -> None:
        with collect_writes() as writes:
            attempt = await self._attempt(key)
        seconds = self._clock() - self._started[key]
        self._observer.reconciled(attempt.result, seconds)
        if attempt.is_bug:
            self._observer.observe_panic()
        if attempt.is_final:
            self._observer.observe_terminal_error()
        fields = {
            "key": str(key),
            "result": str(attempt.result),
            "seconds": round(seconds, 3),
            "writes": writes,
            "requeue_seconds": attempt.requeue_seconds,
        }
        if attempt.error is not None:
            fields["error"] = str(attempt.error) or type(attempt.error).__name__
        _log.log(
            attempt.level,
            "reconciled",
            extra=fields,
            exc_info=attempt.error if attempt.is_bug else None,
        )

    async def _attempt(self, key: Key) -> _Attempt:
        try:
            async with asyncio.timeout(self._deadline_seconds):
                requeue = await self._reconcile(key)
        except NotLeadingError as error:
            self._queue.forget(key)
            return _Attempt(Result.REQUEUE, error=error)
        except Exception as error:  # noqa: BLE001 - a bug in one reconcile must not end the worker
            return self._handle_error(key, error)
        self._queue.forget(key)
        if requeue.seconds is None:
            return _Attempt(Result.SUCCESS)
        self._queue.add_after(key, requeue.seconds)
        return _Attempt(Result.REQUEUE_AFTER, requeue.seconds)

    def _handle_error(self, key: Key, error: Exception) -> _Attempt:
        retry = self._queue.retry
        match error:
            case InvalidError():  # no retry can succeed: wait for a change or the resync
                self._queue.forget(key)
                return _Attempt(Result.ERROR, None, error, logging.ERROR, is_final=True)
            case ConflictError() | NotFoundError():  # the reconcile read an outdated object
                return _Attempt(Result.REQUEUE, retry(key), error)
            case TransientError():
                seconds = retry(key, error.retry_after or 0.0)
                return _Attempt(Result.ERROR, seconds, error, logging.WARNING)
            case ForbiddenError():
                return _Attempt(
                    Result.ERROR, retry(key, delays.REQUEUE_FORBIDDEN), error, logging.ERROR
                )
            case TimeoutError():
                timeout = TimeoutError(f"reconcile timed out after {self._deadline_seconds:g} s")
                return _Attempt(Result.ERROR, retry(key), timeout, logging.ERROR)
        return _Attempt(Result.ERROR, retry(key), error, logging.ERROR, is_bug=True)


async def drain(running: "asyncio.Task[None]", queue: WorkQueue[Key], seconds: float) -> bool:
    """Close the queue and let the workers finish; return whether they did within `seconds`."""
    queue.close()
    _, pending = await asyncio.wait({running}, timeout=seconds)
    for task in pending:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return not pending
