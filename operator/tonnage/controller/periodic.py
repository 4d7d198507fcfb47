"""Periodic jobs, which an event can also start early."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from tonnage import delays
from tonnage.kube.protocol import ApiError

_log = logging.getLogger(__name__)


async def repeat(
    name: str,
    job: Callable[[], Awaitable[None]],
    period_seconds: float,
    *,
    wake: asyncio.Event | None = None,
    batch_seconds: float = 0.0,
    jitter: Callable[[], float] = random.random,
) -> None:
    """Run the job every period, for ever, and soon after `wake` is set.

    Jitter of up to a fifth of the period keeps replicas out of phase. After a wake the job waits
    `batch_seconds`, so that a burst of wakes runs it once. A failed job is retried.
    """
    wake = wake or asyncio.Event()
    while True:
        await _wait(wake, period_seconds * (1 + 0.2 * jitter()))
        if wake.is_set():
            await asyncio.sleep(batch_seconds)
        wake.clear()
        try:
            await job()
        except Exception as error:  # noqa: BLE001 - the job is retried after any error
            _log.warning(
                "job failed, retrying: %s: %s",
                name,
                error,
                exc_info=None if isinstance(error, ApiError) else error,
            )
            await asyncio.sleep(min(delays.JOB_RETRY, period_seconds))
            wake.set()


async def _wait(wake: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        return
