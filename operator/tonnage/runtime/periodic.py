"""Work that is done again and again, and soon after something asked for it."""

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
    """Do the job every period, for ever, and soon after `wake` was set.

    The period is stretched by up to a fifth, so that replicas are out of phase. After a wake the
    job waits `batch_seconds`, so that a burst of wakes is one job. No failure ends this.
    """
    wake = wake or asyncio.Event()
    while True:
        await _wait(wake, period_seconds * (1 + 0.2 * jitter()))
        if wake.is_set():
            await asyncio.sleep(batch_seconds)
        wake.clear()
        try:
            await job()
        except Exception as error:  # noqa: BLE001 - the job is done again, whatever was wrong
            _log.warning(
                "%s failed, and is done again: %s",
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
