"""Heartbeats wait in their socket while nobody works, and for nobody who begins to."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from aiohttp.test_utils import RawTestServer
from kubernetes.aio.client import ApiClient, Configuration

from tests.support.fake_clock import FakeClock
from tests.support.fleet_objects import node
from tests.support.scripted_server import Answer, serving
from tonnage.kube import gathering as module
from tonnage.kube import transport
from tonnage.kube.gathering import AT_WORK_SECONDS, MANY_BYTES, Gathering
from tonnage.kube.kinds import NODES, PODS
from tonnage.kube.protocol import Kind, TransientError
from tonnage.kube.transport import Transport
from tonnage.kube.watching import Selection, WatchApi

ARRIVES_SECONDS = 0.05
"""What is sent on loopback is there by then, and read where anybody reads."""


class Told:
    """A server that tells of nodes when a test says so, and what was heard of them."""

    def __init__(self, gathering: Gathering) -> None:
        self.gathering = gathering
        self.heard: list[str] = []
        self.all_heard = asyncio.Event()
        self.received = 0
        self._news: asyncio.Queue[list[str]] = asyncio.Queue()

    async def tell(self, *names: str) -> None:
        """All in one piece; what is sent has arrived."""
        self._news.put_nowait(list(names))
        await asyncio.sleep(ARRIVES_SECONDS)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while names := await self._news.get():
            await answer.write(b"".join(map(_line, names)))
        return answer

    async def follow(self, api: WatchApi, kind: Kind) -> None:
        async for event in api.events(Selection(kind), "5"):
            self.heard.append(event.object["metadata"]["name"])
            if self.heard[-1] == "b":
                self.all_heard.set()


def _line(name: str) -> bytes:
    found = node(name)
    found["metadata"]["resourceVersion"] = "6"
    return json.dumps({"type": "MODIFIED", "object": found}).encode() + b"\n"


@asynccontextmanager
async def following(
    monkeypatch: pytest.MonkeyPatch, gathering: Gathering, kind: Kind = NODES
) -> AsyncIterator[Told]:
    told, receive = Told(gathering), ResponseHandler.data_received

    def note(self: ResponseHandler, data: bytes) -> None:
        told.received += 1
        receive(self, data)

    monkeypatch.setattr(ResponseHandler, "data_received", note)
    async with (
        RawTestServer(told.answer) as server,
        ApiClient(Configuration(host=str(server.make_url("")))) as client,
        asyncio.timeout(20),
        asyncio.TaskGroup() as group,
    ):
        api = WatchApi(Transport(client, lambda *_: None), gathering)
        group.create_task(told.follow(api, kind))
        yield told
        await told.tell()
        await gathering.attend()


async def test_nobody_wakes_up_for_what_is_told_while_it_gathers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 60.0)
    async with following(monkeypatch, Gathering()) as told:
        await told.tell("a")
        assert told.heard == ["a"]
        before = told.received
        await told.tell("b")
        await told.tell("c")
        assert told.received == before
        await told.gathering.attend()
        assert told.heard == ["a", "b", "c"]


async def test_it_is_taken_in_at_last_though_nobody_works(monkeypatch: pytest.MonkeyPatch) -> None:
    async with following(monkeypatch, Gathering()) as told:
        await told.tell("a")
        await told.tell("b")
        await told.all_heard.wait()
        assert told.heard == ["a", "b"]


async def test_while_somebody_works_it_is_taken_in_as_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 60.0)
    clock = FakeClock()
    async with following(monkeypatch, Gathering(clock.monotonic)) as told:
        await told.gathering.attend()
        await told.tell("a")
        clock.advance(AT_WORK_SECONDS - 0.01)
        await told.tell("b")
        await told.tell("c")
        assert told.heard == ["a", "b", "c"]
        clock.advance(0.01)
        await told.tell("d")
        await told.tell("e")
        assert told.heard == ["a", "b", "c", "d"]


async def test_where_much_comes_it_goes_on_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 60.0)
    monkeypatch.setattr(module, "MANY_BYTES", MANY_BYTES // 1000)
    async with following(monkeypatch, Gathering()) as told:
        await told.tell("a")
        await told.tell("b")
        assert told.heard == ["a", "b"]


async def test_what_is_told_of_others_than_nodes_is_not_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 60.0)
    async with following(monkeypatch, Gathering(), PODS) as told:
        await told.tell("a")
        await told.tell("b")
        assert told.heard == ["a", "b"]


async def test_a_line_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LONGEST_LINE_BYTES", 1000)
    endless = Answer(body=b'{"type": "' + b"x" * 2000)
    async with (
        serving(endless) as server,
        ApiClient(Configuration(host=server.url)) as client,
    ):
        api = WatchApi(Transport(client, lambda *_: None), Gathering())
        with pytest.raises(TransientError, match="a line is too long"):
            await anext(api.events(Selection(NODES), "5"))
