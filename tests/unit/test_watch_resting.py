"""A resync looks at what can have changed, and passes over what rests; once in a while at all."""

import json
from collections.abc import Callable

import pytest

from tests.support.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.serving import served
from tests.support.told_apart import served_apart
from tonnage.fit.corrections import CorrectionKey, MemoryCorrection, Origin, ServedModel
from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
)
from tonnage.kube.protocol import Kind
from tonnage.kube.throttle import TokenBucket
from tonnage.reconcile.key import Key
from tonnage.reconcile.looks import GOOD_FOR
from tonnage.reconcile.turn import Precedence
from tonnage.runtime.workqueue import WorkQueue
from tonnage.watch import lists
from tonnage.watch.lists import relist_fleet, resync, seen_specs
from tonnage.watch.resting import ROUNDS, RestingObjects

LLAMA = Key(NAMESPACE, "llama")
SERVED = ServedModel("LlamaForCausalLM-32x4096-8.0B", "bfloat16", "auto", "0.32.0")
LESSON = MemoryCorrection(CorrectionKey(SERVED, "mi300x"), 2**30, Origin.FAILURE)


class Deaf:
    def key_added(self) -> None: ...

    def key_retried(self) -> None: ...

    def key_waited(self, seconds: float) -> None: ...


class Operator:
    """One whose watches tell nothing: what it learns, lists tell it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.queue: WorkQueue[Key] = WorkQueue(Deaf(), retries=TokenBucket(1, 9))
        self.specs = seen_specs(self.queue.add)
        self.resting = RestingObjects(cluster.looks, cluster.fleet, cluster.lessons.known)

    async def resync(self) -> int:
        """How many objects are to be looked at again; each of them is."""
        cluster = self.cluster
        await self.list_fleet()
        await resync(
            cluster.api, cluster.fleet, self.queue.add, self.specs, cluster.looks, self.resting
        )
        woken = self.queue.depth
        for _ in range(woken):
            key = await self.queue.get()
            assert key is not None
            await cluster.reconciler.reconcile(key)
            self.queue.done(key)
        return woken

    async def list_fleet(self) -> None:
        await relist_fleet(self.cluster.api, self.cluster.fleet, self.cluster.looks)

    async def rounds(self) -> int:
        """How often the objects are looked at until each has had its turn."""
        return sum([await self.resync() for _ in range(ROUNDS)])


@pytest.fixture
async def operator() -> Operator:
    """Of one object that serves, and that rests."""
    return await at_rest(await served(MI300X, replicas=1))


async def at_rest(cluster: Cluster) -> Operator:
    found = Operator(cluster)
    await found.rounds()
    return found


async def until_its_turn_is_over(operator: Operator) -> None:
    """Go on until just after the round in which the one object is looked at whatever is known."""
    while not await operator.resync():
        pass


async def test_an_object_at_rest_is_looked_at_once_in_all_rounds(operator: Operator) -> None:
    assert await operator.rounds() == 1
    assert await operator.rounds() == 1


async def test_the_turns_of_many_objects_are_spread_over_the_rounds() -> None:
    cluster = Cluster({**MI300X, "count": 4})
    for number in range(24):
        cluster.apply(f"llama-{number}", spec_of())
    await cluster.settle()
    operator = await at_rest(cluster)
    looked_at = [await operator.resync() for _ in range(ROUNDS)]
    assert sum(looked_at) == 24
    assert max(looked_at) <= 12


async def test_a_resync_where_nothing_changed_lists_and_reads_nothing_by_itself(
    operator: Operator,
) -> None:
    api = operator.cluster.api
    known = len(api.calls)
    await operator.resync()
    asked = [call for call in api.calls[known:] if call.kind != PRIORITY_CLASSES]
    assert {call.verb for call in asked} == {"list"}
    assert [call.kind for call in asked].count(PODS) == 1


@pytest.mark.parametrize("kind", [INFERENCE_DEPLOYMENTS, DEPLOYMENTS, SERVICES, PODS])
async def test_what_changed_unheard_is_looked_at_in_the_next_resync(
    operator: Operator, kind: Kind
) -> None:
    await until_its_turn_is_over(operator)
    api = operator.cluster.api
    body = next(one for one in api.objects(kind) if one["metadata"]["namespace"] == NAMESPACE)
    api.put(kind, body | {"metadata": {**body["metadata"], "annotations": {"some": "news"}}})
    assert await operator.resync() == 1


@pytest.mark.parametrize("kind", [DEPLOYMENTS, SERVICES, PODS])
async def test_what_is_gone_unheard_is_looked_at_in_the_next_resync(
    operator: Operator, kind: Kind
) -> None:
    await until_its_turn_is_over(operator)
    api = operator.cluster.api
    name = next(
        one["metadata"]["name"]
        for one in api.objects(kind)
        if one["metadata"]["namespace"] == NAMESPACE
    )
    api.remove(kind, NAMESPACE, name)
    assert await operator.resync() == 1


async def test_an_object_whose_end_nobody_told_is_released_in_the_next_resync(
    operator: Operator,
) -> None:
    operator.cluster.delete("llama")
    await operator.resync()
    assert operator.cluster.fleet.view().reserved((NAMESPACE, "llama")) == ()


def _more_nodes(cluster: Cluster) -> None:
    cluster.join(**H100)


def _fewer_gpus(cluster: Cluster) -> None:
    cluster.occupy("mi300x-0", 3)


def _a_pool(cluster: Cluster) -> None:
    spec = {"nodeSelector": {"kubernetes.io/hostname": "mi300x-0"}}
    cluster.api.put(ACCELERATOR_POOLS, {"metadata": {"name": "team", "uid": "team"}, "spec": spec})


@pytest.mark.parametrize("change", [_more_nodes, _fewer_gpus, _a_pool])
async def test_when_the_fleet_is_another_one_all_objects_are_looked_at(
    operator: Operator, change: Callable[[Cluster], None]
) -> None:
    await until_its_turn_is_over(operator)
    change(operator.cluster)
    assert await operator.resync() == 1
    await operator.rounds()
    assert await operator.rounds() == 1


async def test_when_others_claim_other_room_all_objects_are_looked_at(operator: Operator) -> None:
    await until_its_turn_is_over(operator)
    fleet, clock = operator.cluster.fleet, operator.cluster.clock
    giant = Key(NAMESPACE, "giant")
    claim = Reservation((NAMESPACE, "giant"), "", "mi300x", 8, 1)
    fleet.wait_for_capacity(Precedence(0, clock.now(), giant), [claim])
    assert await operator.resync() == 2  # the one that waits, too


async def test_when_something_was_learnt_all_objects_are_looked_at(operator: Operator) -> None:
    await until_its_turn_is_over(operator)
    await operator.cluster.lessons.learn(LESSON)
    assert await operator.resync() == 1
    await operator.rounds()
    assert await operator.rounds() == 1


async def test_who_reads_what_no_list_shows_is_looked_at_in_each_round() -> None:
    operator = await at_rest(await served_apart())
    owners = len(operator.cluster.api.objects(INFERENCE_DEPLOYMENTS)) - 1
    assert await operator.rounds() >= ROUNDS * owners


async def test_a_model_that_a_config_map_describes_is_read_in_each_round() -> None:
    cluster = Cluster(MI300X)
    config = json.dumps(spec_of()["model"]["source"]["inline"]["config"])
    metadata = {"name": "facts", "namespace": NAMESPACE}
    cluster.api.put(CONFIG_MAPS, {"metadata": metadata, "data": {"config.json": config}})
    source = {"configMap": {"name": "facts"}}
    cluster.apply("llama", {**spec_of(), "model": {"name": "llama", "source": source}})
    await cluster.settle()
    operator = await at_rest(cluster)
    assert await operator.rounds() == ROUNDS


async def test_lists_bear_out_what_was_read_as_long_as_they_come(operator: Operator) -> None:
    looked_at = 0
    for _ in range(ROUNDS):
        operator.cluster.clock.advance(GOOD_FOR.total_seconds() / 2)
        looked_at += await operator.resync()
    assert looked_at == 1


async def test_an_object_whose_pods_were_not_listed_for_long_is_looked_at(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MISSING_WORTH_A_LIST", 0)
    await until_its_turn_is_over(operator)
    operator.cluster.clock.advance(GOOD_FOR.total_seconds())
    monkeypatch.setattr(Operator, "list_fleet", no_list)
    assert await operator.resync() == 1


async def no_list(_: Operator) -> None:
    """As where the API server does not let pods be listed."""


async def test_after_a_watch_was_begun_anew_lists_show_what_looks_would_read(
    operator: Operator,
) -> None:
    await until_its_turn_is_over(operator)
    cluster = operator.cluster
    cluster.looks.forget_all()
    known = len(cluster.api.calls)
    assert await operator.resync() == 1
    verbs = [call.verb for call in cluster.api.calls[known:]]
    assert set(verbs) == {"list"}
    assert cluster.looks.is_at_rest(LLAMA)
