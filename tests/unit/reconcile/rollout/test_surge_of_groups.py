"""A rollout of replicas on several nodes starts the new group first, where nodes are free and the
controller of LeaderWorkerSets can do it."""

from collections import Counter
from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, Cluster, spec_of
from tests.support.in_memory.controllers import Behaviour, loading, ready, serves
from tests.support.in_memory.serving import SETTLED
from tonnage.kube.kinds import LEADER_WORKER_SETS, PODS
from tonnage.kube.protocol import Object

NODES = {**H100, "resources": {"rdma/ib": "1k"}}
OWNER = "tonnage.dev/inferencedeployment"
SURGE: Object = {"maxSurge": 1, "maxUnavailable": 0}
IN_PLACE: Object = {"maxSurge": 0, "maxUnavailable": 1}


def spec(image: str, replicas: int, **fields: Any) -> Object:
    engine = {"vllm": {"image": image}}
    return spec_of(model="deepseek-v3", engine=engine, replicas=replicas, **fields)


def slow() -> Behaviour:
    """A server that answers only the third time that its kubelet probes it."""
    probes: Counter[str] = Counter()

    def behave(pod: Object) -> Object:
        probes[pod["metadata"]["uid"]] += 1
        return ready(pod) if probes[pod["metadata"]["uid"]] > 2 else loading(pod)

    return behave


async def roll(
    nodes: int, replicas: int = 1, *, surges: bool = True, **fields: Any
) -> tuple[Cluster, int]:
    """The cluster after a change of the image, and the fewest leaders that were ready."""
    cluster = Cluster({**NODES, "count": nodes})
    cluster.has_leader_worker_set, cluster.groups_surge = True, surges
    cluster.behaviours["llama"] = slow()
    cluster.apply("llama", spec("registry.local/vllm:1", replicas, **fields))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    cluster.apply("llama", spec("registry.local/vllm:2", replicas, **fields))
    fewest = replicas
    for _ in range(40):
        cluster.clock.advance(2)
        await cluster.reconcile("llama")
        cluster.step()
        pods = cluster.api.objects(PODS)
        serving = sum(serves(pod) for pod in pods if OWNER in pod["metadata"]["labels"])
        fewest = min(fewest, serving)
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    images = {pod["spec"]["containers"][0]["image"] for pod in cluster.api.objects(PODS)}
    assert images == {"registry.local/vllm:2"}
    assert len(cluster.api.objects(PODS)) == 2 * replicas
    return cluster, fewest


def strategy(cluster: Cluster) -> Object:
    (body,) = cluster.api.objects(LEADER_WORKER_SETS)
    rolling: Object = body["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    return rolling


@pytest.mark.parametrize("replicas", [1, 2])
async def test_with_free_nodes_as_many_groups_serve_as_before(replicas: int) -> None:
    cluster, fewest = await roll(2 * replicas + 2, replicas)
    assert (strategy(cluster), fewest) == (SURGE, replicas)


async def test_without_free_nodes_the_old_group_stops_first() -> None:
    cluster, fewest = await roll(3)
    assert (strategy(cluster), fewest) == (IN_PLACE, 0)


@pytest.mark.parametrize("strategy_of_user", ["Auto", "Surge"])
async def test_an_older_controller_gets_no_surge_that_it_would_not_end(
    strategy_of_user: str,
) -> None:
    cluster, _ = await roll(4, surges=False, rollout={"strategy": strategy_of_user})
    assert strategy(cluster) == IN_PLACE


async def test_a_group_that_runs_keeps_its_strategy_until_its_template_changes() -> None:
    cluster = Cluster({**NODES, "count": 4})
    cluster.has_leader_worker_set = True
    cluster.apply("llama", spec("registry.local/vllm:1", 1))
    await cluster.settle()
    writes = cluster.api.write_count
    cluster.groups_surge = True  # the controller is upgraded
    await cluster.settle()
    await cluster.resync()
    assert strategy(cluster) == IN_PLACE
    assert cluster.api.write_count - writes <= 1, "the status"
