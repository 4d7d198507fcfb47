"""How often the logs of downloads are read."""

from datetime import timedelta

from tests.support.api_server.fake_api import FakeApi
from tests.support.faults.fake_clock import FakeClock
from tonnage import delays
from tonnage.controller.download_reader import CAPACITY, DownloadReader
from tonnage.kube.protocol import ForbiddenError, Object
from tonnage.reconcile.observation.findings import format_time


class Bench:
    """A reader, its clock, and a pod whose program runs."""

    def __init__(self) -> None:
        self.api, self.clock = FakeApi(), FakeClock()
        self.reader = DownloadReader(self.api, self.clock.now)
        self.created = self.clock.now()
        self.pod = self.make_pod("download-0")

    def make_pod(self, name: str) -> Object:
        created = format_time(self.created)
        return {"metadata": {"namespace": "chat", "name": name, "creationTimestamp": created}}

    def write(self, present: int) -> None:
        line = f"progress: {present} of 100 bytes, {present} of them in 60 s\n"
        self.api.set_log("chat", "download-0", "download", line)

    async def read(self) -> int | None:
        progress = await self.reader.read(self.pod)
        return None if progress is None else progress.present


async def test_a_log_is_read_once_in_thirty_seconds() -> None:
    bench = Bench()
    bench.write(10)
    assert await bench.read() == 10
    bench.write(20)
    bench.clock.advance(delays.START_PHASES - 1)
    assert await bench.read() == 10
    bench.clock.advance(1)
    assert await bench.read() == 20
    assert len(bench.api.calls) == 2


async def test_a_download_of_hours_is_read_less_and_less_often() -> None:
    bench = Bench()
    bench.write(10)
    while bench.clock.now() - bench.created < timedelta(hours=10):
        await bench.read()
        bench.clock.advance(10)
    assert 30 < len(bench.api.calls) < 70


async def test_a_log_that_cannot_be_read_now_takes_nothing_back() -> None:
    bench = Bench()
    assert await bench.read() is None
    bench.write(10)
    bench.clock.advance(delays.START_PHASES)
    assert await bench.read() == 10
    bench.clock.advance(delays.START_PHASES)
    bench.api.fail_next("pod_log", ForbiddenError("403"))
    assert await bench.read() == 10


async def test_pods_are_kept_up_to_a_bound() -> None:
    bench = Bench()
    bench.write(10)
    await bench.read()
    for number in range(CAPACITY):
        await bench.reader.read(bench.make_pod(f"other-{number}"))
    reads = len(bench.api.calls)
    await bench.read()
    assert len(bench.api.calls) == reads + 1
