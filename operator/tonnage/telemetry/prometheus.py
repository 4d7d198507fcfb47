"""Questions to a Prometheus, or to what speaks like one (Thanos, Mimir).

Prometheus is a neighbour that may be absent, slow or wrong. So every question has a deadline, and
an answer that is missing or not understood is no opinion (None): it never stands for zero, and
nothing that runs depends on it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tonnage.telemetry.access import Access
from tonnage.telemetry.breaker import Breaker
from tonnage.telemetry.exchange import Exchange
from tonnage.telemetry.outcome import Outcome, UnansweredError
from tonnage.telemetry.series import NotUnderstoodError, Series, read_vector

_log = logging.getLogger(__name__)

_THREADS: Final = 4
"""The client blocks. So many questions are asked at once; no more can hang on a server."""


class PrometheusSource:
    """Asks one Prometheus, while it does not answer only every `hold_seconds`; `count` is told what
    became of each question."""

    def __init__(
        self,
        access: Access,
        deadline_seconds: float,
        hold_seconds: float,
        count: Callable[[Outcome], None],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._deadline_seconds = deadline_seconds
        self._count = count
        self._clock = clock
        self._breaker = Breaker(hold_seconds, monotonic)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tonnage-prometheus")
        self._was_silent = False

    async def ask(self, query: str) -> tuple[Series, ...] | None:
        """The answer to an instant query; None when there is none in time. Implements Ask."""
        if not self._breaker.lets_through():
            self._count(Outcome.HELD_BACK)
            return None
        try:
            series = await self._ask_in_time(query)
        except UnansweredError as error:
            self._failed(error)
            return None
        self._answered(Outcome.ANSWERED)
        return series

    async def _ask_in_time(self, query: str) -> tuple[Series, ...]:
        """Raises UnansweredError, at the deadline at the latest."""
        exchange = Exchange(self._access, self._deadline_seconds)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._deadline_seconds):
                return await loop.run_in_executor(self._threads, self._ask, exchange, query)
        except TimeoutError:
            raise UnansweredError(Outcome.TIMEOUT, "no answer in time") from None
        finally:
            exchange.give_up()

    def _ask(self, exchange: Exchange, query: str) -> tuple[Series, ...]:
        """In a thread; a large answer is read there too."""
        try:
            return read_vector(exchange.ask(query), self._clock())
        except NotUnderstoodError as error:
            raise UnansweredError(Outcome.NOT_UNDERSTOOD, str(error)) from None

    def _failed(self, error: UnansweredError) -> None:
        if not error.outcome.speaks_for_all:
            _log.debug("Prometheus refused a question", extra=self._told(error))
            self._answered(error.outcome)
            return
        self._count(error.outcome)
        self._breaker.failed()
        if not self._was_silent:
            _log.warning("Prometheus does not answer", extra=self._told(error))
        self._was_silent = True

    def _answered(self, outcome: Outcome) -> None:
        self._count(outcome)
        self._breaker.succeeded()
        if self._was_silent:
            _log.info("Prometheus answers again", extra={"url": self._access.address})
        self._was_silent = False

    def _told(self, error: UnansweredError) -> dict[str, str]:
        return {"url": self._access.address, "outcome": error.outcome, "why": str(error)}
