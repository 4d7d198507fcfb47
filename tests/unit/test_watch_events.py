"""Events on their way: to the queue, to the fleet, and what lists put right."""

import asyncio

import pytest

from tests.support.fake_api import FakeApi
from tests.support.fleet_objects import node, pod, pool
from tonnage.catalog.load import load_catalog
from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import ACCELERATOR_POOLS, INFERENCE_DEPLOYMENTS, NODES, PODS
from tonnage.kube.protocol import KindMissingError, NotLeadingError, Object, TransientError
from tonnage.kube.throttle import TokenBucket
from tonnage.reconcile.key import Key
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.workqueue import WorkQueue
from tonnage.watch.lists import relist_fleet, resync, seen_specs
from tonnage.watch.router import EventRouter
from tonnage.watch.start_up import until_it_works


class Bench:
    """A router with its fleet and the keys that it woke."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.seen: list[str] = []
        self.fleet = FleetState(load_catalog(), lambda: None, lambda: None)
        self.specs = seen_specs(self.keys.append)
        self.relist = asyncio.Event()
        self.router = EventRouter(self.keys.append, self.fleet, self.specs, self.relist, self)

    def event_seen(self, plural: str) -> None:
        self.seen.append(plural)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("event_type", [None, "ADDED", "MODIFIED", "DELETED"])
def test_every_event_of_an_inferencedeployment_wakes_it(
    bench: Bench, event_type: str | None
) -> None:
    body = {"metadata": {"name": "llama", "namespace": "chat", "uid": "u"}}
    bench.router.route(INFERENCE_DEPLOYMENTS, event_type, body)
    assert (bench.keys, bench.seen) == ([Key("chat", "llama")], ["inferencedeployments"])
    assert not bench.relist.is_set()


def test_fleet_follows_its_events(bench: Bench) -> None:
    bench.router.route(NODES, "ADDED", node())
    bench.router.route(PODS, "MODIFIED", pod())
    bench.router.route(ACCELERATOR_POOLS, "ADDED", pool())
    snapshot = bench.fleet.view().snapshot()
    assert [len(part) for part in (snapshot.nodes, snapshot.pods, snapshot.declared_pools)] == [
        1,
        1,
        1,
    ]
    bench.router.route(NODES, "DELETED", node())
    bench.router.route(PODS, "DELETED", pod())
    bench.router.route(ACCELERATOR_POOLS, "DELETED", pool())
    snapshot = bench.fleet.view().snapshot()
    assert (snapshot.nodes, snapshot.pods, snapshot.declared_pools) == ((), (), ())
    assert not bench.relist.is_set()


@pytest.mark.parametrize(
    ("before", "event_type", "after", "want_woken"),
    [
        pytest.param(pool(), "ADDED", pool(), False, id="told again"),
        pytest.param(pool(), "MODIFIED", pool(cost="3"), True, id="changed"),
        pytest.param(pool(), "DELETED", pool(), True, id="deleted"),
    ],
)
def test_change_of_a_declared_pool_wakes_whoever_has_gpus(
    bench: Bench, before: Object, event_type: str, after: Object, want_woken: bool
) -> None:
    llama = Key("chat", "llama")
    bench.fleet.reserve(llama, [Reservation(("chat", "llama"), "amd", "amd", 1, 1)])
    bench.fleet.observe_pool(before)
    bench.router.route(ACCELERATOR_POOLS, event_type, after)
    assert bench.keys == ([llama] if want_woken else [])


def test_object_that_a_new_watch_lists_asks_for_a_list_of_ours(bench: Bench) -> None:
    bench.router.route(PODS, None, pod())
    assert bench.relist.is_set()


def queue_of() -> WorkQueue[Key]:
    class Deaf:
        def key_added(self) -> None: ...

        def key_retried(self) -> None: ...

        def key_waited(self, seconds: float) -> None: ...

    return WorkQueue(Deaf(), retries=TokenBucket(1, 9))


def cluster() -> FakeApi:
    api = FakeApi()
    api.put(NODES, node())
    api.put(PODS, pod("p1"))
    api.put(PODS, pod("p2", gpus=0))
    api.put(ACCELERATOR_POOLS, pool())
    return api


async def test_list_makes_the_fleet_what_the_cluster_is(bench: Bench) -> None:
    bench.fleet.observe_node(node("ghost", "ghost"))
    bench.fleet.observe_pod(pod("ghost"))
    await relist_fleet(cluster(), bench.fleet)
    snapshot = bench.fleet.view().snapshot()
    assert [each.name for each in snapshot.nodes] == ["gpu-1"]
    assert len(snapshot.pods) == 1
    assert [each.name for each in snapshot.declared_pools] == ["amd"]


async def test_resync_wakes_what_exists_and_what_still_holds_something(bench: Bench) -> None:
    api, queue = FakeApi(), queue_of()
    api.put(INFERENCE_DEPLOYMENTS, {"metadata": {"name": "llama", "namespace": "chat"}})
    gone = Key("chat", "gone")
    bench.fleet.reserve(gone, [Reservation(("chat", "gone"), "amd", "amd", 8, 1)])
    await resync(api, bench.fleet, queue, bench.specs)
    assert queue.depth == 2
    assert {await queue.get(), await queue.get()} == {Key("chat", "llama"), gone}


async def test_resync_looks_at_an_object_whose_end_nobody_told(bench: Bench) -> None:
    body = {"metadata": {"name": "gone", "namespace": "chat", "uid": "u"}}
    bench.router.route(INFERENCE_DEPLOYMENTS, "ADDED", body)
    bench.keys.clear()
    await resync(FakeApi(), bench.fleet, queue_of(), bench.specs)
    assert bench.keys == [Key("chat", "gone")]


async def test_start_waits_for_what_it_needs_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.watch.start_up.LONGEST_WAIT_SECONDS", 0.001)
    outcomes: list[Exception | None] = [TransientError("a"), TransientError("b"), None]

    async def job() -> None:
        outcome = outcomes.pop(0)
        if outcome:
            raise outcome

    told: list[tuple[str, str]] = []
    await until_it_works("the kinds", job, lambda *why: told.append(why))
    assert outcomes == []
    assert told == [("the kinds", "a"), ("the kinds", "b")]


@pytest.mark.parametrize(
    "error", [KeyError("spec"), NotLeadingError("lost"), KindMissingError("404")], ids=type
)
async def test_start_waits_for_nothing_that_cannot_come(error: Exception) -> None:
    async def job() -> None:
        raise error

    with pytest.raises(type(error)):
        await until_it_works("the kinds", job, lambda *_: None)
