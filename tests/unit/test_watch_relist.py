"""A list of the fleet reads what is not known in its version, and forgets what is gone."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fake_api import FakeApi
from tests.support.fleet_objects import node, pod
from tonnage.catalog.load import load_catalog
from tonnage.kube.forwarding import ForwardingKubeApi
from tonnage.kube.kinds import NODES, PODS
from tonnage.kube.protocol import Kind, Listing, Object, Parts
from tonnage.reconcile.looks import Looks
from tonnage.runtime.fleet_state import FleetState
from tonnage.watch import lists
from tonnage.watch.lists import relist_fleet

CATALOG = load_catalog()


class Api(ForwardingKubeApi):
    """Remembers what was listed, and how; `meanwhile` happens when metadata was listed."""

    def __init__(self, behind: FakeApi) -> None:
        super().__init__(behind)
        self.asked: list[tuple[Parts, Kind]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def each(self, wanted: Listing, take: Callable[[Object], object]) -> None:
        self.asked.append((wanted.parts, wanted.kind))
        await super().each(wanted, take)
        if wanted.parts is Parts.METADATA:
            self.meanwhile()


class Operator:
    """The fleet as lists and events show it."""

    def __init__(self) -> None:
        self.cluster = FakeApi()
        self.api = Api(self.cluster)
        self.fleet = a_fleet()
        self.looks = Looks(lambda: datetime.now(UTC))

    async def relist(self) -> list[tuple[Parts, Kind]]:
        self.api.asked.clear()
        await relist_fleet(self.api, self.fleet, self.looks)
        return self.api.asked

    async def is_right(self) -> bool:
        other = a_fleet()
        await relist_fleet(self.cluster, other, self.looks)
        return self.fleet.view().snapshot() == other.view().snapshot()


def a_fleet() -> FleetState:
    return FleetState(CATALOG, lambda: None, lambda: None, lambda _: None)


OF_NODES, OF_PODS = (Parts.METADATA, NODES), (Parts.METADATA, PODS)
ALL_IS_KNOWN = [OF_NODES, OF_PODS]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "EVENTS_TAKE_SECONDS", 0.0)


@pytest.fixture
async def operator() -> Operator:
    found = Operator()
    for each in (node("a", "a"), node("b", "b")):
        found.cluster.put(NODES, each)
    for each in (pod("held"), pod("without", gpus=0), pod("finished", phase="Succeeded")):
        found.cluster.put(PODS, each)
    await found.relist()
    return found


async def test_the_first_list_reads_everything() -> None:
    operator = Operator()
    assert await operator.relist() == [(Parts.LEAN, NODES), (Parts.LEAN, PODS)]


async def test_what_is_known_is_not_read_again(operator: Operator) -> None:
    changes = operator.fleet.changes
    assert await operator.relist() == ALL_IS_KNOWN
    assert operator.fleet.changes == changes
    assert await operator.is_right()


async def test_what_is_gone_is_forgotten_without_reading_the_others(operator: Operator) -> None:
    operator.cluster.remove(NODES, None, "b")
    (held,) = (one for one in operator.cluster.objects(PODS) if "held" in one["metadata"]["name"])
    operator.cluster.remove(PODS, "chat", held["metadata"]["name"])
    assert await operator.relist() == ALL_IS_KNOWN
    assert [one.name for one in operator.fleet.view().snapshot().nodes] == ["a"]
    assert operator.fleet.view().snapshot().pods == ()


async def test_what_no_event_told_is_read(operator: Operator) -> None:
    operator.cluster.put(NODES, node("a", "a", gpus=4))
    operator.cluster.put(NODES, node("new", "new"))
    assert await operator.relist() == [OF_NODES, (Parts.LEAN, NODES), OF_PODS]
    assert await operator.is_right()
    assert await operator.relist() == ALL_IS_KNOWN


async def test_what_an_event_tells_meanwhile_is_not_read(operator: Operator) -> None:
    operator.cluster.put(NODES, node("a", "a", gpus=4))

    def tell() -> None:
        for one in operator.cluster.objects(NODES):
            operator.fleet.observe_node(one)

    operator.api.meanwhile = tell
    assert await operator.relist() == ALL_IS_KNOWN
    assert await operator.is_right()


async def test_what_becomes_of_a_finished_pod_is_not_read(operator: Operator) -> None:
    def write(name: str, phase: str, message: str) -> Object:
        status = {"phase": phase, "message": message}
        return operator.cluster.put(PODS, pod(name) | {"status": status})

    ended = write("held", "Failed", "it ran out of memory")
    operator.fleet.forget_pod(ended)  # the watch leaves out what has finished
    write("held", "Failed", "its Job has counted it")
    write("finished", "Succeeded", "its Job has counted it")
    assert await operator.relist() == ALL_IS_KNOWN
    assert await operator.relist() == ALL_IS_KNOWN
    assert operator.fleet.view().snapshot().pods == ()


async def test_objects_of_a_file_have_no_versions_and_are_read(operator: Operator) -> None:
    fleet = a_fleet()
    for _ in range(2):
        listed = fleet.begin_list(NODES)
        assert not listed.confirm(node())
        listed.take(node())
        listed.end()
        assert not fleet.knows_versions(NODES)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "list"]),
        st.sampled_from([NODES, PODS]),
        st.sampled_from("abc"),
        st.integers(0, 2),
        st.sampled_from(["told", "lost"]),
    ),
    max_size=12,
)


@given(STEPS)
async def test_after_a_list_the_fleet_is_what_there_is(
    steps: list[tuple[str, Kind, str, int, str]],
) -> None:
    operator = Operator()
    for what, kind, name, gpus, event in steps:
        if what == "list":
            await operator.relist()
        else:
            change(operator, kind, name, gpus if what == "put" else None, is_told=event == "told")
    await operator.relist()
    assert await operator.is_right()
    seen = {kind for kind in (NODES, PODS) if operator.cluster.objects(kind)}
    assert seen <= {kind for how, kind in await operator.relist() if how is Parts.METADATA}


def change(operator: Operator, kind: Kind, name: str, gpus: int | None, *, is_told: bool) -> None:
    cluster, fleet, where = operator.cluster, operator.fleet, None if kind == NODES else "chat"
    called = name if kind == NODES else f"pod-{name}"
    before = {one["metadata"]["name"]: one for one in cluster.objects(kind)}.get(called)
    if gpus is None:
        cluster.remove(kind, where, called)
        if before is not None and is_told:
            (fleet.forget_node if kind == NODES else fleet.forget_pod)(before)
        return
    body = node(name, name, gpus=gpus) if kind == NODES else pod(name, gpus=gpus)
    cluster.put(kind, body)
    if is_told:
        now = {one["metadata"]["name"]: one for one in cluster.objects(kind)}[called]
        (fleet.observe_node if kind == NODES else fleet.observe_pod)(now)
