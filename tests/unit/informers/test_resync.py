"""Which keys a resync reconciles, and how it compares stores with lists."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest

from tests.support.api_server.fake_api import FakeApi
from tests.support.fleets.objects import node
from tonnage import delays
from tonnage.informers.reflector import Reflector
from tonnage.informers.resync import ROUNDS, Resync, verify_all
from tonnage.informers.stores import Stores
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, NODES, SERVICES
from tonnage.kube.protocol import (
    ForbiddenError,
    Kind,
    Object,
    ObjectParts,
    Selection,
    TransientError,
    WatchEvent,
)
from tonnage.kube.rights import Right

KEYS = [("chat", f"object-{number}") for number in range(60)]


class Fleet:
    """The inputs of a plan, as a count of their changes."""

    def __init__(self) -> None:
        self.changes = 0
        self.resync = Resync(lambda: self.changes)

    def resync_all(self) -> list[tuple[str, str]]:
        """A resync after which the operator has planned every key that was due."""
        due = self.resync.due(KEYS)
        for key in due:
            self.resync.note_planned(key, self.resync.circumstances())
        return due


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_a_key_that_was_never_planned_is_due(fleet: Fleet) -> None:
    assert fleet.resync.due(reversed(KEYS)) == sorted(KEYS)


def test_each_key_is_due_in_one_round_where_nothing_changes(fleet: Fleet) -> None:
    fleet.resync_all()
    rounds = [fleet.resync_all() for _ in range(ROUNDS)]
    assert sorted(key for keys in rounds for key in keys) == sorted(KEYS)
    assert max(map(len, rounds)) < len(KEYS) / 2, "the rounds share the work"
    assert [fleet.resync_all() for _ in range(ROUNDS)] == rounds


def test_every_key_is_due_once_when_the_fleet_has_changed(fleet: Fleet) -> None:
    fleet.resync_all()
    fleet.changes += 1
    assert fleet.resync_all() == sorted(KEYS)
    assert len(fleet.resync_all()) < len(KEYS)


def test_a_key_that_was_planned_after_the_change_is_not_due(fleet: Fleet) -> None:
    fleet.resync_all()
    fleet.changes += 1
    planned = KEYS[0]
    rounds = []
    for _ in range(ROUNDS):
        fleet.resync.note_planned(planned, fleet.resync.circumstances())
        rounds.append(planned in fleet.resync.due(KEYS))
    assert rounds.count(True) == 1, "in its own round"


def test_a_plan_from_before_the_change_does_not_count(fleet: Fleet) -> None:
    fleet.resync_all()
    before = fleet.resync.circumstances()
    fleet.changes += 1
    for key in KEYS:
        fleet.resync.note_planned(key, before)
    assert fleet.resync.due(KEYS) == sorted(KEYS)


def test_a_plan_that_failed_is_due_again(fleet: Fleet) -> None:
    """The operator does not record it as planned."""
    for _ in range(ROUNDS):
        assert fleet.resync.due(KEYS) == sorted(KEYS)


def test_a_key_that_is_gone_is_forgotten(fleet: Fleet) -> None:
    fleet.resync_all()
    fleet.resync.due([])
    assert fleet.resync.due(KEYS) == sorted(KEYS)


# Comparing with lists


class Operator:
    """Stores of an API server whose watches are silent, unless a test delivers an event."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = FakeApi()
        self.stores = Stores()
        self.lists: list[tuple[Kind, ObjectParts]] = []
        self.missed: dict[str, int] = {}
        self.waits: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.reflectors = [
            Reflector(self, Selection(kind), ObjectParts.FULL, self.stores.store_for(kind), self)
            for kind in (NODES, SERVICES, INFERENCE_DEPLOYMENTS)
        ]
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.meanwhile()

    async def list_pages(
        self, selection: Selection, parts: ObjectParts, take: Callable[[Object], object]
    ) -> str:
        self.lists.append((selection.kind, parts))
        return await self.api.list_pages(selection, parts, take)

    async def watch(
        self, selection: Selection, parts: ObjectParts, since: str, batch_seconds: float = 0.0
    ) -> AsyncGenerator[WatchEvent, None]:
        raise AssertionError("this test watches nothing")
        yield

    def on_event(self, plural: str) -> None:
        raise AssertionError("this test delivers no event")

    def on_availability(self, selection: Selection) -> None: ...

    async def list(self) -> None:
        for each in self.reflectors:
            await each.list()
        self.lists.clear()

    async def verify(self) -> bool:
        self.lists.clear()
        self.missed.clear()
        self.waits.clear()
        return await verify_all(self.reflectors, self.missed.__setitem__)

    def is_current(self) -> bool:
        """Whether the stores have all objects, in their latest versions."""
        for kind in (NODES, SERVICES, INFERENCE_DEPLOYMENTS):
            store, bodies = self.stores.store_for(kind), self.api.objects(kind)
            names = [body["metadata"]["name"] for body in bodies]
            if [name for _, name in store.object_keys()] != names:
                return False
            if not all(map(store.has_version, bodies)):
                return False
        return True


OF_ALL = [(kind, ObjectParts.METADATA) for kind in (NODES, SERVICES, INFERENCE_DEPLOYMENTS)]
NOTHING = {"nodes": 0, "services": 0, "inferencedeployments": 0}


@pytest.fixture
async def operator(monkeypatch: pytest.MonkeyPatch) -> Operator:
    operator = Operator(monkeypatch)
    for name in ("a", "b"):
        operator.api.put(NODES, bare(node(name)))
        operator.api.put(SERVICES, {"metadata": {"name": name, "namespace": "chat"}, "spec": {}})
    await operator.list()
    return operator


def replace_b(api: FakeApi, name: str) -> None:
    """Remove the node b, and add another one."""
    api.remove(NODES, None, "b")
    api.put(NODES, bare(node(name)))


def bare(body: Object) -> Object:
    """Without a uid, which the API server sets."""
    rest = {name: value for name, value in body["metadata"].items() if name != "uid"}
    return {**body, "metadata": rest}


async def test_verify_reads_only_metadata_and_waits_for_nothing_where_stores_are_current(
    operator: Operator,
) -> None:
    assert await operator.verify()
    assert (operator.lists, operator.waits, operator.missed) == (OF_ALL, [], NOTHING)


SILENCES: dict[str, tuple[Callable[[FakeApi], object], int]] = {
    "a new node": (lambda api: api.put(NODES, bare(node("c"))), 1),
    "a changed node": (lambda api: api.put(NODES, bare(node("a", gpus=4))), 1),
    "two changed nodes": (
        lambda api: [api.put(NODES, bare(node(name, gpus=4))) for name in ("a", "b")],
        2,
    ),
    "a node that is gone": (lambda api: api.remove(NODES, None, "b"), 1),
    "a recreated node": (
        lambda api: replace_b(api, "b"),
        1,
    ),
    "one gone and one new": (
        lambda api: replace_b(api, "c"),
        2,
    ),
}


@pytest.mark.parametrize(("change", "want"), SILENCES.values(), ids=SILENCES)
async def test_verify_counts_and_repairs_what_a_silent_watch_missed(
    operator: Operator, change: Callable[[FakeApi], object], want: int
) -> None:
    change(operator.api)
    assert not operator.is_current()
    assert await operator.verify()
    assert operator.missed == {**NOTHING, "nodes": want}
    assert operator.is_current()
    assert await operator.verify()
    assert operator.missed == NOTHING


async def test_verify_lists_full_objects_only_of_a_kind_with_new_ones(
    operator: Operator,
) -> None:
    operator.api.put(NODES, bare(node("a", gpus=4)))
    operator.api.remove(SERVICES, "chat", "b")
    await operator.verify()
    lists = [(NODES, ObjectParts.METADATA), (NODES, ObjectParts.FULL), *OF_ALL[1:]]
    assert operator.lists == lists
    assert operator.is_current()


@pytest.mark.parametrize(("change", "_"), SILENCES.values(), ids=SILENCES)
async def test_events_that_arrive_within_the_delay_are_not_counted(
    operator: Operator, change: Callable[[FakeApi], object], _: int
) -> None:
    events: list[tuple[Kind, str, Object]] = []
    operator.api.listeners.append(lambda *event: events.append(event))
    change(operator.api)

    def deliver() -> None:
        for kind, event_type, body in events:
            operator.stores.store_for(kind).observe(event_type, body)
        events.clear()

    operator.meanwhile = deliver
    await operator.verify()
    assert operator.waits == [delays.LIST_EVENT_DUE]
    assert (operator.lists, operator.missed) == (OF_ALL, NOTHING)
    assert operator.is_current()


async def test_verify_removes_no_object_that_the_operator_has_just_written(
    operator: Operator,
) -> None:
    """The answer to the write may be newer than the list."""
    listed = operator.api.list_pages

    async def older(
        selection: Selection, parts: ObjectParts, take: Callable[[Object], object]
    ) -> str:
        version = await listed(selection, parts, take)
        if selection.kind == SERVICES:
            new = {"metadata": {"name": "c", "namespace": "chat"}, "spec": {}}
            operator.stores.put_written(SERVICES, await operator.api.apply(SERVICES, new))
        return version

    operator.api.list_pages = older  # type: ignore[method-assign] # a list that lags behind
    await operator.verify()
    assert operator.missed == NOTHING
    assert operator.stores.lookup(SERVICES, "chat", "c") is not None


async def test_a_kind_that_cannot_be_listed_does_not_stop_the_others(
    operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    operator.api.put(NODES, bare(node("c")))
    denied = ForbiddenError("403", Right("list", "", "services", None))
    for error in (denied, TransientError("503")):
        operator.api.fail_next("list", error, kind=SERVICES)
        assert not await operator.verify()
        assert "failed to verify store of services" in caplog.text
        assert "services" not in operator.missed
        assert len(operator.stores.services) == 2, "the store keeps its objects"
    assert await operator.verify()
    assert operator.is_current()
