"""Events on their way: to the queue, to the fleet, and what lists put right."""

import asyncio
from datetime import UTC, datetime

import pytest

from tests.support.fake_api import FakeApi
from tests.support.fleet_objects import node, pod, pool
from tonnage.api.names import (
    API_VERSION,
    INFERENCE_DEPLOYMENT,
    LABEL_MANAGED_BY,
    LABEL_OWNER,
    LABEL_SHARD,
    MANAGED_BY,
)
from tonnage.catalog.load import load_catalog
from tonnage.fit.corrections import UNCORRECTED
from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
)
from tonnage.kube.protocol import Kind, KindMissingError, NotLeadingError, Object, TransientError
from tonnage.kube.throttle import TokenBucket
from tonnage.reconcile.key import Key
from tonnage.reconcile.looks import Look, Looks
from tonnage.reconcile.newborns import Newborns
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.priority import Priority
from tonnage.runtime.workqueue import WorkQueue
from tonnage.watch.echoes import Echoes
from tonnage.watch.lists import relist_fleet, resync, seen_specs
from tonnage.watch.resting import RestingObjects
from tonnage.watch.router import ECHO_SECONDS, EventRouter
from tonnage.watch.start_up import until_it_works


class Bench:
    """A router with its fleet and the keys that it woke."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.priorities: dict[Key, Priority] = {}
        self.later: list[tuple[Key, float]] = []
        self.seen: list[str] = []
        self.fleet = FleetState(load_catalog(), lambda: None, lambda: None, lambda _: None)
        self.specs = seen_specs(self.keys.append)
        self.relist = asyncio.Event()
        self.resync = asyncio.Event()
        self.looks = Looks(lambda: datetime.now(UTC))
        self.resting = RestingObjects(self.looks, self.fleet, lambda: UNCORRECTED)
        self.echoes = Echoes(self.keys.append)
        self.newborns = Newborns()
        self.router = EventRouter(
            self,
            self.looks,
            self.echoes,
            self.newborns,
            self.fleet,
            self.specs,
            self.relist,
            self.resync,
            self,
        )

    def add(self, key: Key, priority: Priority = Priority.EVENT) -> None:
        self.keys.append(key)
        self.priorities[key] = priority

    def add_after(self, key: Key, seconds: float) -> None:
        self.later.append((key, seconds))

    def event_seen(self, plural: str) -> None:
        self.seen.append(plural)

    def remember(self, key: Key, look: Look) -> None:
        self.looks.begin(key)
        self.looks.end(key, look)


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


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({}, Priority.NEW_GENERATION),
        ({"status": {"observedGeneration": 0}}, Priority.NEW_GENERATION),
        ({"status": {"observedGeneration": 2}}, Priority.NEW_GENERATION),
        ({"status": {"observedGeneration": 3}}, Priority.EVENT),
        ({"status": "hostile"}, Priority.NEW_GENERATION),
    ],
)
def test_a_generation_that_no_status_has_observed_has_a_priority_of_its_own(
    bench: Bench, status: Object, want: Priority
) -> None:
    body = {"metadata": {"name": "llama", "namespace": "chat", "uid": "u", "generation": 3}}
    bench.router.route(INFERENCE_DEPLOYMENTS, "MODIFIED", {**body, **status})
    assert bench.priorities == {Key("chat", "llama"): want}


def test_what_becomes_of_a_first_child_is_seen_by_the_look_that_follows_it(bench: Bench) -> None:
    key = Key("chat", "llama")
    itself, child = (_version_of(kind, "1") for kind in (INFERENCE_DEPLOYMENTS, DEPLOYMENTS))
    bench.remember(key, Look(itself, {DEPLOYMENTS: [child], SERVICES: (), PODS: ()}))
    bench.newborns.rest(key, {})
    bench.router.route(DEPLOYMENTS, "MODIFIED", _version_of(DEPLOYMENTS, "2"))
    assert (bench.keys, bench.later) == ([], [])
    assert bench.looks.recall(key) is None, "what was read before is outdated all the same"
    bench.router.route(INFERENCE_DEPLOYMENTS, "MODIFIED", itself)
    assert bench.keys == [key], "a user's wish does not wait"
    bench.newborns.wake(key)
    bench.router.route(DEPLOYMENTS, "MODIFIED", _version_of(DEPLOYMENTS, "3"))
    assert bench.keys == [key, key]


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


@pytest.mark.parametrize("plural", ["nodes", "pods", "acceleratorpools"])
def test_a_new_watch_of_the_fleet_asks_for_a_list_of_ours(bench: Bench, plural: str) -> None:
    bench.router.begun_anew(plural)
    assert (bench.relist.is_set(), bench.resync.is_set()) == (True, False)


@pytest.mark.parametrize("plural", ["inferencedeployments", "deployments", "services"])
def test_any_other_new_watch_asks_for_a_look_at_every_object(bench: Bench, plural: str) -> None:
    bench.router.begun_anew(plural)
    assert (bench.relist.is_set(), bench.resync.is_set()) == (False, True)


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
    await relist_fleet(cluster(), bench.fleet, bench.looks)
    snapshot = bench.fleet.view().snapshot()
    assert [each.name for each in snapshot.nodes] == ["gpu-1"]
    assert len(snapshot.pods) == 1
    assert [each.name for each in snapshot.declared_pools] == ["amd"]


async def test_resync_wakes_what_exists_and_what_still_holds_something(bench: Bench) -> None:
    api, queue = FakeApi(), queue_of()
    api.put(INFERENCE_DEPLOYMENTS, {"metadata": {"name": "llama", "namespace": "chat"}})
    gone = Key("chat", "gone")
    bench.fleet.reserve(gone, [Reservation(("chat", "gone"), "amd", "amd", 8, 1)])
    await resync(api, bench.fleet, queue.add, bench.specs, bench.looks, bench.resting)
    assert queue.depth == 2
    assert {await queue.get(), await queue.get()} == {Key("chat", "llama"), gone}


async def test_resync_looks_at_an_object_whose_end_nobody_told(bench: Bench) -> None:
    body = {"metadata": {"name": "gone", "namespace": "chat", "uid": "u"}}
    bench.router.route(INFERENCE_DEPLOYMENTS, "ADDED", body)
    bench.keys.clear()
    await resync(FakeApi(), bench.fleet, queue_of().add, bench.specs, bench.looks, bench.resting)
    assert bench.keys == [Key("chat", "gone")]


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("kind", [INFERENCE_DEPLOYMENTS, DEPLOYMENTS, SERVICES, PODS])
async def test_lists_outdate_what_was_read_before_where_no_event_told_of_a_change(
    bench: Bench, kind: Kind, gone: bool
) -> None:
    api, llama = FakeApi(), Key("chat", "llama")
    found = {one: api.put(one, belonging(one)) for one in READ_BY_A_LOOK}
    belongings = {one: [found[one]] for one in (SERVICES, PODS, DEPLOYMENTS)}
    bench.remember(llama, Look(found[INFERENCE_DEPLOYMENTS], belongings))
    await lists(api, bench)
    before = bench.looks.recall(llama)
    assert before
    if gone:
        api.remove(kind, "chat", "llama")
    else:
        api.put(kind, belonging(kind) | {"spec": {"changed": True}})
    await lists(api, bench)
    assert bench.looks.recall(llama) != before


async def test_a_list_says_nothing_of_the_looks_that_are_under_way(bench: Bench) -> None:
    llama = Key("chat", "llama")
    nothing: dict[Kind, list[Object]] = {kind: [] for kind in (SERVICES, PODS, DEPLOYMENTS)}
    itself = FakeApi().put(INFERENCE_DEPLOYMENTS, belonging(INFERENCE_DEPLOYMENTS))
    bench.looks.begin(llama)
    await lists(FakeApi(), bench)
    bench.looks.end(llama, Look(itself, nothing))
    assert bench.looks.recall(llama) is None


@pytest.mark.parametrize("kind", [NODES, INFERENCE_DEPLOYMENTS, DEPLOYMENTS, SERVICES, PODS])
def test_nothing_that_was_read_outlives_the_watch_that_would_tell(bench: Bench, kind: Kind) -> None:
    llama = Key("chat", "llama")
    nothing: dict[Kind, list[Object]] = {one: [] for one in (SERVICES, PODS, DEPLOYMENTS)}
    itself = FakeApi().put(INFERENCE_DEPLOYMENTS, belonging(INFERENCE_DEPLOYMENTS))
    bench.remember(llama, Look(itself, nothing))
    assert bench.looks.recall(llama)
    bench.router.begun_anew(kind.plural)
    assert bench.looks.recall(llama) is None


def test_an_event_of_what_is_known_already_waits_for_others(bench: Bench) -> None:
    llama = Key("chat", "llama")
    itself = {
        "metadata": {**belonging(INFERENCE_DEPLOYMENTS)["metadata"], "uid": "u", "generation": 1}
    }
    itself["metadata"]["resourceVersion"] = "7"
    bench.remember(llama, Look(itself, {kind: [] for kind in (SERVICES, PODS, DEPLOYMENTS)}))
    bench.router.route(INFERENCE_DEPLOYMENTS, "MODIFIED", itself)
    assert (bench.keys, bench.later) == ([], [(llama, ECHO_SECONDS)])
    itself["metadata"]["resourceVersion"] = "8"
    bench.router.route(INFERENCE_DEPLOYMENTS, "MODIFIED", itself)
    bench.router.route(INFERENCE_DEPLOYMENTS, "MODIFIED", itself)
    assert (bench.keys, len(bench.later)) == ([llama, llama], 1)


def test_an_event_of_what_is_known_already_does_not_wake_what_is_at_rest(bench: Bench) -> None:
    llama = Key("chat", "llama")
    itself = FakeApi().put(INFERENCE_DEPLOYMENTS, belonging(INFERENCE_DEPLOYMENTS))
    bench.remember(llama, Look(itself, {kind: [] for kind in (SERVICES, PODS, DEPLOYMENTS)}))
    bench.looks.rest(llama)
    bench.router.route(INFERENCE_DEPLOYMENTS, None, itself)
    assert (bench.keys, bench.later) == ([], [])
    itself["metadata"]["resourceVersion"] = "4711"
    bench.router.route(INFERENCE_DEPLOYMENTS, "MODIFIED", itself)
    assert bench.keys == [llama]


async def lists(api: FakeApi, bench: Bench) -> None:
    await relist_fleet(api, bench.fleet, bench.looks)
    await resync(api, bench.fleet, queue_of().add, bench.specs, bench.looks, bench.resting)


READ_BY_A_LOOK = (INFERENCE_DEPLOYMENTS, DEPLOYMENTS, SERVICES, PODS)


def belonging(kind: Kind) -> Object:
    """The object llama, or something that it owns."""
    owner = {"apiVersion": API_VERSION, "kind": INFERENCE_DEPLOYMENT, "name": "llama", "uid": "u"}
    labels = {LABEL_OWNER: "llama", LABEL_MANAGED_BY: MANAGED_BY}
    metadata = {"name": "llama", "namespace": "chat", "labels": labels}
    if kind in (DEPLOYMENTS, SERVICES):
        metadata["ownerReferences"] = [owner | {"controller": True}]
    return {"metadata": metadata, "spec": {}}


def _version_of(kind: Kind, version: str) -> Object:
    body = belonging(kind)
    metadata = body["metadata"] | {"uid": kind.plural, "resourceVersion": version, "generation": 1}
    return body | {"metadata": metadata}


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


def test_a_pod_of_another_shard_takes_gpus_and_wakes_nobody(bench: Bench) -> None:
    body = pod()
    body["metadata"]["labels"] = {LABEL_OWNER: "llama", LABEL_SHARD: "east"}
    bench.router.route(PODS, "ADDED", body)
    assert (bench.keys, bench.later) == ([], [])
    assert len(bench.fleet.view().snapshot().pods) == 1
