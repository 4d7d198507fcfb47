"""Replicas on several nodes in the rollouts that Deployments have: approval, spread, and another
plan after the GPU memory was too small."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import crashing, loading, ready
from tests.support.in_memory.leader_worker_sets import GROUP, WORKER
from tests.support.in_memory.serving import SETTLED
from tonnage.api.names import LABEL_OWNER, LABEL_PLACEMENT
from tonnage.kube import kinds
from tonnage.kube.kinds import ACCELERATOR_POOLS, LEADER_WORKER_SETS, PODS, SERVICES
from tonnage.kube.protocol import Object

HOUR = 3600
NODES = {**H100, "count": 8, "resources": {"rdma/ib": "1k"}}
FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total"
    " capacity of 79.19 GiB of which 12.50 MiB is free."
)


def cluster_of(*groups: dict[str, Any]) -> Cluster:
    cluster = Cluster(*groups)
    cluster.has_leader_worker_set = True
    return cluster


def image_of(pod: Object) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def sets(cluster: Cluster) -> list[Object]:
    return list(cluster.api.objects(LEADER_WORKER_SETS))


def argument(pod: Object, flag: str) -> str | None:
    arguments = pod["spec"]["containers"][0]["args"]
    return next((one.partition("=")[2] for one in arguments if one.startswith(f"{flag}=")), None)


async def test_a_plan_on_two_nodes_waits_for_its_approval() -> None:
    cluster = cluster_of(NODES)
    cluster.apply("llama", spec_of(model="deepseek-v3", approval="Manual"))
    await cluster.settle()
    assert sets(cluster) == []
    proposed = cluster.status()["proposedPlan"]
    assert (proposed["pipelineParallelSize"], proposed["nodesPerReplica"]) == (2, 2)
    approved = {"approval": "Manual", "approvedPlan": proposed["hash"]}
    cluster.apply("llama", spec_of(model="deepseek-v3", **approved))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert len(sets(cluster)) == 1


async def test_replicas_are_spread_over_pools_of_one_node_and_of_two() -> None:
    cluster = cluster_of({**MI300X, "count": 1, "gpusPerNode": 8}, {**NODES, "count": 4})
    spread = {"spread": {"policy": "WhenShort"}}
    cluster.apply("llama", spec_of(model="deepseek-v3", replicas=4, placement=spread))
    await cluster.settle()
    placements = cluster.status()["placements"]
    shares = {one["accelerator"]: one["replicas"] for one in placements}
    nodes = {one["accelerator"]: one.get("nodesPerReplica", 1) for one in placements}
    assert nodes == {"mi300x": 1, "h100-sxm-80gb": 2}
    assert sum(shares.values()) == 4
    assert shares["h100-sxm-80gb"] == sets(cluster)[0]["spec"]["replicas"] >= 1
    assert cluster.status()["readyReplicas"] == 4


async def test_a_service_of_a_placement_leaves_the_group_the_name_of_its_leader() -> None:
    """Pods of a group find the leader by a headless Service with the name of the LeaderWorkerSet,
    which its controller makes unless there is a Service of that name."""
    cluster = cluster_of({**MI300X, "count": 1, "gpusPerNode": 8}, {**NODES, "count": 4})
    spread = {"spread": {"policy": "WhenShort"}}
    cluster.apply("llama", spec_of(model="deepseek-v3", replicas=3, placement=spread))
    await cluster.settle()
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    services = {one["metadata"]["name"]: one for one in cluster.api.objects(SERVICES)}
    name = sets(cluster)[0]["metadata"]["name"]
    assert services[name]["spec"]["clusterIP"] == "None"
    assert services.keys() == {"llama", "llama-mi300x", name, f"{name}-leaders"}
    by_placement = services[f"{name}-leaders"]["spec"]["selector"]
    assert by_placement == {LABEL_OWNER: "llama", LABEL_PLACEMENT: "h100-sxm-80gb-2nodes"}


async def test_a_replica_that_runs_out_of_memory_on_two_nodes_gets_more_of_them() -> None:
    cluster = cluster_of(NODES)

    def fits_on_three(pod: Object) -> Object:
        nodes = int(argument(pod, "--nnodes") or "1")
        return ready(pod) if nodes >= 3 else crashing(message=FULL)(pod)

    cluster.behaviours["llama"] = fits_on_three
    cluster.apply("llama", spec_of(model="deepseek-v3"))
    for _ in range(30):
        await cluster.settle()
        await cluster.wait(20)
    assert cluster.conditions() == SETTLED
    (placement,) = cluster.status()["placements"]
    assert placement["nodesPerReplica"] == 3
    assert {plan["reason"] for plan in cluster.status()["failedPlans"]} == {"OutOfMemory"}


SIZES = {
    "from two nodes to one": ({"model": "deepseek-v3", "replicas": 2}, {"replicas": 2}),
    "from one node to two": (
        {"model": "llama-3.1-405b-fp8", "replicas": 4},
        {"model": "deepseek-v3", "replicas": 2},
    ),
}


@pytest.mark.parametrize(("before", "after"), SIZES.values(), ids=SIZES)
async def test_replicas_that_hold_the_gpus_of_a_full_pool_make_way_for_those_of_another_size(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    cluster = cluster_of({**NODES, "count": 4})
    cluster.apply("llama", spec_of(**before))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    cluster.apply("llama", spec_of(**after))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert cluster.status()["readyReplicas"] == 2


async def test_replicas_of_another_size_serve_on_where_the_pool_has_capacity_for_both() -> None:
    cluster = cluster_of(NODES)
    cluster.apply("llama", spec_of(model="deepseek-v3", replicas=2))
    await cluster.settle()
    cluster.behaviours["llama"] = lambda pod: (
        ready(pod) if GROUP in pod["metadata"]["labels"] else loading(pod)
    )
    cluster.apply("llama", spec_of(replicas=2))
    await cluster.settle()
    assert len(sets(cluster)) == 1
    assert cluster.status()["readyReplicas"] == 2


async def test_no_replica_makes_way_with_the_strategy_surge() -> None:
    cluster = cluster_of({**NODES, "count": 4})
    cluster.apply("llama", spec_of(model="deepseek-v3", replicas=2))
    await cluster.settle()
    cluster.apply("llama", spec_of(replicas=2, rollout={"strategy": "Surge"}))
    await cluster.settle()
    assert cluster.status()["readyReplicas"] == 2
    assert cluster.conditions()["Ready"][0] == "False"


async def test_groups_of_the_former_template_serve_until_another_pool_does() -> None:
    """A change of the image fails in mid rollout, and the user then names another pool."""
    cluster = cluster_of({**NODES, "count": 6}, {**MI300X, "count": 3, "gpusPerNode": 8})
    on_h100 = {"accelerators": ["h100-sxm-80gb"]}
    cluster.apply("llama", spec_of(model="deepseek-v3", replicas=3, placement=on_h100))
    await cluster.settle()
    cluster.clock.advance(HOUR)
    cluster.behaviours["llama"] = lambda pod: (
        ready(pod) if image_of(pod).startswith("vllm/") else loading(pod)
    )
    engine = {"vllm": {"image": "registry.local/vllm:slow"}}
    spec = spec_of(model="deepseek-v3", replicas=3, engine=engine, placement=on_h100)
    cluster.apply("llama", spec)
    await cluster.settle()
    assert cluster.status()["readyReplicas"] == 2
    assert cluster.conditions()["Available"] == ("True", "ReplicasReady")
    cluster.apply("llama", {**spec, "placement": {"accelerators": ["mi300x"]}})
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.status()["readyReplicas"] == 2


async def test_a_replica_without_its_second_pod_is_not_ready_until_it_is_replaced() -> None:
    """The controller of LeaderWorkerSets is down, and its last status says Ready."""
    cluster = cluster_of(NODES)
    cluster.apply("llama", spec_of(model="deepseek-v3", replicas=2))
    await cluster.settle()
    assert cluster.status()["readyReplicas"] == 2
    workers = [
        pod["metadata"]["name"]
        for pod in cluster.api.objects(PODS)
        if pod["metadata"]["labels"][WORKER] == "1"
    ]
    cluster.api.remove(PODS, NAMESPACE, workers[0])
    cluster.watch()
    await cluster.reconcile("llama")
    assert cluster.api.objects(LEADER_WORKER_SETS)[0]["status"]["readyReplicas"] == 2
    assert cluster.status()["readyReplicas"] == 1
    assert cluster.conditions()["Ready"][0] == "False"


async def test_a_lost_node_takes_its_own_replica_alone() -> None:
    """Of the other pod of the replica, the kubelet says that it is not ready, too."""
    cluster = cluster_of(NODES)
    cluster.apply("llama", spec_of(model="deepseek-v3", replicas=2))
    await cluster.settle()
    leader, worker = (
        pod
        for pod in cluster.api.objects(PODS)
        if pod["metadata"]["name"].rpartition("-2nodes-")[2] in ("0", "0-1")
    )
    conditions = [{"type": "Ready", "status": "False"}]
    status = {**leader["status"], "conditions": conditions}
    cluster.api.set_status(PODS, NAMESPACE, leader["metadata"]["name"], status)
    cluster.api.remove(kinds.NODES, None, worker["spec"]["nodeName"])
    cluster.watch()
    await cluster.reconcile("llama")
    assert cluster.status()["readyReplicas"] == 1


async def test_a_group_that_lost_its_node_takes_no_other_group_with_it() -> None:
    """On a full pool there is capacity for one of two groups, and the controller would stop the
    second one, which serves."""
    cluster = cluster_of({**NODES, "count": 4})
    cluster.apply("llama", spec_of(model="deepseek-v3", replicas=2))
    await cluster.settle()
    before = {pod["metadata"]["uid"] for pod in of_group(cluster, "1")}
    (lost,) = (pod for pod in of_group(cluster, "0") if pod["metadata"]["labels"][WORKER] == "1")
    node = cluster.api.object(kinds.NODES, None, lost["spec"]["nodeName"])
    cluster.api.remove(kinds.NODES, None, lost["spec"]["nodeName"])
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    assert cluster.status()["readyReplicas"] == 1
    assert {pod["metadata"]["uid"] for pod in of_group(cluster, "1")} == before
    writes = cluster.api.write_count
    await cluster.resync()
    assert cluster.api.write_count == writes
    cluster.api.put(kinds.NODES, {**node, "metadata": {**node["metadata"], "name": "new"}})
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert {pod["metadata"]["uid"] for pod in of_group(cluster, "1")} == before
    assert cluster.status()["readyReplicas"] == 2


@pytest.mark.parametrize("held_back", [{"rollout": {"paused": True}}, {"engine": {"vllm": 1}}, {}])
async def test_a_scale_down_never_stops_the_groups_that_serve_for_one_that_does_not(
    held_back: Object,
) -> None:
    """The controller stops the groups with the highest numbers, and the first one is not ready."""
    cluster = cluster_of(NODES)
    cluster.apply("llama", spec_of(model="deepseek-v3", replicas=3))
    await cluster.settle()
    named = {pod["metadata"]["name"]: pod for pod in cluster.api.objects(PODS)}
    name = f"{sets(cluster)[0]['metadata']['name']}-0"
    status = {**named[name]["status"], "conditions": [{"type": "Ready", "status": "False"}]}
    cluster.api.set_status(PODS, NAMESPACE, name, status)
    cluster.apply("llama", spec_of(model="deepseek-v3", replicas=1, **held_back))
    for _ in range(3):
        cluster.watch()
        await cluster.reconcile("llama")
        assert cluster.status()["readyReplicas"] >= 1
    assert sets(cluster)[0]["spec"]["replicas"] == 2


async def test_a_group_that_a_silent_node_does_not_end_starts_on_another_pool() -> None:
    """Kubernetes deletes pods of a node that does not answer, but only its kubelet ends them, and
    no group takes the place of one whose pods exist."""
    cluster = cluster_of(NODES)
    cluster.apply("llama", spec_of(model="deepseek-v3"))
    await cluster.settle()
    pods = cluster.api.objects(PODS)
    node = pods[1]["spec"]["nodeName"]
    cluster.silence(node)
    for pod in pods:
        metadata = {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:02:00Z"}
        status = {**pod["status"], "conditions": [{"type": "Ready", "status": "False"}]}
        cluster.api.restore(PODS, {**pod, "metadata": metadata, "status": status})
    cluster.watch()
    await cluster.reconcile("llama")
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    assert f"replicas on nodes that do not answer ({node})" in cluster.message("Ready")
    cluster.join(**{**MI300X, "count": 1, "gpusPerNode": 8})
    cluster.clock.advance(3600)
    cluster.watch()
    await cluster.reconcile("llama")
    assert "mi300x" in {one["accelerator"] for one in cluster.status()["placements"]}


async def test_a_group_that_runs_in_two_nvlink_domains_stays() -> None:
    """The labels come later than the group, for example with a newer feature discovery."""
    cluster = cluster_of({**NODES, "count": 2})
    cluster.apply("llama", spec_of(model="deepseek-v3"))
    await cluster.settle()
    before = {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)}
    for number, node in enumerate(cluster.api.objects(kinds.NODES)):
        labels = {**node["metadata"]["labels"], "nvidia.com/gpu.clique": f"rack.{number}"}
        cluster.api.put(kinds.NODES, {**node, "metadata": {**node["metadata"], "labels": labels}})
    await cluster.settle()
    await cluster.resync()
    assert cluster.conditions() == SETTLED
    assert {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)} == before


def of_group(cluster: Cluster, index: str) -> list[Object]:
    pods = cluster.api.objects(PODS)
    return [pod for pod in pods if pod["metadata"]["labels"][GROUP] == index]


async def test_two_groups_do_not_wait_for_one_node_of_an_autoscaler() -> None:
    """The second one is planned before the scheduler has seen the first."""
    team = {"team": "chat"}
    cluster = cluster_of({**NODES, "count": 1, "labels": team})
    pool = {"metadata": {"name": "chat"}, "spec": {"nodeSelector": team, "maxNodes": 2}}
    cluster.api.put(ACCELERATOR_POOLS, pool)
    cluster.apply("llama", spec_of(model="deepseek-v3"))
    cluster.apply("next", spec_of(model="deepseek-v3"))
    cluster.watch()
    await cluster.reconcile("llama")
    await cluster.reconcile("next")
    assert [one["metadata"]["labels"][LABEL_OWNER] for one in sets(cluster)] == ["llama"]
    await cluster.settle()
    assert len(sets(cluster)) == 1
