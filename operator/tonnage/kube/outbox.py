"""Events on their way: written one after the other, behind the work that they tell of.

A reconcile that waited for its events would make the next object wait, too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tonnage.kube.protocol import ApiError, Object

_log = logging.getLogger(__name__)

MAX_WAITING: Final = 8192
"""Events that wait at most; what comes on top is dropped, as in client-go's recorder."""


class Outbox:
    """Takes events in at once and hands them to `write` while `deliver` runs."""

    def __init__(self, write: Callable[[Object], Awaitable[None]]) -> None:
        self._write = write
        self._waiting: asyncio.Queue[Object] = asyncio.Queue(MAX_WAITING)

    async def create_event(self, event: Object) -> None:
        """Take the event in; one that finds no room is dropped, and that is told."""
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            _log.info("event %s dropped: %d wait already", event["reason"], MAX_WAITING)

    async def deliver(self) -> None:
        """Write events for ever. No refusal of the API server ends this."""
        while True:
            await self._deliver_one(await self._waiting.get())

    async def empty(self, within_seconds: float) -> None:
        """Let what was taken in be written, or give it up when the time is over."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._waiting.join()
        except TimeoutError:
            _log.info("events given up: %d", self._waiting.qsize())

    async def _deliver_one(self, event: Object) -> None:
        try:
            await self._write(event)
        except ApiError as error:
            _log.info("event %s not written: %s", event["reason"], error)
        finally:
            self._waiting.task_done()
