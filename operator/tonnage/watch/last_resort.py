"""The end of a process in which somebody else's task does not end."""

import asyncio
import logging
import os
import threading
from collections.abc import Coroutine
from typing import Any

import uvloop

from tonnage import delays

_log = logging.getLogger(__name__)


def run_to_the_end(main: Coroutine[Any, Any, int]) -> int:
    """asyncio.run on uvloop, for the exit code that `main` returns; where it hangs, the process
    ends with it.

    asyncio waits for every task that it has cancelled, and a watch of kopf may outlive that
    (`_cogs/clients/api.py` of kopf 1.45 asserts in the callback that would end it). A process that
    hangs there leads nobody and answers nothing, and is not restarted.
    """
    code = 1

    def end() -> None:
        _log.error("tasks are left that do not end: ending without them", extra={"code": code})
        os._exit(code)

    timer = threading.Timer(delays.END_TASKS, end)
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
