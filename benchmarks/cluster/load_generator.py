"""Requests at a steady rate, or as many at once as the API server takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

PARALLEL_REQUESTS: Final = 16

Call = Callable[[], Awaitable[None]]


async def run_at_rate(calls: Iterable[Call], per_second: float) -> None:
    """Start one call after the other at this rate, however long each takes, and return when all
    have ended. At most PARALLEL_REQUESTS are under way: more would queue in the API server."""
    started, gate = time.monotonic(), asyncio.Semaphore(PARALLEL_REQUESTS)
    async with _first_error(), asyncio.TaskGroup() as group:
        for number, call in enumerate(calls):
            await asyncio.sleep(max(0.0, started + number / per_second - time.monotonic()))
            group.create_task(_run(call, gate))


async def run_parallel(calls: Iterable[Call]) -> None:
    """Run all calls, PARALLEL_REQUESTS at a time."""
    gate = asyncio.Semaphore(PARALLEL_REQUESTS)
    async with _first_error(), asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(_run(call, gate))


@asynccontextmanager
async def _first_error() -> AsyncIterator[None]:
    """Raise the first error of a group alone: it is a sentence for a user."""
    try:
        yield
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


async def _run(call: Call, gate: asyncio.Semaphore) -> None:
    async with gate:
        await call()
