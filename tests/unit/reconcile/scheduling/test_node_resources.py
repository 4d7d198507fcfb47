"""CPU, memory and disk of nodes: where replicas go, and what running ones do."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.pricing import place_of, price
from tests.support.in_memory.serving import SETTLED
from tonnage.kube.kinds import NODES
from tonnage.kube.protocol import Object

SMALL = {**H100, "gpusPerNode": 2, "cpu": 8}


def requesting(replicas: int = 1, **quantities: str) -> Object:
    """A spec whose replicas request as much."""
    template = {"spec": {"resources": {"requests": quantities}}}
    return spec_of(replicas=replicas, template=template)


def resize(cluster: Cluster, **allocatable: str) -> None:
    """All nodes have as much from now on."""
    for node in cluster.api.objects(NODES):
        node["status"]["allocatable"] |= allocatable
        cluster.api.put(NODES, node)
    cluster.watch()


@pytest.mark.parametrize(
    ("quantities", "want"),
    [
        ({"cpu": "12"}, "a replica requests 12 CPUs, and of the nodes with 1 free GPU h100-0"),
        ({"memory": "9Ti"}, "a replica requests 9216 GiB of memory, and of the nodes with 1 free"),
    ],
    ids=["CPU", "memory"],
)
async def test_replicas_that_fit_on_no_node_wait_for_larger_nodes(
    quantities: dict[str, str], want: str
) -> None:
    cluster = Cluster(SMALL)
    cluster.apply("llama", requesting(**quantities))
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "InsufficientResources")
    assert "Stalled" not in cluster.conditions()
    assert want in cluster.message("Placed")
    assert cluster.deployments() == []
    resize(cluster, cpu="64", memory="10Ti")
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_the_cheapest_pool_is_left_out_where_its_nodes_are_too_small() -> None:
    cluster = Cluster(SMALL, MI300X)
    price(cluster, "h100", "1")
    cluster.apply("llama", requesting(cpu="12"))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert place_of(cluster)["accelerator"] == "mi300x"


async def test_an_object_gets_as_many_replicas_as_nodes_can_hold() -> None:
    cluster = Cluster(SMALL)
    cluster.apply("llama", requesting(replicas=2, cpu="6"))
    await cluster.settle()
    assert len(cluster.pods()) == 1
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    want = "capacity for 1 of 2 replicas now, as the CPU, memory and storage of its nodes allow;"
    assert want in cluster.message("Placed")


@pytest.mark.parametrize("change", [{"cpu": "1"}, {"memory": "1Gi"}, {"ephemeral-storage": "1"}])
async def test_replicas_that_run_stay_on_nodes_that_shrink(change: dict[str, Any]) -> None:
    cluster = Cluster({**SMALL, "cpu": 64}, MI300X)
    price(cluster, "h100", "1")
    cluster.apply("llama", requesting(replicas=2, cpu="6", **{"ephemeral-storage": "1Mi"}))
    await cluster.settle()
    resize(cluster, **change)
    for _ in range(3):
        await cluster.resync()
        await cluster.wait(600)
    assert cluster.conditions() == SETTLED
    assert place_of(cluster)["pool"] == "h100"
    assert len(cluster.pods()) == 2


async def test_what_a_replica_requests_is_free_for_the_next_plan_of_its_object() -> None:
    cluster = Cluster({**SMALL, "cpu": 13})
    cluster.apply("llama", requesting(replicas=1, cpu="6"))
    await cluster.settle()
    cluster.apply("llama", requesting(replicas=2, cpu="6"))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert len(cluster.pods()) == 2


async def test_the_buffers_of_a_loader_count_for_the_object_that_has_them() -> None:
    """Two objects that differ in nothing else share what was planned."""
    streamer = ["--load-format=runai_streamer"]
    one_tensor = [*streamer, '--model-loader-extra-config={"memory_limit": 0}']
    cluster = Cluster({**SMALL, "count": 2, "gpusPerNode": 1})
    cluster.apply("small", spec_of(replicas=1, engine={"vllm": {"extraArgs": one_tensor}}))
    await cluster.settle()
    (pod,) = cluster.pods("small")
    requested = pod["spec"]["containers"][0]["resources"]["requests"]["memory"]
    resize(cluster, memory=requested)
    cluster.apply("large", spec_of(replicas=1, engine={"vllm": {"extraArgs": streamer}}))
    await cluster.settle()
    assert cluster.conditions("large")["Placed"] == ("False", "InsufficientResources")
