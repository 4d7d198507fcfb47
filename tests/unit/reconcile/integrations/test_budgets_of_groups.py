"""PodDisruptionBudgets of replicas on several nodes: an eviction of a worker ends its group."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import loading, ready, serves
from tests.support.in_memory.leader_worker_sets import SET_NAME, WORKER
from tonnage.kube.kinds import LEADER_WORKER_SETS, POD_DISRUPTION_BUDGETS, PODS
from tonnage.kube.protocol import Object

NODES = {**H100, "count": 8, "resources": {"rdma/ib": "1k"}}
SET = "llama-h100-sxm-80gb-2nodes"


async def cluster_with(replicas: int, *groups: Object, **fields: Any) -> Cluster:
    cluster = Cluster(*(groups or (NODES,)))
    cluster.has_leader_worker_set = True
    cluster.apply("llama", spec_of(model="deepseek-v3", replicas=replicas, **fields))
    await cluster.settle()
    return cluster


def pods(cluster: Cluster) -> list[Object]:
    return [pod for pod in cluster.api.objects(PODS) if SET_NAME in pod["metadata"]["labels"]]


def may_evict(cluster: Cluster, pod: Object) -> bool:
    """What the eviction API answers (kubernetes v1.35, pkg/registry/core/pod/storage/eviction.go,
    pkg/controller/disruption)."""
    selecting = [
        budget for budget in cluster.api.objects(POD_DISRUPTION_BUDGETS) if selected(budget, pod)
    ]
    assert len(selecting) <= 1, "the eviction API refuses to choose"
    if not serves(pod):
        return True
    healthy = [each for each in pods(cluster) if selecting and selected(selecting[0], each)]
    return not selecting or sum(map(serves, healthy)) > selecting[0]["spec"]["minAvailable"]


def selected(budget: Object, pod: Object) -> bool:
    labels = budget["spec"]["selector"]["matchLabels"].items()
    return bool(labels <= pod["metadata"]["labels"].items())


def budgets(cluster: Cluster) -> dict[str, int]:
    return {
        body["metadata"]["name"]: body["spec"]["minAvailable"]
        for body in cluster.api.objects(POD_DISRUPTION_BUDGETS)
    }


@pytest.mark.parametrize("worker", ["0", "1"])
async def test_one_group_of_several_may_be_evicted_by_any_of_its_pods(worker: str) -> None:
    cluster = await cluster_with(3)
    assert budgets(cluster) == {SET: 5}
    assert all(may_evict(cluster, pod) for pod in pods(cluster))
    cluster.behaviours["llama"] = loading
    gone = next(pod for pod in pods(cluster) if pod["metadata"]["labels"][WORKER] == worker)
    cluster.api.remove(PODS, NAMESPACE, gone["metadata"]["name"])
    others = [pod for pod in pods(cluster) if serves(pod)]
    assert not any(may_evict(cluster, pod) for pod in others)


async def test_a_worker_that_waits_for_its_leader_counts_for_no_group() -> None:
    """Its container runs, so it is ready, for all the time that the leader loads."""
    cluster = await cluster_with(2)
    leader = next(pod for pod in pods(cluster) if pod["metadata"]["labels"][WORKER] == "0")
    cluster.api.set_status(PODS, NAMESPACE, leader["metadata"]["name"], loading(leader))
    cluster.behaviours["llama"] = lambda pod: (
        loading(pod) if pod["metadata"]["name"] == leader["metadata"]["name"] else ready(pod)
    )
    await cluster.settle()
    assert sum(map(serves, pods(cluster))) == 3
    group = leader["metadata"]["name"]
    others = [pod for pod in pods(cluster) if not pod["metadata"]["name"].startswith(group)]
    assert not any(may_evict(cluster, pod) for pod in others)
    (leader,) = (pod for pod in pods(cluster) if pod["metadata"]["name"] == group)
    assert may_evict(cluster, leader), "a replica that is not ready blocks no drain"


async def test_one_group_has_no_budget() -> None:
    cluster = await cluster_with(1)
    assert budgets(cluster) == {}


async def test_groups_without_capacity_do_not_count_except_for_the_last() -> None:
    cluster = await cluster_with(3, {**NODES, "count": 4})
    assert budgets(cluster) == {SET: 3}
    cluster = await cluster_with(3, {**NODES, "count": 2})
    assert budgets(cluster) == {SET: 3}
    assert not any(may_evict(cluster, pod) for pod in pods(cluster))


async def test_the_budget_of_leaders_alone_is_replaced() -> None:
    cluster = await cluster_with(2)
    (budget,) = cluster.api.objects(POD_DISRUPTION_BUDGETS)
    cluster.api.remove(POD_DISRUPTION_BUDGETS, NAMESPACE, SET)
    selector = {"matchLabels": {"tonnage.dev/inferencedeployment": "llama"}}
    old = {**budget, "spec": {**budget["spec"], "selector": selector, "minAvailable": 1}}
    old = {**old, "metadata": {**budget["metadata"], "name": "llama"}}
    cluster.api.put(POD_DISRUPTION_BUDGETS, old)
    await cluster.resync()
    assert budgets(cluster) == {SET: 3}


async def test_a_move_to_one_node_leaves_one_budget() -> None:
    cluster = await cluster_with(2, NODES, placement={"accelerators": ["h100-sxm-80gb"]})
    cluster.join(**{**MI300X, "count": 2})
    placement = {"accelerators": ["mi300x"]}
    cluster.apply("llama", spec_of(model="deepseek-v3", replicas=2, placement=placement))
    for _ in range(200):
        cluster.clock.advance(2)
        await cluster.reconcile("llama")
        cluster.step()
        kept = sum(map(serves, cluster.api.objects(PODS)))
        assert kept >= 2
    await cluster.settle()
    assert cluster.api.objects(LEADER_WORKER_SETS) == []
    assert budgets(cluster) == {"llama": 1}


async def test_the_last_group_of_a_placement_may_go_only_while_another_placement_serves() -> None:
    """One group on two nodes of H100, one replica on a node of MI300X."""
    spread = {"spread": {"policy": "ByCost"}}
    fleet = ({**NODES, "count": 2}, {**MI300X, "gpusPerNode": 4})
    cluster = await cluster_with(2, *fleet, placement=spread)
    assert len(cluster.status()["placements"]) == 2
    assert budgets(cluster) == {SET: 1, "llama-mi300x": 0}
    cluster.behaviours["llama"] = lambda pod: (
        loading(pod) if "mi300x" in pod["metadata"]["name"] else ready(pod)
    )
    await cluster.settle()
    assert budgets(cluster) == {SET: 3, "llama-mi300x": 0}


async def test_a_group_that_a_rollout_has_begun_lets_no_other_go() -> None:
    """Its worker is ready long before its leader."""
    cluster = await cluster_with(2)
    cluster.groups_surge = True
    await cluster.settle()
    cluster.behaviours["llama"] = lambda pod: (
        loading(pod) if "--seed=7" in pod["spec"]["containers"][0]["args"] else ready(pod)
    )
    engine = {"vllm": {"extraArgs": ["--seed=7"]}}
    cluster.apply("llama", spec_of(model="deepseek-v3", replicas=2, engine=engine))
    await cluster.settle()
    assert (len(pods(cluster)), sum(map(serves, pods(cluster)))) == (6, 5)
    assert not any(may_evict(cluster, pod) for pod in pods(cluster) if serves(pod))


@pytest.mark.parametrize("key", ["tonnage.dev/worker-of", "tonnage.dev/inferencedeployment"])
async def test_a_budget_of_the_user_over_leaders_or_workers_is_the_only_one(key: str) -> None:
    cluster = await cluster_with(2)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {key: "llama"}}}
    mine = {"metadata": {"name": "mine", "namespace": NAMESPACE}, "spec": spec}
    cluster.api.put(POD_DISRUPTION_BUDGETS, mine)
    await cluster.settle()
    assert budgets(cluster) == {"mine": 1}


async def test_a_refused_spec_never_protects_more_groups_than_there_are() -> None:
    cluster = await cluster_with(3)
    refused = {"workload": {"maxModelLen": -1}}
    for replicas, want in ((3, {SET: 5}), (2, {SET: 3}), (6, {SET: 3}), (1, {})):
        cluster.apply("llama", spec_of(model="deepseek-v3", replicas=replicas, **refused))
        await cluster.settle()
        assert cluster.conditions()["Accepted"] == ("False", "InvalidSpec")
        assert budgets(cluster) == want, replicas


async def test_an_unchanged_object_costs_no_write() -> None:
    cluster = await cluster_with(2)
    writes = cluster.api.write_count
    cluster.start_operator()
    await cluster.settle()
    assert cluster.api.write_count == writes
