"""How the process ends where kopf does not: by whether somebody asked it to."""

import asyncio
from typing import Any, cast

import pytest

from tonnage import delays
from tonnage.watch.process import Operator, WatchStuckError


class WithStuckKopf(Operator):
    """Of an operator that has ended all that is its own."""

    def __init__(self, *, was_asked: bool) -> None:
        super().__init__(cast("Any", None))
        self._was_asked = was_asked
        self._stopped.set()

    async def _run_kopf(self) -> None:
        await asyncio.Event().wait()

    async def run_until_end(self) -> None:
        await self._run_until_end()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "END_KOPF", 0.01)


async def test_who_was_asked_to_end_ends_without_kopf(caplog: pytest.LogCaptureFixture) -> None:
    await WithStuckKopf(was_asked=True).run_until_end()
    assert "kopf did not end" in caplog.text


async def test_whose_watch_failed_has_failed() -> None:
    with pytest.raises(WatchStuckError, match=r"within 0\.01 s"):
        await WithStuckKopf(was_asked=False).run_until_end()
