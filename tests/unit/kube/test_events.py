"""The recorder counts and limits Events, and never delays or fails a reconcile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.support.api_server.fake_api import FakeApi
from tests.support.faults.fake_clock import FakeClock
from tonnage.kube.events import MAX_WAITING, EventRecorder
from tonnage.kube.kinds import EVENTS
from tonnage.kube.protocol import ForbiddenError, Object
from tonnage.kube.throttle import TokenBucket

LLAMA = {
    "apiVersion": "tonnage.dev/v1alpha1",
    "kind": "InferenceDeployment",
    "metadata": {"name": "llama", "namespace": "chat", "uid": "u1"},
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@asynccontextmanager
async def delivering(recorder: EventRecorder) -> AsyncIterator[None]:
    task = asyncio.create_task(recorder.deliver())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class Recorder:
    """An EventRecorder whose Events are written at once."""

    def __init__(self, api: FakeApi, clock: FakeClock, burst: int) -> None:
        self._recorder = EventRecorder(
            api.create_event,
            identity="op-0",
            new_bucket=lambda: TokenBucket(1, burst, clock.monotonic),
            now=clock.now,
        )

    async def record(
        self, regarding: Object, warning: bool, reason: str, note: str, action: str
    ) -> None:
        self._recorder.record(regarding, warning, reason, note, action)
        async with delivering(self._recorder):
            await self._recorder.empty(within_seconds=60)


def new_recorder(api: FakeApi, clock: FakeClock, burst: int = 100) -> Recorder:
    return Recorder(api, clock, burst)


def events(api: FakeApi) -> list[Object]:
    return api.objects(EVENTS)


async def test_event_carries_what_kubectl_shows(clock: FakeClock) -> None:
    api = FakeApi()
    await new_recorder(api, clock).record(LLAMA, True, "OutOfMemory", "needs 131.5 GiB", "Start")
    (event,) = events(api)
    assert event["metadata"]["namespace"] == "chat"
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "OutOfMemory", "Start")
    assert event["note"] == "needs 131.5 GiB"
    assert event["regarding"] == {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "name": "llama",
        "namespace": "chat",
        "uid": "u1",
    }
    assert event["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert (event["reportingController"], event["reportingInstance"]) == (
        "tonnage.dev/operator",
        "op-0",
    )
    assert "series" not in event


async def test_the_same_note_about_another_condition_is_another_event(clock: FakeClock) -> None:
    api = FakeApi()
    record = new_recorder(api, clock).record
    for condition in ("Placed", "Ready"):
        await record(LLAMA, False, "ScaledToZero", "no load: scaled to zero", condition)
    # The API server accepts no change of an existing Event's action.
    assert {event["action"] for event in events(api)} == {"Placed", "Ready"}


async def test_a_note_that_differs_only_in_its_time_is_the_same_event(clock: FakeClock) -> None:
    api = FakeApi()
    record = new_recorder(api, clock).record
    for minute in (10, 25, 40):
        note = f"another pool is taken at 2026-01-01T00:{minute}:00Z (spec.placement.fallback)"
        await record(LLAMA, True, "InsufficientGPUs", note, "Placed")
    (event,) = events(api)
    assert event["series"]["count"] == 3
    assert event["note"] == "another pool is taken at (see status) (spec.placement.fallback)"


async def test_same_event_again_is_counted(clock: FakeClock) -> None:
    api = FakeApi()
    recorder = new_recorder(api, clock)
    for _ in range(3):
        await recorder.record(LLAMA, False, "PoolChosen", "on amd-mi300x", "Place")
        clock.advance(60)
    (event,) = events(api)
    assert event["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert event["series"] == {"count": 3, "lastObservedTime": "2026-01-01T00:02:00.000000Z"}


@pytest.mark.parametrize(
    ("regarding", "reason", "note"),
    [
        (LLAMA, "PoolChosen", "another note"),
        (LLAMA, "OtherReason", "on amd-mi300x"),
        (LLAMA | {"metadata": {**LLAMA["metadata"], "uid": "u2"}}, "PoolChosen", "on amd-mi300x"),
    ],
    ids=["note", "reason", "uid"],
)
async def test_other_cause_is_another_event(
    clock: FakeClock, regarding: Object, reason: str, note: str
) -> None:
    api = FakeApi()
    recorder = new_recorder(api, clock)
    await recorder.record(LLAMA, False, "PoolChosen", "on amd-mi300x", "Place")
    await recorder.record(regarding, False, reason, note, "Place")
    assert len(events(api)) == 2


async def test_event_about_a_cluster_scoped_object_is_kept_in_default(clock: FakeClock) -> None:
    api = FakeApi()
    pool = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "AcceleratorPool",
        "metadata": {"name": "p", "uid": "u"},
    }
    await new_recorder(api, clock).record(pool, False, "PoolUsable", "8 GPUs", "Observe")
    assert [event["metadata"]["namespace"] for event in events(api)] == ["default"]


async def test_flood_is_cut_and_still_counted(clock: FakeClock) -> None:
    api = FakeApi()
    recorder = new_recorder(api, clock, burst=2)
    for _ in range(10):
        await recorder.record(LLAMA, False, "Waiting", "for GPUs", "Place")
    assert len(api.calls) == 2
    clock.advance(1)
    await recorder.record(LLAMA, False, "Waiting", "for GPUs", "Place")
    (event,) = events(api)
    assert event["series"]["count"] == 11


async def test_flood_of_one_object_silences_no_other(clock: FakeClock) -> None:
    api = FakeApi()
    recorder = new_recorder(api, clock, burst=2)
    for _ in range(10):
        await recorder.record(LLAMA, False, "Waiting", "for GPUs", "Place")
    other = LLAMA | {"metadata": {**LLAMA["metadata"], "name": "qwen", "uid": "u2"}}
    await recorder.record(other, False, "PoolChosen", "on amd-mi300x", "Place")
    assert {event["regarding"]["name"] for event in events(api)} == {"llama", "qwen"}


async def test_the_recorder_survives_a_refused_event(clock: FakeClock) -> None:
    api = FakeApi()
    recorder = new_recorder(api, clock)
    api.fail_next("create_event", ForbiddenError("namespace is being terminated"))
    await recorder.record(LLAMA, False, "Waiting", "for GPUs", "Place")
    assert events(api) == []
    await recorder.record(LLAMA, False, "PoolChosen", "on amd-mi300x", "Place")
    assert [event["reason"] for event in events(api)] == ["PoolChosen"]


async def test_long_note_is_cut_at_a_character(clock: FakeClock) -> None:
    api = FakeApi()
    await new_recorder(api, clock).record(LLAMA, False, "Waiting", "×" * 1000, "Place")
    (event,) = events(api)
    assert event["note"] == "×" * 512


async def test_the_least_recently_recorded_series_is_forgotten(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tonnage.kube.events.MAX_SERIES", 2)
    api = FakeApi()
    recorder = new_recorder(api, clock)
    for note in ("one", "two", "three"):
        await recorder.record(LLAMA, False, "Waiting", note, "Place")
    await recorder.record(LLAMA, False, "Waiting", "three", "Place")
    await recorder.record(LLAMA, False, "Waiting", "one", "Place")
    counts = {event["note"]: event.get("series", {}).get("count", 1) for event in events(api)}
    assert counts == {"one": 1, "two": 1, "three": 2}


class Server:
    """An API server that takes Events while `is_open` is set, and may refuse one."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.is_open = asyncio.Event()
        self.refused = ""

    async def write(self, event: Object) -> None:
        await self.is_open.wait()
        if event["reason"] == self.refused:
            raise ForbiddenError("namespace is being terminated")
        self.events.append(event["reason"])

    def recorder(self) -> EventRecorder:
        return EventRecorder(
            self.write,
            identity="op-0",
            new_bucket=lambda: TokenBucket(1, MAX_WAITING + 1, lambda: 0.0),
            now=FakeClock().now,
        )


async def test_events_are_written_in_order_though_one_is_refused() -> None:
    server = Server()
    server.refused = "b"
    recorder = server.recorder()
    for reason in "abc":
        recorder.record(LLAMA, False, reason, "a note", "Place")
    assert server.events == []
    async with delivering(recorder):
        server.is_open.set()
        await recorder.empty(within_seconds=60)
    assert server.events == ["a", "c"]


async def test_an_api_server_that_takes_no_event_delays_no_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    server = Server()
    recorder = server.recorder()
    for number in range(MAX_WAITING + 1):
        recorder.record(LLAMA, False, f"n{number}", "a note", "Place")
    assert [record.message for record in caplog.records] == [
        f"dropping event n{MAX_WAITING}: {MAX_WAITING} events are waiting"
    ]
    async with delivering(recorder):
        await recorder.empty(within_seconds=0.01)
    assert caplog.records[-1].message == f"dropping {MAX_WAITING - 1} events: not written in time"
