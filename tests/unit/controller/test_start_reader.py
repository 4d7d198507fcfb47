"""How often logs of starting replicas are read, and that each start is measured once."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.api_server.fake_api import FakeApi
from tests.support.faults.fake_clock import FakeClock
from tests.support.load.startup_logs import LOADED, REQUESTED, STARTED, bar, log_of
from tonnage import delays
from tonnage.api.conditions import StartPhase
from tonnage.controller.start_reader import (
    LOG_BURST,
    LOGS_PER_OBJECT,
    WHOLE_BYTES,
    StartReader,
)
from tonnage.engines.medium import Medium
from tonnage.kube.protocol import ForbiddenError
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.child_pods import ChildPod, ContainerEnd, StartTimes
from tonnage.reconcile.observation.pods.starts import FinishedStart, Replicas, Starts

KEY = Key("chat", "llama")


class Bench:
    """A reader, its clock, and what it has recorded."""

    def __init__(self) -> None:
        self.api, self.clock = FakeApi(), FakeClock()
        self.recorded: list[FinishedStart] = []
        self.begin()

    def begin(self) -> None:
        """A new process."""
        self.reader = StartReader(
            self.api, self.clock.now, self.recorded.append, clock=self.clock.monotonic
        )

    def pod(self, name: str = "p") -> ChildPod:
        """A pod whose container runs since now."""
        now = self.clock.now()
        return ChildPod(
            name=name,
            placement="h100",
            created=now,
            node="n",
            ready=False,
            deleting=False,
            restarts=0,
            uid=name,
            scheduled=now,
            times=StartTimes(sandboxed=now, initialized=now, runs=True, started=now),
        )

    def ready(self, pod: ChildPod) -> ChildPod:
        """The pod, ready since now."""
        return replace(pod, ready=True, times=replace(pod.times, answers=self.clock.now()))

    def write(self, *lines: str, pod: str = "p") -> None:
        text = log_of(*lines, start=self.clock.now())
        self.api.set_log(KEY.namespace, pod, "vllm", text)

    async def read(self, *pods: ChildPod, key: Key = KEY) -> Starts:
        return await self.reader.read(Replicas(key, pods, {"h100": "nvidia-h100"}, Medium.HUB))

    @property
    def reads(self) -> Sequence[str | None]:
        """The pods whose logs were read."""
        return [call.name for call in self.api.calls]

    def phase_of(self, starts: Starts, pod: str = "p") -> StartPhase:
        return starts.by_pod[pod].phase


async def test_a_short_start_costs_nothing() -> None:
    bench = Bench()
    pod = bench.pod()
    starts = await bench.read(pod)
    assert (starts.by_pod, starts.again_at) == ({}, pod.created + timedelta(seconds=30))
    bench.clock.advance(29)
    await bench.read(pod)
    assert await bench.read(bench.ready(pod)) == Starts()
    assert (bench.reads, bench.recorded) == ([], [])


async def test_a_log_is_read_once_in_thirty_seconds_however_often_the_object_is_reconciled() -> (
    None
):
    bench = Bench()
    pod = bench.pod()
    bench.clock.advance(delays.START_PHASES)
    bench.write(REQUESTED)
    for _ in range(29):
        assert bench.phase_of(await bench.read(pod)) is StartPhase.DOWNLOADING
        bench.clock.advance(1)
    assert bench.reads == ["p"]
    bench.write(bar(3))
    bench.clock.advance(1)
    assert bench.phase_of(await bench.read(pod)) is StartPhase.LOADING
    assert bench.reads == ["p", "p"]


async def test_a_start_of_a_day_is_read_less_and_less_often() -> None:
    bench = Bench()
    pod = bench.pod()
    starts = await bench.read(pod)
    while bench.clock.now() - pod.created < timedelta(days=1):
        assert starts.again_at is not None
        bench.clock.advance(max(1.0, (starts.again_at - bench.clock.now()).total_seconds()))
        starts = await bench.read(pod)
    assert 40 < len(bench.reads) < 80


async def test_logs_of_many_replicas_are_read_in_turn() -> None:
    bench = Bench()
    pods = [bench.pod(f"p{number}") for number in range(2 * LOGS_PER_OBJECT)]
    bench.clock.advance(delays.START_PHASES)
    for pod in pods:
        bench.write(bar(3), pod=pod.name)
    starts = await bench.read(*pods)
    assert len(bench.reads) == LOGS_PER_OBJECT
    assert bench.phase_of(starts, "p0") is StartPhase.LOADING
    assert bench.phase_of(starts, "p9") is StartPhase.STARTING
    assert starts.again_at == bench.clock.now() + timedelta(seconds=delays.START_PHASES)
    starts = await bench.read(*pods)
    assert sorted(map(str, bench.reads)) == sorted(pod.name for pod in pods)
    assert bench.phase_of(starts, "p9") is StartPhase.LOADING


async def test_thousands_of_starts_share_a_rate_and_each_is_read_in_its_turn() -> None:
    bench = Bench()
    keys = [Key("chat", f"o{number}") for number in range(1500)]
    pods = {key: bench.pod(key.name) for key in keys}
    bench.clock.advance(delays.START_PHASES)
    counts = []
    for _ in range(4):
        for key in keys:
            await bench.read(pods[key], key=key)
        counts.append(len(bench.reads))
        bench.clock.advance(delays.START_PHASES)
    assert counts == [LOG_BURST, 2 * LOG_BURST, len(keys), len(keys) + LOG_BURST]
    assert len(set(bench.reads[: len(keys)])) == len(keys), "each has its turn"


async def test_a_download_to_the_node_is_read_from_the_log_of_its_container() -> None:
    bench = Bench()
    now = bench.clock.now()
    times = StartTimes(sandboxed=now, initializes=True, downloads=now)
    pod = replace(bench.pod(), times=times, waiting=("PodInitializing", ""))
    bench.clock.advance(delays.START_PHASES)
    line = "progress: 30 of 120 bytes, 30 of them in 10 s"
    bench.api.set_log(KEY.namespace, "p", "weights", f"{line}\n")
    start = (await bench.read(pod)).by_pod["p"]
    assert start.phase is StartPhase.DOWNLOADING
    assert start.download is not None
    assert (start.download.percent, start.download.remaining) == (25, timedelta(seconds=30))
    bench.write(bar(3))
    bench.clock.advance(2 * delays.START_PHASES)
    runs = replace(pod, waiting=None, times=replace(times, has_weights=True, runs=True))
    start = (await bench.read(runs)).by_pod["p"]
    assert (start.phase, start.download) == (StartPhase.LOADING, None)


async def test_what_waits_for_a_node_or_an_image_is_not_read_and_needs_no_reconcile() -> None:
    bench = Bench()
    pod = replace(bench.pod(), times=StartTimes(), waiting=("ContainerCreating", ""))
    pending = replace(bench.pod("q"), node=None, scheduled=None, times=StartTimes())
    bench.clock.advance(delays.START_PHASES)
    starts = await bench.read(pod, pending)
    assert bench.phase_of(starts) is StartPhase.CREATING
    assert bench.phase_of(starts, "q") is StartPhase.SCHEDULING
    assert starts.again_at is None
    assert bench.reads == []


async def test_a_log_that_cannot_be_read_keeps_the_last_known_phase() -> None:
    bench = Bench()
    pod = bench.pod()
    bench.clock.advance(delays.START_PHASES)
    bench.write(bar(3))
    await bench.read(pod)
    bench.clock.advance(delays.START_PHASES)
    bench.api.fail_next("pod_log", ForbiddenError("403"))
    start = (await bench.read(pod)).by_pod["p"]
    assert start.phase is StartPhase.LOADING
    assert start.files is not None


async def test_a_phase_began_when_it_was_seen_first() -> None:
    bench = Bench()
    pod = bench.pod()
    bench.clock.advance(delays.START_PHASES)
    began = bench.clock.now()
    for _ in range(3):
        bench.write(bar(3))
        assert (await bench.read(pod)).by_pod["p"].since == began
        bench.clock.advance(delays.START_PHASES)


async def test_a_kubelet_that_hangs_delays_no_reconcile(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    monkeypatch.setattr(delays, "START_LOG", 0.01)

    async def hang(*_: object, **__: object) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(bench.api, "pod_log", hang)
    pod = bench.pod()
    bench.clock.advance(delays.START_PHASES)
    assert bench.phase_of(await bench.read(pod)) is StartPhase.STARTING


async def finished(bench: Bench, *lines: str) -> ChildPod:
    """A pod that was seen starting and is ready after 90 seconds; its log is of the last 60."""
    pod = bench.pod()
    bench.clock.advance(delays.START_PHASES)
    await bench.read(pod)
    bench.write(*lines)
    bench.clock.advance(60)
    pod = bench.ready(pod)
    await bench.read(pod)
    return pod


async def test_a_start_is_measured_once_when_it_ends() -> None:
    bench = Bench()
    pod = await finished(bench, REQUESTED, LOADED, STARTED)
    for _ in range(3):
        bench.clock.advance(600)
        await bench.read(pod)
    (start,) = bench.recorded
    assert (start.pool, start.medium) == ("nvidia-h100", Medium.HUB)
    assert {phase.value: taken for phase, taken in start.seconds.items() if taken} == {
        "Starting": 30,
        "Downloading": 1,
        "Compiling": 1,
        "Probing": 58,
    }
    assert len(bench.reads) == 2


async def test_a_new_process_measures_no_start_that_ended_before_it() -> None:
    bench = Bench()
    pod = await finished(bench, REQUESTED)
    bench.begin()
    await bench.read(pod)
    assert len(bench.recorded) == 1


async def test_a_restarted_container_is_not_measured() -> None:
    bench = Bench()
    pod = bench.pod()
    bench.clock.advance(delays.START_PHASES)
    await bench.read(pod)
    again = replace(pod, restarts=1, end=ContainerEnd(1, "Error", ""))
    assert (await bench.read(again)).by_pod == {}
    await bench.read(bench.ready(again))
    assert bench.recorded == []
    await bench.read(pod)
    await bench.read(bench.ready(replace(pod, restarts=1)))
    assert bench.recorded == []


@pytest.mark.parametrize("line", ["x" * WHOLE_BYTES, "\n" * 1000])
async def test_a_log_whose_beginning_is_lost_gives_no_phases_of_vllm(line: str) -> None:
    bench = Bench()
    await finished(bench, REQUESTED, line)
    (start,) = bench.recorded
    assert list(start.seconds) == [StartPhase.SCHEDULING, StartPhase.CREATING]


async def test_more_ended_starts_than_are_read_at_once_are_measured_later() -> None:
    bench = Bench()
    pods = [bench.pod(f"p{number}") for number in range(LOGS_PER_OBJECT + 1)]
    bench.clock.advance(delays.START_PHASES)
    await bench.read(*pods)
    await bench.read(*pods)
    pods = [bench.ready(pod) for pod in pods]
    starts = await bench.read(*pods)
    assert len(bench.recorded) == LOGS_PER_OBJECT
    assert starts.again_at is not None
    assert (await bench.read(*pods)).again_at is None
    assert len(bench.recorded) == len(pods)
