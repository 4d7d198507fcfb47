"""The work queue for all events, delays and retries; key_schedule has its rules."""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar

from tonnage import delays
from tonnage.controller.queueing.key_schedule import NO_SHARES, KeySchedule, one_namespace
from tonnage.controller.queueing.priority import Priority, WorkerShares
from tonnage.kube.throttle import TokenBucket

_MAX_DOUBLINGS: Final = 32

K = TypeVar("K")


class QueueObserver(Protocol):
    """Counts what the queue does, for metrics."""

    def key_added(self) -> None:
        """Record a key that was added and was not in the queue."""
        ...

    def key_retried(self) -> None:
        """Record the retry of a key that failed."""
        ...

    def key_waited(self, seconds: float) -> None:
        """Record how long a key was ready before a worker took it."""
        ...


class WorkQueue(Generic[K]):
    """Keys for the workers of one event loop. All methods except `get` return at once.

    `shares` is how the priorities share the workers; `namespace_of` gives the namespaces of the
    round robin. By default every worker takes any key, first in, first out within a priority.
    """

    def __init__(
        self,
        observer: QueueObserver,
        *,
        retries: TokenBucket,
        shares: WorkerShares = NO_SHARES,
        namespace_of: Callable[[K], Hashable] = one_namespace,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._observer = observer
        self._retries = retries
        self._jitter = jitter
        self._schedule: KeySchedule[K] = KeySchedule(clock, shares, namespace_of)
        self._clock = clock
        self._failures: dict[K, int] = {}
        self._retries_due: dict[K, float] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def depth(self) -> int:
        """How many keys are ready."""
        return self._schedule.depth

    def add(self, key: K, priority: Priority = Priority.EVENT) -> None:
        """Add the key now."""
        if self._schedule.add(key, priority):
            self._observer.key_added()
        self._wake_one()

    def add_after(self, key: K, seconds: float, priority: Priority = Priority.EVENT) -> None:
        """Add the key after a delay; of several delays the earliest applies."""
        self._schedule.add_after(key, seconds, priority)
        self._wake_one()

    def retry(self, key: K, at_least_seconds: float = 0.0) -> float:
        """Requeue a key that failed, after a growing delay; return the delay in seconds.

        The key keeps the priority at which the worker took it. If an event adds the key before the
        retry is due, `get` gives the retry's token back. Otherwise a key whose writes conflict with
        a tenant's many patches would use up the retries of all other keys.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        backoff = min(delays.FIRST_RETRY * 2.0 ** min(failures, _MAX_DOUBLINGS), delays.LAST_RETRY)
        spread = backoff * (0.5 + 0.5 * self._jitter())
        seconds = max(spread, at_least_seconds) + self._retries.reserve()
        self._retries_due[key] = self._clock() + seconds
        self._observer.key_retried()
        priority = self._schedule.priority_in_process(key)
        self.add_after(key, seconds, Priority.EVENT if priority is None else priority)
        return seconds

    def forget(self, key: K) -> None:
        """Reset the backoff of a key that did not fail."""
        self._failures.pop(key, None)

    async def get(self) -> K | None:
        """Take the next key; call `done` for it afterwards. None once the queue is closed."""
        while not self._closed:
            taken = self._schedule.take()
            if taken is not None:
                key, seconds = taken
                if self._retries_due.pop(key, -math.inf) > self._clock():
                    self._retries.give_back()
                self._observer.key_waited(seconds)
                self._wake_one()
                return key
            await self._wait()
        return None

    def done(self, key: K) -> None:
        """Record that the key was processed, successfully or not."""
        self._schedule.done(key)
        self._wake_one()

    def close(self) -> None:
        """Hand out no more keys; workers can still call `done`."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._waiters:
            self._wake_one()

    async def _wait(self) -> None:
        self._arm_timer()
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake_one()  # this worker was woken for a key: let another take it
            raise

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seconds = self._schedule.seconds_to_next()
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._wake_one)
