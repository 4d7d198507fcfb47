"""Workers that take keys from the queue and reconcile them, whatever happens.

No error ends a worker: each becomes a delay after which the key comes back, and one log line.
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
from tonnage.kube.journal import journal_of_writes
from tonnage.kube.protocol import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    NotLeadingError,
    TransientError,
)
from tonnage.reconcile.key import Key, Requeue
from tonnage.runtime.workqueue import WorkQueue

_log = logging.getLogger(__name__)


class Result(StrEnum):
    """How a reconcile ended; controller-runtime's labels."""

    SUCCESS = "success"
    REQUEUE_AFTER = "requeue_after"
    REQUEUE = "requeue"
    ERROR = "error"


class ReconcileObserver(Protocol):
    """Told of each reconcile, for metrics."""

    def reconciled(self, result: Result, seconds: float) -> None:
        """A reconcile ended."""
        ...

    def gave_up(self) -> None:
        """A reconcile failed in a way that no retry can mend."""
        ...

    def found_bug(self) -> None:
        """A reconcile raised what nothing should raise."""
        ...


@dataclass(frozen=True, slots=True)
class _Ending:
    """`requeue_seconds` is None when the key comes back only on an event or a resync."""

    result: Result
    requeue_seconds: float | None = None
    error: BaseException | None = None
    level: int = logging.INFO
    is_bug: bool = False
    is_final: bool = False


class Controller:
    """Drains the queue with a fixed number of workers; a key is never with two of them."""

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
        """Work until the queue is closed and the last key in work is done."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"worker {number}")

    def oldest_in_flight_seconds(self) -> float:
        """Age of the longest running reconcile; 0 when none runs."""
        return max(self.in_flight_seconds(), default=0.0)

    def in_flight_seconds(self) -> list[float]:
        """Ages of the reconciles that run now."""
        now = self._clock()
        return [now - started for started in self._started.values()]

    async def _work(self) -> None:
        while (key := await self._queue.get()) is not None:
            self._started[key] = self._clock()
            try:
                await self._reconcile_and_tell(key)
            finally:
                del self._started[key]
                self._queue.done(key)

    async def _reconcile_and_tell(self, key: Key) -> None:
        with journal_of_writes() as writes:
            ending = await self._attempt(key)
        seconds = self._clock() - self._started[key]
        self._observer.reconciled(ending.result, seconds)
        if ending.is_bug:
            self._observer.found_bug()
        if ending.is_final:
            self._observer.gave_up()
        fields = {
            "key": str(key),
            "result": str(ending.result),
            "seconds": round(seconds, 3),
            "writes": writes,
            "requeue_seconds": ending.requeue_seconds,
        }
        if ending.error is not None:
            fields["error"] = str(ending.error) or type(ending.error).__name__
        _log.log(
            ending.level,
            "reconciled",
            extra=fields,
            exc_info=ending.error if ending.is_bug else None,
        )

    async def _attempt(self, key: Key) -> _Ending:
        try:
            async with asyncio.timeout(self._deadline_seconds):
                requeue = await self._reconcile(key)
        except NotLeadingError as error:
            self._queue.forget(key)
            return _Ending(Result.REQUEUE, error=error)
        except Exception as error:  # noqa: BLE001 - a bug in one reconcile must not end the worker
            return self._after_error(key, error)
        self._queue.forget(key)
        if requeue.seconds is None:
            return _Ending(Result.SUCCESS)
        self._queue.add_after(key, requeue.seconds)
        return _Ending(Result.REQUEUE_AFTER, requeue.seconds)

    def _after_error(self, key: Key, error: Exception) -> _Ending:
        retry = self._queue.retry
        match error:
            case InvalidError():  # it will never be taken; a change or the resync brings the key
                self._queue.forget(key)
                return _Ending(Result.ERROR, None, error, logging.ERROR, is_final=True)
            case ConflictError() | NotFoundError():  # what was read is outdated: nobody's fault
                return _Ending(Result.REQUEUE, retry(key), error)
            case TransientError():
                seconds = retry(key, error.retry_after or 0.0)
                return _Ending(Result.ERROR, seconds, error, logging.WARNING)
            case ForbiddenError():
                return _Ending(
                    Result.ERROR, retry(key, delays.REQUEUE_FORBIDDEN), error, logging.ERROR
                )
            case TimeoutError():
                late = TimeoutError(f"not done within {self._deadline_seconds:g} s")
                return _Ending(Result.ERROR, retry(key), late, logging.ERROR)
        return _Ending(Result.ERROR, retry(key), error, logging.ERROR, is_bug=True)


async def drain(running: "asyncio.Task[None]", queue: WorkQueue[Key], seconds: float) -> bool:
    """Close the queue and let the controller finish what it has in work; whether it did in time."""
    queue.close()
    _, late = await asyncio.wait({running}, timeout=seconds)
    for task in late:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return not late
