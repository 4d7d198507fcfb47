"""A reflector lists, then watches; what it does when either fails."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tenacity import RetryCallState

from tests.support.fleet_objects import node
from tonnage.informers import reflector as module
from tonnage.informers.reflector import EVENTS_PER_STEP, Reflector
from tonnage.informers.store import Change, Store
from tonnage.kube.kinds import NODES
from tonnage.kube.protocol import (
    ApiError,
    ExpiredError,
    ForbiddenError,
    Object,
    Parts,
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


class Shown:
    """What a list shows, and its version."""

    def __init__(self, version: int, *objects: Object) -> None:
        self.version, self.objects = version, objects


Answer = Shown | ApiError | Sequence[WatchEvent | ApiError]
"""To a list: what it shows, or an error. To a watch: its events, and the error that ends it."""


class Script:
    """Answers in order; then it is silent."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.is_over = asyncio.Event()

    def check(self, selection: Selection, parts: Parts) -> None:
        assert (selection, parts) == (SELECTION, Parts.PARTIAL)

    async def each(
        self, selection: Selection, parts: Parts, take: Callable[[Object], object]
    ) -> str:
        self.check(selection, parts)
        answer = await self._next("list")
        if isinstance(answer, ApiError):
            raise answer
        assert isinstance(answer, Shown), f"a list was asked for, and the script has {answer}"
        for body in answer.objects:
            take(body)
        return str(answer.version)

    async def watch(
        self, selection: Selection, parts: Parts, since: str
    ) -> AsyncGenerator[WatchEvent, None]:
        self.check(selection, parts)
        answer = await self._next(f"watch {since}")
        if isinstance(answer, ApiError):
            raise answer
        assert isinstance(answer, Sequence), "a watch was asked for, and the script has a list"
        for each in answer:
            if isinstance(each, ApiError):
                raise each
            yield each

    async def _next(self, question: str) -> Answer:
        self.asked.append(question)
        if not self.answers:
            self.is_over.set()
            await asyncio.Event().wait()
        return self.answers.pop(0)


class Followed:
    """A reflector, what it told of, and the delays before it tried again."""

    def __init__(self, *answers: Answer) -> None:
        self.api = Script(*answers)
        self.changes: list[str] = []
        self.events = 0
        self.denials: list[Right | None] = []
        self.store: Store[str] = Store(
            lambda body: body["metadata"]["resourceVersion"], on_change=self._change
        )
        self.reflector = Reflector(self.api, SELECTION, Parts.PARTIAL, self.store, self)

    def _change(self, change: Change[str]) -> None:
        self.changes.append(f"{change.place[1]} {change.before} -> {change.after}")

    def event_seen(self, plural: str) -> None:
        assert plural == "nodes"
        self.events += 1

    def list_denied(self, selection: Selection) -> None:
        assert selection == SELECTION
        self.denials.append(self.reflector.denied)


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays that were asked for; none is waited for."""
    found: list[float] = []
    wait = module._wait

    def note(state: RetryCallState) -> float:
        found.append(wait(state))
        return 0.0

    monkeypatch.setattr(module, "_wait", note)
    return found


@pytest.fixture(autouse=True)
def _impatient(delays: list[float]) -> None:
    """No test waits."""


@asynccontextmanager
async def following(*answers: Answer) -> AsyncIterator[Followed]:
    """A reflector that runs, once it has all these answers and asks for one more."""
    followed = Followed(*answers)
    task = asyncio.create_task(followed.reflector.run())
    over = asyncio.create_task(followed.api.is_over.wait())
    async with asyncio.timeout(10):
        await asyncio.wait({task, over}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        over.cancel()
        task.result()
    yield followed
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


# List, then watch


async def test_it_lists_and_watches_from_the_version_of_the_list() -> None:
    async with following(Shown(5, obj("a", 3)), [event("ADDED", "b", 6)]) as followed:
        assert followed.api.asked[:2] == ["list", "watch 5"]
        assert followed.changes == ["a None -> 3", "b None -> 6"]
        assert followed.events == 1, "what a list shows is no event"
        assert followed.reflector.is_listed


async def test_a_watch_that_ended_goes_on_where_it_was() -> None:
    first = [event("MODIFIED", "a", 6), event("DELETED", "a", 7)]
    async with following(Shown(5, obj("a", 3)), first, [event("ADDED", "b", 8)]) as followed:
        assert followed.api.asked == ["list", "watch 5", "watch 7", "watch 8"]
        assert followed.changes == ["a None -> 3", "a 3 -> 6", "a 6 -> None", "b None -> 8"]


async def test_a_bookmark_moves_the_version_and_is_no_change() -> None:
    async with following(Shown(5), [bookmark(9)], [bookmark(12)]) as followed:
        assert followed.api.asked == ["list", "watch 5", "watch 9", "watch 12"]
        assert (followed.changes, followed.events) == ([], 0)


async def test_a_type_of_event_that_is_unknown_is_passed_over() -> None:
    async with following(Shown(5), [event("NEWS", "a", 6)]) as followed:
        assert (followed.changes, followed.api.asked[-1]) == ([], "watch 6")


async def test_a_list_that_was_made_before_is_not_made_again() -> None:
    followed = Followed(Shown(5, obj("a", 3)))
    await followed.reflector.list()
    task = asyncio.create_task(followed.reflector.run())
    await followed.api.is_over.wait()
    assert followed.api.asked == ["list", "watch 5"]
    task.cancel()


# Too old


EXPIRED = ExpiredError("410: too old resource version")


@pytest.mark.parametrize(
    "watch", [EXPIRED, [EXPIRED], [event("MODIFIED", "a", 6), EXPIRED]], ids=type
)
async def test_where_its_version_is_too_old_all_is_listed_again(watch: Any) -> None:
    answers = Shown(5, obj("a", 3), obj("ghost", 4)), watch, Shown(50, obj("a", 7))
    async with following(*answers) as followed:
        assert followed.api.asked == ["list", "watch 5", "list", "watch 50"]
        assert "ghost 4 -> None" in followed.changes
        assert followed.store.get(None, "a") == "7"


async def test_a_server_to_which_each_version_is_too_old_is_asked_ever_less_often(
    delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_backoff", lambda state: float(state.attempt_number))
    answers: list[Answer] = [Shown(5), EXPIRED] * 4
    async with following(*answers) as followed:
        assert followed.api.asked == ["list", "watch 5"] * 4 + ["list"]
        assert delays == [1.0, 2.0, 3.0, 4.0]


async def test_a_list_that_took_too_long_is_begun_again() -> None:
    async with following(EXPIRED, EXPIRED, Shown(5)) as followed:
        assert followed.api.asked == ["list", "list", "list", "watch 5"]


# Errors


FAILURES: dict[str, Answer] = {
    "an error as the answer": TransientError("503"),
    "an error before the first event": [TransientError("500")],
    "an end before the first event": [],
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_watch_that_fails_is_tried_again_later_from_where_it_was(
    failure: Answer, delays: list[float]
) -> None:
    async with following(Shown(5), failure, failure, [event("ADDED", "a", 6)]) as followed:
        assert followed.api.asked == ["list", "watch 5", "watch 5", "watch 5", "watch 6"]
        assert len(delays) == 2


async def test_a_watch_that_brought_something_is_opened_again_at_once(
    delays: list[float],
) -> None:
    broken: Answer = [event("ADDED", "a", 6), TransientError("connection reset")]
    async with following(Shown(5), broken, [bookmark(8)]) as followed:
        assert followed.api.asked == ["list", "watch 5", "watch 6", "watch 8"]
        assert delays == []


async def test_a_list_that_fails_is_tried_until_it_succeeds(delays: list[float]) -> None:
    async with following(TransientError("503"), TransientError("503"), Shown(5)) as followed:
        assert followed.api.asked == ["list", "list", "list", "watch 5"]
        assert len(delays) == 2


async def test_it_waits_longer_from_error_to_error_and_briefly_after_a_success(
    delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_backoff", lambda state: float(state.attempt_number))
    error = TransientError("503")
    async with following(Shown(5), error, error, error, [bookmark(6)], error):
        assert delays == [1.0, 2.0, 3.0, 1.0]


async def test_it_waits_as_long_as_the_server_asks(
    delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_backoff", lambda _: 1.0)
    asked = [TransientError("429", 7.0), TransientError("429", 0.1), ForbiddenError("403")]
    async with following(*asked, Shown(5)):
        assert delays == [7.0, 1.0, 1.0]


async def test_an_error_of_the_program_ends_it() -> None:
    class Broken(Script):
        async def each(self, *_: Any) -> str:
            raise KeyError("spec")

    followed = Followed()
    reflector = Reflector(Broken(), SELECTION, Parts.PARTIAL, followed.store, followed)
    with pytest.raises(KeyError):
        await reflector.run()


# Denied


async def test_a_list_that_is_denied_is_reported_until_it_is_not() -> None:
    denied = ForbiddenError("403", LIST_RIGHT)
    async with following(denied, denied, Shown(5, obj("a", 3))) as followed:
        assert followed.denials == [LIST_RIGHT, None]
        assert followed.changes == ["a None -> 3"]


async def test_what_was_known_before_a_denial_is_kept() -> None:
    answers = Shown(5, obj("a", 3)), EXPIRED, ForbiddenError("403", LIST_RIGHT)
    async with following(*answers) as followed:
        assert followed.reflector.denied == LIST_RIGHT
        assert followed.store.get(None, "a") == "3"


async def test_where_its_watch_is_denied_it_lives_on_lists() -> None:
    denied = ForbiddenError("403", WATCH_RIGHT)
    lists = Shown(5, obj("a", 3)), Shown(7, obj("a", 6)), Shown(9)
    answers: list[Answer] = [lists[0], denied, lists[1], [denied], lists[2]]
    async with following(*answers) as followed:
        assert followed.api.asked == ["list", "watch 5", "list", "watch 7", "list", "watch 9"]
        assert followed.changes == ["a None -> 3", "a 3 -> 6", "a 6 -> None"]
        assert followed.denials == [], "what is listed is known"


async def test_a_denied_list_is_no_list() -> None:
    followed = Followed(ForbiddenError("403", LIST_RIGHT))
    with pytest.raises(ForbiddenError):
        await followed.reflector.list()
    assert not followed.reflector.is_listed


# Others


async def test_other_tasks_run_while_many_events_come() -> None:
    flood: Answer = [event("MODIFIED", "a", 6 + number) for number in range(10 * EVENTS_PER_STEP)]
    followed = Followed(Shown(5), flood)
    task = asyncio.create_task(followed.reflector.run())
    counts = set()
    while not followed.api.is_over.is_set():
        counts.add(followed.events)
        await asyncio.sleep(0)
    task.cancel()
    assert len(counts) >= 10


async def test_an_event_that_comes_while_a_list_is_read_is_not_undone_by_it() -> None:
    """As of a kind whose events kopf brings."""

    class Slow(Script):
        async def each(self, *args: Any) -> str:
            followed.store.observe("DELETED", obj("a", 8))
            followed.store.observe("ADDED", obj("b", 9))
            return await super().each(*args)

    followed = Followed()
    followed.store.observe("ADDED", obj("a", 3))
    api = Slow(Shown(7, obj("a", 3)))
    await Reflector(api, SELECTION, Parts.PARTIAL, followed.store, followed).list()
    assert followed.store.places() == [("", "b")]
