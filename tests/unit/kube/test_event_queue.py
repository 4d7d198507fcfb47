"""The queue of Events: no reconcile waits for it, and no refused Event stops it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tonnage.kube.events import MAX_WAITING, EventQueue
from tonnage.kube.protocol import ForbiddenError, Object


class Server:
    """An API server that takes Events while `is_open` is set, and may refuse one."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.is_open = asyncio.Event()
        self.refused = ""

    async def write(self, event: Object) -> None:
        await self.is_open.wait()
        if event["reason"] == self.refused:
            raise ForbiddenError("namespace is being terminated")
        self.events.append(event["reason"])


@asynccontextmanager
async def delivering(event_queue: EventQueue) -> AsyncIterator[None]:
    task = asyncio.create_task(event_queue.deliver())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_events_are_written_in_order_though_one_is_refused() -> None:
    server = Server()
    server.refused = "b"
    event_queue = EventQueue(server.write)
    for reason in "abc":
        await event_queue.create_event({"reason": reason})
    assert server.events == []
    async with delivering(event_queue):
        server.is_open.set()
        await event_queue.empty(within_seconds=5)
    assert server.events == ["a", "c"]


async def test_an_api_server_that_takes_no_event_delays_no_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    server = Server()
    event_queue = EventQueue(server.write)
    for number in range(MAX_WAITING + 1):
        await event_queue.create_event({"reason": f"n{number}"})
    assert [record.message for record in caplog.records] == [
        f"dropping event n{MAX_WAITING}: {MAX_WAITING} events are waiting"
    ]
    async with delivering(event_queue):
        await event_queue.empty(within_seconds=0.01)
    assert caplog.records[-1].message == f"dropping {MAX_WAITING - 1} events: not written in time"
