"""An exit watchdog: ends the process although a task of kopf does not end."""

import asyncio
import logging
import os
import threading
from collections.abc import Coroutine
from typing import Any

import uvloop

from tonnage import delays

_log = logging.getLogger(__name__)


def run_with_exit_watchdog(main: Coroutine[Any, Any, int]) -> int:
    """Run `main` on uvloop and return its exit code; force an exit with that code on a hang.

    asyncio waits for every task that it has cancelled, and a watch of kopf may outlive its
    cancellation (`_cogs/clients/api.py` of kopf 1.45 asserts in the callback that would end it). A
    process that hangs there does no work, and the kubelet does not restart it.
    """
    code = 1

    def force_exit() -> None:
        _log.error("forcing exit: tasks are still running", extra={"code": code})
        os._exit(code)

    timer = threading.Timer(delays.END_TASKS, force_exit)
    timer.daemon = True

    async def run() -> None:
        nonlocal code
        try:
            code = await main
        finally:
            timer.start()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    finally:
        timer.cancel()
    return code
