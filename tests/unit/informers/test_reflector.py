"""A reflector lists, then watches, and recovers when either fails."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tenacity import RetryCallState

from tests.support.fleets.objects import node
from tonnage.informers import reflector as module
from tonnage.informers.reflector import EVENTS_PER_STEP, NODES_TO_BATCH, Reflector
from tonnage.informers.restarts import Restarts
from tonnage.informers.store import Change, Store
from tonnage.kube.kinds import NODES, RESOURCE_SLICES
from tonnage.kube.protocol import (
    ApiError,
    ExpiredError,
    ForbiddenError,
    KindMissingError,
    Object,
    ObjectParts,
    Selection,
    TransientError,
    WatchEvent,
)
from tonnage.kube.rights import Right

LIST_RIGHT, WATCH_RIGHT = Right("list", "", "nodes", None), Right("watch", "", "nodes", None)
SELECTION = Selection(NODES, labels={"tonnage.dev/shard": None})


def obj(name: str, version: int) -> Object:
    body = node(name, uid=name)
    body["metadata"]["resourceVersion"] = str(version)
    return body


def event(event_type: str, name: str, version: int) -> WatchEvent:
    return WatchEvent(event_type, obj(name, version))


def bookmark(version: int) -> WatchEvent:
    return WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


class Listed:
    """The objects of a list, and its version."""

    def __init__(self, version: int, *objects: Object) -> None:
        self.version, self.objects = version, objects


Answer = Listed | ApiError | Sequence[WatchEvent | ApiError]
"""To a list: its objects, or an error. To a watch: its events, and the error that ends it."""


class Script:
    """Answers in order; then it is silent."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[str] = []
        self.is_over = asyncio.Event()

    def check(self, selection: Selection, parts: ObjectParts) -> None:
        assert (selection, parts) == (SELECTION, ObjectParts.PARTIAL)

    async def list_pages(
        self, selection: Selection, parts: ObjectParts, take: Callable[[Object], object]
    ) -> str:
        self.check(selection, parts)
        answer = await self._next("list")
        if isinstance(answer, ApiError):
            raise answer
        assert isinstance(answer, Listed), f"the reflector lists, and the script has {answer}"
        for body in answer.objects:
            take(body)
        return str(answer.version)

    async def watch(
        self, selection: Selection, parts: ObjectParts, since: str, batch_seconds: float = 0.0
    ) -> AsyncGenerator[WatchEvent, None]:
        self.check(selection, parts)
        answer = await self._next(f"watch {since}{' in batches' if batch_seconds else ''}")
        if isinstance(answer, ApiError):
            raise answer
        assert isinstance(answer, Sequence), "the reflector watches, and the script has a list"
        for each in answer:
            if isinstance(each, ApiError):
                raise each
            yield each

    async def _next(self, request: str) -> Answer:
        self.requests.append(request)
        if not self.answers:
            self.is_over.set()
            await asyncio.Event().wait()
        return self.answers.pop(0)


class Running:
    """A reflector, its store, and the callbacks that it made."""

    def __init__(self, *answers: Answer) -> None:
        self.api = Script(*answers)
        self.changes: list[str] = []
        self.events = 0
        self.denials: list[Right | None] = []
        self.missed: list[bool] = []
        self.store: Store[str] = Store(
            lambda body: body["metadata"]["resourceVersion"], on_change=self._change
        )
        self.reflector = Reflector(self.api, SELECTION, ObjectParts.PARTIAL, self.store, self)

    def _change(self, change: Change[str]) -> None:
        self.changes.append(f"{change.place[1]} {change.before} -> {change.after}")

    def on_event(self, plural: str) -> None:
        assert plural == "nodes"
        self.events += 1

    def on_availability(self, selection: Selection) -> None:
        assert selection == SELECTION
        self.denials.append(self.reflector.denied)
        self.missed.append(self.reflector.is_missing)


class Silent:
    """An observer that records nothing."""

    def on_event(self, plural: str) -> None:
        pass

    def on_availability(self, selection: Selection) -> None:
        pass


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays between attempts; the test waits for none."""
    recorded: list[float] = []
    wait = module._wait

    def record(state: RetryCallState) -> float:
        recorded.append(wait(state))
        return 0.0

    monkeypatch.setattr(module, "_wait", record)
    return recorded


@pytest.fixture(autouse=True)
def _no_delays(delays: list[float]) -> None:
    """No test waits."""


@asynccontextmanager
async def running_with(*answers: Answer) -> AsyncIterator[Running]:
    """A running reflector that has received all these answers."""
    running = Running(*answers)
    task = asyncio.create_task(running.reflector.run())
    over = asyncio.create_task(running.api.is_over.wait())
    async with asyncio.timeout(60):
        await asyncio.wait({task, over}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        over.cancel()
        task.result()
    yield running
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


# List, then watch


async def test_a_reflector_watches_from_the_version_of_its_list() -> None:
    async with running_with(Listed(5, obj("a", 3)), [event("ADDED", "b", 6)]) as running:
        assert running.api.requests[:2] == ["list", "watch 5"]
        assert running.changes == ["a None -> 3", "b None -> 6"]
        assert running.events == 1, "an object of a list is no event"
        assert running.reflector.is_listed


async def test_a_watch_that_ended_reopens_at_its_last_version() -> None:
    first = [event("MODIFIED", "a", 6), event("DELETED", "a", 7)]
    async with running_with(Listed(5, obj("a", 3)), first, [event("ADDED", "b", 8)]) as running:
        assert running.api.requests == ["list", "watch 5", "watch 7", "watch 8"]
        assert running.changes == ["a None -> 3", "a 3 -> 6", "a 6 -> None", "b None -> 8"]


async def test_a_bookmark_moves_the_version_and_is_no_change() -> None:
    async with running_with(Listed(5), [bookmark(9)], [bookmark(12)]) as running:
        assert running.api.requests == ["list", "watch 5", "watch 9", "watch 12"]
        assert (running.changes, running.events) == ([], 0)


async def test_an_unknown_type_of_event_is_ignored() -> None:
    async with running_with(Listed(5), [event("NEWS", "a", 6)]) as running:
        assert (running.changes, running.api.requests[-1]) == ([], "watch 6")


async def test_run_does_not_repeat_an_earlier_list() -> None:
    running = Running(Listed(5, obj("a", 3)))
    await running.reflector.list()
    task = asyncio.create_task(running.reflector.run())
    await running.api.is_over.wait()
    assert running.api.requests == ["list", "watch 5"]
    task.cancel()


async def test_nodes_of_a_large_cluster_are_watched_in_batches() -> None:
    nodes = [obj(f"n-{number}", 3) for number in range(NODES_TO_BATCH)]
    last_leaves, last_joins = event("DELETED", "n-0", 6), event("ADDED", "n-0", 7)
    async with running_with(Listed(5, *nodes), [last_leaves], [last_joins]) as running:
        expected = ["list", "watch 5 in batches", "watch 6", "watch 7 in batches"]
        assert running.api.requests == expected


# Too old


EXPIRED = ExpiredError("410: too old resource version")


@pytest.mark.parametrize(
    "watch", [EXPIRED, [EXPIRED], [event("MODIFIED", "a", 6), EXPIRED]], ids=type
)
async def test_a_version_that_is_too_old_causes_a_relist(watch: Any) -> None:
    answers = Listed(5, obj("a", 3), obj("ghost", 4)), watch, Listed(50, obj("a", 7))
    async with running_with(*answers) as running:
        assert running.api.requests == ["list", "watch 5", "list", "watch 50"]
        assert "ghost 4 -> None" in running.changes
        assert running.store.get(None, "a") == "7"


async def test_the_delay_grows_while_each_version_is_too_old(
    delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_backoff", lambda state: float(state.attempt_number))
    answers: list[Answer] = [Listed(5), EXPIRED] * 4
    async with running_with(*answers) as running:
        assert running.api.requests == ["list", "watch 5"] * 4 + ["list"]
        assert delays == [1.0, 2.0, 3.0, 4.0]


async def test_an_expired_list_restarts() -> None:
    async with running_with(EXPIRED, EXPIRED, Listed(5)) as running:
        assert running.api.requests == ["list", "list", "list", "watch 5"]


# Errors


FAILURES: dict[str, Answer] = {
    "an error as the answer": TransientError("503"),
    "an error before the first event": [TransientError("500")],
    "an end before the first event": [],
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_failed_watch_is_retried_later_from_its_last_version(
    failure: Answer, delays: list[float]
) -> None:
    async with running_with(Listed(5), failure, failure, [event("ADDED", "a", 6)]) as running:
        assert running.api.requests == ["list", "watch 5", "watch 5", "watch 5", "watch 6"]
        assert len(delays) == 2


async def test_a_watch_that_delivered_an_event_reopens_at_once(
    delays: list[float],
) -> None:
    broken: Answer = [event("ADDED", "a", 6), TransientError("connection reset")]
    async with running_with(Listed(5), broken, [bookmark(8)]) as running:
        assert running.api.requests == ["list", "watch 5", "watch 6", "watch 8"]
        assert delays == []


async def test_a_failed_list_is_retried_until_it_succeeds(delays: list[float]) -> None:
    async with running_with(TransientError("503"), TransientError("503"), Listed(5)) as running:
        assert running.api.requests == ["list", "list", "list", "watch 5"]
        assert len(delays) == 2


async def test_the_delay_grows_with_each_error_and_resets_after_a_success(
    delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_backoff", lambda state: float(state.attempt_number))
    error = TransientError("503")
    async with running_with(Listed(5), error, error, error, [bookmark(6)], error):
        assert delays == [1.0, 2.0, 3.0, 1.0]


async def test_the_delay_is_at_least_retry_after(
    delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_backoff", lambda _: 1.0)
    errors = [TransientError("429", 7.0), TransientError("429", 0.1), ForbiddenError("403")]
    async with running_with(*errors, Listed(5)):
        assert delays == [7.0, 1.0, 1.0]


async def test_an_unexpected_exception_ends_the_reflector() -> None:
    class Broken(Script):
        async def list_pages(self, *_: Any) -> str:
            raise KeyError("spec")

    running = Running()
    reflector = Reflector(Broken(), SELECTION, ObjectParts.PARTIAL, running.store, running)
    with pytest.raises(KeyError):
        await reflector.run()


# Denied


async def test_a_denied_list_is_reported_until_it_is_allowed() -> None:
    denied = ForbiddenError("403", LIST_RIGHT)
    async with running_with(denied, denied, Listed(5, obj("a", 3))) as running:
        assert running.denials == [LIST_RIGHT, None]
        assert running.changes == ["a None -> 3"]


async def test_the_store_keeps_its_objects_after_a_denial() -> None:
    answers = Listed(5, obj("a", 3)), EXPIRED, ForbiddenError("403", LIST_RIGHT)
    async with running_with(*answers) as running:
        assert running.reflector.denied == LIST_RIGHT
        assert running.store.get(None, "a") == "3"


async def test_a_reflector_polls_lists_where_its_watch_is_denied() -> None:
    denied = ForbiddenError("403", WATCH_RIGHT)
    lists = Listed(5, obj("a", 3)), Listed(7, obj("a", 6)), Listed(9)
    answers: list[Answer] = [lists[0], denied, lists[1], [denied], lists[2]]
    async with running_with(*answers) as running:
        assert running.api.requests == ["list", "watch 5", "list", "watch 7", "list", "watch 9"]
        assert running.changes == ["a None -> 3", "a 3 -> 6", "a 6 -> None"]
        assert running.denials == [], "a denied watch is no denied list"


async def test_a_denied_list_does_not_count_as_listed() -> None:
    running = Running(ForbiddenError("403", LIST_RIGHT))
    with pytest.raises(ForbiddenError):
        await running.reflector.list()
    assert not running.reflector.is_listed


# Missing


async def test_a_kind_that_comes_later_is_reported_and_listed() -> None:
    missing = KindMissingError("404")
    async with running_with(missing, missing, Listed(5, obj("a", 3))) as running:
        assert running.missed == [True, False]
        assert running.reflector.is_listed
        assert running.changes == ["a None -> 3"]


async def test_a_built_in_kind_that_is_missing_costs_no_request_until_the_api_server_restarts() -> (
    None
):
    requests, restarts = [], Restarts()

    class WithoutKind(Script):
        async def list_pages(self, *args: Any) -> str:
            requests.append("list")
            raise KindMissingError("404")

    running = Running()
    reflector = Reflector(
        WithoutKind(),
        Selection(RESOURCE_SLICES),
        ObjectParts.FULL,
        running.store,
        Silent(),
        restarts,
    )
    task = asyncio.create_task(reflector.run())
    for expected in (1, 2, 3):
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(requests) == expected
        assert not task.done()
        restarts.note()
    task.cancel()


async def test_the_objects_go_with_their_kind() -> None:
    answers: list[Answer] = [Listed(5, obj("a", 3)), KindMissingError("404")]
    async with running_with(*answers) as running:
        assert running.missed == [True]
        assert not running.reflector.is_listed
        assert running.changes == ["a None -> 3", "a 3 -> None"]
        assert await running.reflector.verify() == 0, "there is nothing to compare with"


# Others


async def test_other_tasks_run_while_many_events_arrive() -> None:
    flood: Answer = [event("MODIFIED", "a", 6 + number) for number in range(10 * EVENTS_PER_STEP)]
    running = Running(Listed(5), flood)
    task = asyncio.create_task(running.reflector.run())
    counts = set()
    while not running.api.is_over.is_set():
        counts.add(running.events)
        await asyncio.sleep(0)
    task.cancel()
    assert len(counts) >= 10


async def test_a_list_does_not_undo_an_event_that_arrived_meanwhile() -> None:
    """As for a kind whose events kopf delivers."""

    class Slow(Script):
        async def list_pages(self, *args: Any) -> str:
            running.store.observe("DELETED", obj("a", 8))
            running.store.observe("ADDED", obj("b", 9))
            return await super().list_pages(*args)

    running = Running()
    running.store.observe("ADDED", obj("a", 3))
    api = Slow(Listed(7, obj("a", 3)))
    await Reflector(api, SELECTION, ObjectParts.PARTIAL, running.store, running).list()
    assert running.store.object_keys() == [("", "b")]
