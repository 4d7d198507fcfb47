"""How the process ends if kopf does not stop, with and without a signal."""

import asyncio
from typing import Any, cast

import pytest

from tonnage import delays
from tonnage.manager.process import Operator, WatchStuckError


class OperatorWithStuckKopf(Operator):
    """An operator whose own tasks have stopped."""

    def __init__(self, *, stopped_by_signal: bool) -> None:
        super().__init__(cast("Any", None))
        self._stopped_by_signal = stopped_by_signal
        self._stopped.set()

    async def _run_kopf(self) -> None:
        await asyncio.Event().wait()

    async def run_until_end(self) -> None:
        await self._run_until_end()


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "END_KOPF", 0.01)


async def test_a_signal_ends_the_process_without_kopf(caplog: pytest.LogCaptureFixture) -> None:
    await OperatorWithStuckKopf(stopped_by_signal=True).run_until_end()
    assert "kopf did not stop in time" in caplog.text


async def test_a_failed_watch_is_an_error() -> None:
    with pytest.raises(WatchStuckError, match=r"within 0\.01 s"):
        await OperatorWithStuckKopf(stopped_by_signal=False).run_until_end()
