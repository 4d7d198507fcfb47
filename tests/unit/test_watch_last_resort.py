"""A task that does not end does not keep the process."""

import subprocess
import sys
import threading
from textwrap import dedent

import pytest

from tonnage.watch.last_resort import run_to_the_end

STUBBORN = dedent(
    """
    import asyncio
    from tonnage import delays
    from tonnage.watch import last_resort

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
    raise SystemExit(last_resort.run_to_the_end(main()))
    """
)


@pytest.mark.parametrize(
    ("end", "code"), [("return 7", 7), ("return 0", 0), ("raise RuntimeError('of its own')", 1)]
)
def test_a_task_that_outlives_its_cancellation_does_not_keep_the_process(end, code):
    program = STUBBORN.format(end=end)
    ended = subprocess.run(
        [sys.executable, "-c", program], timeout=30, capture_output=True, check=False, text=True
    )
    assert ended.returncode == code
    assert "tasks are left that do not end" in ended.stderr


def test_what_ends_by_itself_is_not_ended_by_force():
    async def main():
        return 3

    assert run_to_the_end(main()) == 3
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(timeout=1.0)
            assert not thread.is_alive(), "it would end the process yet"


def test_what_failed_is_raised():
    async def main():
        raise LookupError("of its own")

    with pytest.raises(LookupError, match="of its own"):
        run_to_the_end(main())
