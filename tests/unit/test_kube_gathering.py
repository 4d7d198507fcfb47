"""Heartbeats wait in their socket while nobody works, and for nobody who begins to."""

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from tests.support.fake_clock import FakeClock
from tests.support.scripted_server import Answer, serving
from tests.support.told_of_nodes import following
from tonnage.kube import gathering as module
from tonnage.kube import transport
from tonnage.kube.gathering import AT_WORK_SECONDS, MANY_BYTES, Gathering
from tonnage.kube.kinds import NODES, PODS
from tonnage.kube.protocol import TransientError
from tonnage.kube.transport import Transport
from tonnage.kube.watching import Selection, WatchApi


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
