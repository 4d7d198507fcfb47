"""Background tasks and periodic jobs."""

import asyncio

import pytest

from tests.support.faults.virtual_time import run_in_virtual_time
from tonnage.controller.background import Background
from tonnage.controller.periodic import repeat
from tonnage.kube.protocol import TransientError


class Job:
    """Counts its runs; the first ones raise the given failures."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self._ran: asyncio.Queue[None] = asyncio.Queue()

    async def __call__(self) -> None:
        self._ran.put_nowait(None)
        if self._failures:
            raise self._failures.pop(0)

    async def runs(self, count: int) -> bool:
        """Whether it runs `count` more times within a minute."""
        try:
            async with asyncio.timeout(60):
                for _ in range(count):
                    await self._ran.get()
        except TimeoutError:
            return False
        return True

    @property
    def count(self) -> int:
        return self._ran.qsize()


async def test_failed_task_is_reported_and_its_error_kept() -> None:
    failed = asyncio.Event()
    background = Background(on_failure=failed.set)

    async def fail() -> None:
        raise KeyError("spec")

    background.start("part", fail())
    await asyncio.wait_for(failed.wait(), 60)
    assert isinstance(background.failure, KeyError)


async def test_task_that_ends_or_is_stopped_is_no_failure() -> None:
    background = Background(on_failure=lambda: pytest.fail("on_failure was called"))
    background.start("short", asyncio.sleep(0))
    background.start("endless", asyncio.Event().wait())  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    await background.stop()
    assert background.failure is None


async def test_first_failure_is_kept() -> None:
    background = Background(on_failure=lambda: None)

    async def fail(message: str) -> None:
        raise ValueError(message)

    background.start("one", fail("one"))
    background.start("two", fail("two"))
    await asyncio.sleep(0.01)
    assert str(background.failure) == "one"


async def test_job_repeats_with_its_period() -> None:
    job = Job()
    task = asyncio.create_task(repeat("job", job, 0.001, jitter=lambda: 0))
    assert await job.runs(3)
    task.cancel()


async def test_wake_runs_the_job_before_its_period() -> None:
    job, wake = Job(), asyncio.Event()
    task = asyncio.create_task(repeat("job", job, 3600, wake=wake))
    await asyncio.sleep(0)
    assert job.count == 0
    wake.set()
    assert await job.runs(1)
    task.cancel()


async def jobs_after_a_burst_of_wakes() -> int:
    job, wake = Job(), asyncio.Event()
    task = asyncio.create_task(repeat("job", job, 3600, wake=wake, batch_seconds=0.02))
    for _ in range(5):
        wake.set()
        await asyncio.sleep(0.002)
    await asyncio.sleep(60)
    task.cancel()
    return job.count


def test_burst_of_wakes_is_one_job() -> None:
    assert run_in_virtual_time(jobs_after_a_burst_of_wakes) == 1


@pytest.mark.parametrize("error", [TransientError("no answer"), RuntimeError("a bug")])
async def test_failed_job_is_retried(error: Exception) -> None:
    job, wake = Job(error, error), asyncio.Event()
    wake.set()
    task = asyncio.create_task(repeat("job", job, 0.005, wake=wake))
    assert await job.runs(3)
    task.cancel()
