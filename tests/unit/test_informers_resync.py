"""Which keys a resync reconciles, and how stores are compared with lists."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest

from tests.support.fake_api import FakeApi
from tests.support.fleet_objects import node
from tonnage import delays
from tonnage.informers.reflector import Reflector
from tonnage.informers.resync import ROUNDS, Resync, verify_all
from tonnage.informers.stores import Stores
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, NODES, SERVICES
from tonnage.kube.protocol import (
    ForbiddenError,
    Kind,
    Object,
    Parts,
    Selection,
    TransientError,
    WatchEvent,
)
from tonnage.kube.rights import Right

KEYS = [("chat", f"object-{number}") for number in range(60)]


class Fleet:
    """What a plan follows from."""

    def __init__(self) -> None:
        self.changes = 0
        self.resync = Resync(lambda: self.changes)

    def resync_all(self) -> list[tuple[str, str]]:
        """A resync after which every key that was due has been planned."""
        due = self.resync.due(KEYS)
        for key in due:
            self.resync.note_planned(key, self.resync.circumstances())
        return due


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_what_was_never_planned_is_due(fleet: Fleet) -> None:
    assert fleet.resync.due(reversed(KEYS)) == sorted(KEYS)


def test_each_key_is_due_once_in_all_rounds_where_nothing_changes(fleet: Fleet) -> None:
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


def test_a_plan_that_was_begun_before_the_change_does_not_count(fleet: Fleet) -> None:
    fleet.resync_all()
    before = fleet.resync.circumstances()
    fleet.changes += 1
    for key in KEYS:
        fleet.resync.note_planned(key, before)
    assert fleet.resync.due(KEYS) == sorted(KEYS)


def test_a_plan_that_failed_is_due_again(fleet: Fleet) -> None:
    """It is not noted as planned."""
    for _ in range(ROUNDS):
        assert fleet.resync.due(KEYS) == sorted(KEYS)


def test_what_is_known_of_a_key_is_forgotten_with_it(fleet: Fleet) -> None:
    fleet.resync_all()
    fleet.resync.due([])
    assert fleet.resync.due(KEYS) == sorted(KEYS)


# Comparing with lists


class Operator:
    """Stores of an API server whose watches are silent, unless a test tells of an event."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = FakeApi()
        self.stores = Stores()
        self.asked: list[tuple[Kind, Parts]] = []
        self.missed: dict[str, int] = {}
        self.waits: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.reflectors = [
            Reflector(self, Selection(kind), Parts.FULL, self.stores.of(kind), self)
            for kind in (NODES, SERVICES, INFERENCE_DEPLOYMENTS)
        ]
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.meanwhile()

    async def each(
        self, selection: Selection, parts: Parts, take: Callable[[Object], object]
    ) -> str:
        self.asked.append((selection.kind, parts))
        return await self.api.each(selection, parts, take)

    async def watch(
        self, selection: Selection, parts: Parts, since: str
    ) -> AsyncGenerator[WatchEvent, None]:
        raise AssertionError("nobody watches here")
        yield

    def event_seen(self, plural: str) -> None:
        raise AssertionError("nothing is told of here")

    def list_denied(self, selection: Selection) -> None: ...

    async def list(self) -> None:
        for each in self.reflectors:
            await each.list()
        self.asked.clear()

    async def verify(self) -> bool:
        self.asked.clear()
        self.missed.clear()
        self.waits.clear()
        return await verify_all(self.reflectors, self.missed.__setitem__)

    def is_true(self) -> bool:
        """Whether the stores have what there is, in its latest version."""
        for kind in (NODES, SERVICES, INFERENCE_DEPLOYMENTS):
            store, bodies = self.stores.of(kind), self.api.objects(kind)
            names = [body["metadata"]["name"] for body in bodies]
            if [name for _, name in store.places()] != names:
                return False
            if not all(map(store.has_version, bodies)):
                return False
        return True


OF_ALL = [(kind, Parts.METADATA) for kind in (NODES, SERVICES, INFERENCE_DEPLOYMENTS)]
NOTHING = {"nodes": 0, "services": 0, "inferencedeployments": 0}


@pytest.fixture
async def operator(monkeypatch: pytest.MonkeyPatch) -> Operator:
    found = Operator(monkeypatch)
    for name in ("a", "b"):
        found.api.put(NODES, bare(node(name)))
        found.api.put(SERVICES, {"metadata": {"name": name, "namespace": "chat"}, "spec": {}})
    await found.list()
    return found


def replace_b(api: FakeApi, name: str) -> None:
    """The node b is gone, and another one is there."""
    api.remove(NODES, None, "b")
    api.put(NODES, bare(node(name)))


def bare(body: Object) -> Object:
    """Without a uid, which the API server gives."""
    rest = {name: value for name, value in body["metadata"].items() if name != "uid"}
    return {**body, "metadata": rest}


async def test_where_all_is_known_only_metadata_is_read_and_nobody_waits(
    operator: Operator,
) -> None:
    assert await operator.verify()
    assert (operator.asked, operator.waits, operator.missed) == (OF_ALL, [], NOTHING)


SILENCES: dict[str, tuple[Callable[[FakeApi], object], int]] = {
    "a new node": (lambda api: api.put(NODES, bare(node("c"))), 1),
    "a changed node": (lambda api: api.put(NODES, bare(node("a", gpus=4))), 1),
    "two changed nodes": (
        lambda api: [api.put(NODES, bare(node(name, gpus=4))) for name in ("a", "b")],
        2,
    ),
    "a node that is gone": (lambda api: api.remove(NODES, None, "b"), 1),
    "a node made anew": (
        lambda api: replace_b(api, "b"),
        1,
    ),
    "one gone and one new": (
        lambda api: replace_b(api, "c"),
        2,
    ),
}


@pytest.mark.parametrize(("change", "want"), SILENCES.values(), ids=SILENCES)
async def test_a_silent_watch_is_counted_and_mended(
    operator: Operator, change: Callable[[FakeApi], object], want: int
) -> None:
    change(operator.api)
    assert not operator.is_true()
    assert await operator.verify()
    assert operator.missed == {**NOTHING, "nodes": want}
    assert operator.is_true()
    assert await operator.verify()
    assert operator.missed == NOTHING


async def test_all_is_read_again_only_of_a_kind_that_has_something_new(
    operator: Operator,
) -> None:
    operator.api.put(NODES, bare(node("a", gpus=4)))
    operator.api.remove(SERVICES, "chat", "b")
    await operator.verify()
    read = [(NODES, Parts.METADATA), (NODES, Parts.FULL), *OF_ALL[1:]]
    assert operator.asked == read
    assert operator.is_true()


@pytest.mark.parametrize(("change", "_"), SILENCES.values(), ids=SILENCES)
async def test_events_that_come_within_the_delay_are_not_counted(
    operator: Operator, change: Callable[[FakeApi], object], _: int
) -> None:
    events: list[tuple[Kind, str, Object]] = []
    operator.api.listeners.append(lambda *event: events.append(event))
    change(operator.api)

    def bring() -> None:
        for kind, event_type, body in events:
            operator.stores.of(kind).observe(event_type, body)
        events.clear()

    operator.meanwhile = bring
    await operator.verify()
    assert operator.waits == [delays.LIST_EVENT_DUE]
    assert (operator.asked, operator.missed) == (OF_ALL, NOTHING)
    assert operator.is_true()


async def test_what_the_operator_has_just_written_is_no_ghost(operator: Operator) -> None:
    """Its answer may be newer than the list that it is compared with."""
    listed = operator.api.each

    async def older(selection: Selection, parts: Parts, take: Callable[[Object], object]) -> str:
        version = await listed(selection, parts, take)
        if selection.kind == SERVICES:
            new = {"metadata": {"name": "c", "namespace": "chat"}, "spec": {}}
            operator.stores.put_written(SERVICES, await operator.api.apply(SERVICES, new))
        return version

    operator.api.each = older  # type: ignore[method-assign] # a list that lags behind
    await operator.verify()
    assert operator.missed == NOTHING
    assert operator.stores.lookup(SERVICES, "chat", "c") is not None


async def test_a_kind_that_cannot_be_listed_keeps_no_other_from_being_compared(
    operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    operator.api.put(NODES, bare(node("c")))
    denied = ForbiddenError("403", Right("list", "", "services", None))
    for error in (denied, TransientError("503")):
        operator.api.fail_next("list", error, kind=SERVICES)
        assert not await operator.verify()
        assert "store of services not verified" in caplog.text
        assert "services" not in operator.missed
        assert len(operator.stores.services) == 2, "what was known is kept"
    assert await operator.verify()
    assert operator.is_true()
