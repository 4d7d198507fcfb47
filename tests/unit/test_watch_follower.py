"""Our own watch, over HTTP: from which version, until when, and what it does when it fails."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from kubernetes.aio.client import ApiClient, Configuration

from tests.support.fleet_objects import node
from tests.support.scripted_server import Answer, ScriptedServer, serving
from tonnage.kube import watching
from tonnage.kube.gathering import Gathering
from tonnage.kube.kinds import NODES
from tonnage.kube.lean import Event, LeanReader
from tonnage.kube.protocol import Kind, Object, TransientError
from tonnage.kube.rights import RightsBook
from tonnage.kube.transport import Request, Transport
from tonnage.kube.watching import Selection, WatchApi
from tonnage.watch import follower as module
from tonnage.watch.follower import TURN, Follower


@dataclass
class Heard:
    """What the follower told, and what it knows."""

    server: ScriptedServer
    rights: RightsBook
    told: list[tuple[str | None, str]] = field(default_factory=list)
    anew: list[str] = field(default_factory=list)
    asked_when_anew: int = 0

    def route(self, kind: Kind, event_type: str | None, obj: Object) -> None:
        assert kind == NODES
        self.told.append((event_type, obj["metadata"]["name"]))

    def begun_anew(self, plural: str) -> None:
        self.anew.append(plural)
        self.asked_when_anew = len(self.server.asked)

    @property
    def versions(self) -> list[str | None]:
        """From which each watch was to begin."""
        return [each.query.get("resourceVersion") for each in self.watches]

    @property
    def watches(self) -> list[Any]:
        return [each for each in self.server.asked if "watch" in each.query]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_backoff", lambda _: 0.001)


def listed(version: str) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": version}, "items": []})


def event(name: str, version: str, event_type: str = "MODIFIED") -> Object:
    found = node(name)
    found["metadata"]["resourceVersion"] = version
    return {"type": event_type, "object": found}


def bookmark(version: str) -> Object:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}


def failure(code: int) -> Object:
    status = {"kind": "Status", "status": "Failure", "code": code, "message": "by the test"}
    return {"type": "ERROR", "object": status}


def stream(*events: Object) -> Answer:
    return Answer(body=b"".join(json.dumps(each).encode() + b"\n" for each in events))


SILENT = Answer(silent=True)


@asynccontextmanager
async def following(*answers: Answer) -> AsyncIterator[Heard]:
    """A follower of nodes that was begun, until it has asked once more than there are answers."""
    async with (
        serving(*answers, SILENT) as server,
        ApiClient(Configuration(host=server.url)) as client,
    ):
        heard = Heard(server, RightsBook())
        api = WatchApi(Transport(client, lambda *_: None, heard.rights), Gathering())
        follower = Follower(api, Selection(NODES), heard.route, heard.begun_anew)
        await follower.begin()
        task = asyncio.create_task(follower.follow())
        async with asyncio.timeout(10):
            while len(server.asked) <= len(answers):  # noqa: ASYNC110 - the server sets no event
                await asyncio.sleep(0.005)
        yield heard
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_it_watches_from_the_version_that_it_was_begun_with() -> None:
    async with following(listed("5"), stream(event("a", "6", "ADDED"))) as heard:
        assert heard.told == [("ADDED", "a")]
        first, watch = heard.server.asked[:2]
        assert (first.path, first.query) == ("/api/v1/nodes", {"limit": "1"})
        assert watch.query == {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": "5",
            "timeoutSeconds": "300",
        }


async def test_a_watch_that_ended_goes_on_where_it_was() -> None:
    answers = stream(event("a", "6"), event("b", "7", "DELETED")), stream(bookmark("9"))
    async with following(listed("5"), *answers) as heard:
        assert heard.told == [("MODIFIED", "a"), ("DELETED", "b")]
        assert heard.versions == ["5", "7", "9"]
        assert heard.anew == []


GONE = {
    "told in the stream": stream(event("a", "6"), failure(410)),
    "told at once": stream(failure(410)),
    "told as an answer": Answer(410, {"kind": "Status", "code": 410}),
}


@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
async def test_where_its_version_is_too_old_all_is_listed_again(gone: Answer) -> None:
    async with following(listed("5"), gone, listed("50")) as heard:
        assert heard.anew == ["nodes"]
        assert heard.versions == ["5", "50"]
        # What is listed because of it is newer than the version.
        assert heard.asked_when_anew >= 3


FAILURES = {
    "an error in the stream": stream(failure(500)),
    "an unavailable server": Answer(503, {"kind": "Status"}),
    "too many requests": Answer(429, {"kind": "Status"}, {"Retry-After": "0"}),
    "no permission": Answer(403, {"kind": "Status", "message": "forbidden"}),
    "a stream that ends at once": stream(),
    "a stream of something else": Answer(body=b"<html></html>\n"),
}


@pytest.mark.parametrize("failed", FAILURES.values(), ids=FAILURES)
async def test_a_watch_that_fails_is_tried_again_from_where_it_was(failed: Answer) -> None:
    async with following(listed("5"), failed, failed, stream(event("a", "6"))) as heard:
        assert heard.told == [("MODIFIED", "a")]
        assert heard.versions == ["5", "5", "5", "6"]
        assert heard.anew == []


async def test_a_version_is_asked_for_until_there_is_one() -> None:
    answers = stream(failure(410)), Answer(500, {}), Answer(body={"items": []}), listed("50")
    async with following(listed("5"), *answers) as heard:
        assert heard.versions == ["5", "50"]
        assert heard.anew == ["nodes"]


async def test_a_watch_that_is_silent_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "SILENT_SECONDS", 0.05)
    async with following(listed("5"), SILENT) as heard:
        assert heard.versions == ["5", "5"]


async def test_a_watch_that_falls_silent_has_failed() -> None:
    async def begin_and_say_no_more(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(json.dumps(event("a", "6")).encode() + b"\n")
        await asyncio.Event().wait()
        return answer

    async with (
        RawTestServer(begin_and_say_no_more) as server,
        ApiClient(Configuration(host=str(server.make_url("")))) as client,
        asyncio.timeout(10),
    ):
        request = Request("watch", "GET", NODES, None, None)
        lines = Transport(client, lambda *_: None).lines(request, 0.2)
        told = LeanReader(NODES).event(await anext(lines))
        with pytest.raises(TransientError, match="watch Node"):
            await anext(lines)
    assert told.object["metadata"]["name"] == "a"


async def test_what_it_may_not_watch_is_told() -> None:
    message = (
        'nodes is forbidden: User "tonnage" cannot watch resource "nodes" in API group ""'
        " at the cluster scope"
    )
    denied = Answer(403, {"kind": "Status", "message": message})
    async with following(listed("5"), denied) as heard:
        assert heard.rights.missing() == {("watch", "nodes"): True}
    async with following(listed("5"), denied, stream(event("a", "6"))) as heard:
        assert heard.rights.missing() == {("watch", "nodes"): False}


async def test_the_servers_wish_to_be_left_alone_is_heeded() -> None:
    class State:
        outcome: Any

    state = State()
    state.outcome = asyncio.get_running_loop().create_future()
    state.outcome.set_exception(TransientError("busy", 7.0))
    assert module._wait(state) == 7.0  # type: ignore[arg-type] # only its outcome is looked at


async def test_others_have_their_turn_while_much_is_told() -> None:
    class Flood:
        async def version(self, _: Selection) -> str:
            return "1"

        async def events(self, _: Selection, since: str) -> AsyncGenerator[Event, None]:
            if since == "1":
                for number in range(10 * TURN):
                    yield Event("MODIFIED", event(f"n-{number}", "2")["object"])
            await asyncio.Event().wait()

    counts: list[int] = []
    told: list[str] = []
    follower = Follower(
        Flood(),  # type: ignore[arg-type] # as much of it as is used
        Selection(NODES),
        lambda _, __, obj: told.append(obj["metadata"]["name"]),
        lambda _: None,
    )
    await follower.begin()
    task = asyncio.create_task(follower.follow())
    while len(told) < 10 * TURN:
        counts.append(len(told))
        await asyncio.sleep(0)
    task.cancel()
    assert len(counts) >= 10
