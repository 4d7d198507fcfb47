"""Events wait for nobody, and nobody waits for them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tonnage.kube.outbox import MAX_WAITING, Outbox
from tonnage.kube.protocol import ForbiddenError, Object


class Written:
    """An API server that takes events while its gate is open, and may refuse one."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.gate = asyncio.Event()
        self.refused = ""

    async def write(self, event: Object) -> None:
        await self.gate.wait()
        if event["reason"] == self.refused:
            raise ForbiddenError("namespace is being terminated")
        self.events.append(event["reason"])


@asynccontextmanager
async def delivering(outbox: Outbox) -> AsyncIterator[None]:
    task = asyncio.create_task(outbox.deliver())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_events_are_written_in_their_order_whatever_becomes_of_one() -> None:
    written = Written()
    written.refused = "b"
    outbox = Outbox(written.write)
    for reason in "abc":
        await outbox.create_event({"reason": reason})
    assert written.events == []
    async with delivering(outbox):
        written.gate.set()
        await outbox.empty(within_seconds=5)
    assert written.events == ["a", "c"]


async def test_an_api_server_that_takes_no_event_holds_nobody_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    written = Written()
    outbox = Outbox(written.write)
    for number in range(MAX_WAITING + 1):
        await outbox.create_event({"reason": f"n{number}"})
    assert [record.message for record in caplog.records] == [
        f"event n{MAX_WAITING} dropped: {MAX_WAITING} wait already"
    ]
    async with delivering(outbox):
        await outbox.empty(within_seconds=0.01)
    assert "events given up" in caplog.records[-1].message
