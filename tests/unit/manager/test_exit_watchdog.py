"""The exit watchdog."""

import subprocess
import sys
import threading
from textwrap import dedent

import pytest

from tonnage import delays
from tonnage.manager.exit_watchdog import run_with_exit_watchdog

STUBBORN = dedent(
    """
    import asyncio
    from tonnage import delays
    from tonnage.manager import exit_watchdog

    async def outlive_cancellation():
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

    async def main():
        task = asyncio.create_task(outlive_cancellation())
        await asyncio.sleep(0)
        {end}

    delays.END_TASKS = 0.1
    raise SystemExit(exit_watchdog.run_with_exit_watchdog(main()))
    """
)


@pytest.mark.parametrize(
    ("end", "code"), [("return 7", 7), ("return 0", 0), ("raise RuntimeError('of its own')", 1)]
)
def test_exit_is_forced_while_a_task_outlives_its_cancellation(end, code):
    program = STUBBORN.format(end=end)
    completed = subprocess.run(
        [sys.executable, "-c", program], timeout=300, capture_output=True, check=False, text=True
    )
    assert completed.returncode == code
    assert "forcing exit: tasks are still running" in completed.stderr


def test_exit_is_not_forced_when_all_tasks_end(monkeypatch):
    monkeypatch.setattr(delays, "END_TASKS", 3600.0)

    async def main():
        return 3

    assert run_with_exit_watchdog(main()) == 3
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(timeout=60.0)
            assert not thread.is_alive(), "the timer would end the process later"


def test_an_error_of_main_is_raised():
    async def main():
        raise LookupError("of its own")

    with pytest.raises(LookupError, match="of its own"):
        run_with_exit_watchdog(main())
