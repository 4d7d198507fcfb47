"""Pools that a node autoscaler grows from zero, and nodes that take minutes to come up."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.pricing import place_of
from tests.support.in_memory.serving import SETTLED
from tests.support.production.autoscaler import Autoscaler, InMemoryCloud, NodeGroup
from tonnage.kube.kinds import ACCELERATOR_POOLS, NODES
from tonnage.kube.protocol import Object

MINUTE = 60.0
TEAM = {"team": "chat"}
CHAT = {**MI300X, "name": "chat", "labels": TEAM}
REST = {**H100, "name": "rest", "labels": {"team": "rest"}}
CPU = {"name": "cpu"}
LARGE = "llama-3.1-405b-fp8"
WAITS = ("False", "InsufficientGPUs")


def declare(cluster: Cluster, name: str, selector: dict[str, str], **spec: Any) -> None:
    """What a platform team does; the operator reconciles every object for that."""
    body = {"metadata": {"name": name}, "spec": {"nodeSelector": selector, **spec}}
    cluster.api.put(ACCELERATOR_POOLS, body)
    cluster.look_at_all()


async def empty_pool(
    maximum: int, spec: Object | None = None, **group: Any
) -> tuple[Cluster, Autoscaler]:
    """An object that waits for a pool without nodes."""
    cluster = Cluster(CPU)
    autoscaler = Autoscaler(InMemoryCloud(cluster.api), NodeGroup({**CHAT, **group}, maximum))
    accelerator = group.get("accelerator", "mi300x")
    declare(cluster, "chat", TEAM, accelerator=accelerator, maxNodes=maximum)
    cluster.apply("llama", spec or spec_of())
    await cluster.settle()
    return cluster, autoscaler


def uids(pods: list[Object]) -> list[str]:
    return [pod["metadata"]["uid"] for pod in pods]


def nodes_of(pods: list[Object]) -> list[str | None]:
    return [pod["spec"].get("nodeName") for pod in pods]


@pytest.mark.parametrize("maximum", [1, 3])
@pytest.mark.parametrize("group", [{}, {"accelerator": "h100-sxm-80gb"}], ids=["amd", "nvidia"])
async def test_one_pod_waits_for_its_node_until_the_device_plugin_is_up(
    maximum: int, group: dict[str, Any]
) -> None:
    cluster, autoscaler = await empty_pool(maximum, **group)
    waiting = uids(cluster.pods())
    assert len(waiting) == 1
    (node,) = autoscaler.scale_up()
    for come_up, lacks in (
        (autoscaler.register, "NotReady"),
        (autoscaler.make_ready, "(is the device plugin running?)"),
    ):
        come_up(node)
        await cluster.settle()
        for _ in range(10):  # longer than spec.placement.fallback.after
            await cluster.wait(2 * MINUTE)
            await cluster.resync()
            assert cluster.conditions()["Placed"] == WAITS
            assert f"waits for the node autoscaler: chat has 1 node that is starting ({node}: " in (
                cluster.message("Placed")
            )
            assert lacks in cluster.message("Placed")
            assert "another pool is taken" not in cluster.message("Ready")
            assert uids(cluster.pods()) == waiting
            assert autoscaler.scale_up() == [], "the node that is starting is for this pod"
    autoscaler.complete(node)
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert place_of(cluster)["pool"] == "chat"
    assert uids(cluster.pods()) == waiting, "the pod that waited runs"
    assert autoscaler.scale_up() == []


async def test_a_starting_node_takes_as_many_replicas_as_it_will_have_gpus_for() -> None:
    cluster, autoscaler = await empty_pool(1)
    (node,) = autoscaler.scale_up()
    autoscaler.make_ready(node)
    cluster.apply("llama", spec_of(replicas=7))
    await cluster.settle()
    for name in ("next", "last"):
        cluster.apply(name, spec_of())
        await cluster.settle()
    pods = {name: cluster.pods(name) for name in ("llama", "next", "last")}
    assert [len(each) for each in pods.values()] == [7, 1, 0]
    assert autoscaler.scale_up() == []
    autoscaler.complete(node)
    await cluster.settle()
    assert nodes_of(cluster.pods("llama") + cluster.pods("next")) == [node] * 8
    assert cluster.conditions() == cluster.conditions("next") == SETTLED


async def test_no_pod_goes_while_the_nodes_come_one_after_the_other() -> None:
    cluster, autoscaler = await empty_pool(2, spec_of(LARGE, replicas=4))
    waiting = uids(cluster.pods())
    assert len(waiting) == 4
    first, second = autoscaler.scale_up()
    steps = (
        (autoscaler.register, first),
        (autoscaler.make_ready, first),
        (autoscaler.register, second),
        (autoscaler.complete, first),
        (autoscaler.make_ready, second),
    )
    for come_up, node in steps:
        come_up(node)
        await cluster.settle()
        assert uids(cluster.pods()) == waiting
        assert autoscaler.scale_up() == []
    autoscaler.complete(second)
    await cluster.settle()
    assert uids(cluster.pods()) == waiting
    assert cluster.conditions() == SETTLED


async def test_a_slow_node_is_not_left_for_another_pool_that_may_grow() -> None:
    cluster = Cluster(CPU)
    autoscaler = Autoscaler(InMemoryCloud(cluster.api), NodeGroup(CHAT, 1), NodeGroup(REST, 1))
    declare(cluster, "chat", TEAM, accelerator="mi300x", maxNodes=1, costPerGPUHour="1")
    declare(cluster, "rest", {"team": "rest"}, accelerator="h100-sxm-80gb", maxNodes=1)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    (node,) = autoscaler.scale_up()
    autoscaler.make_ready(node)
    for _ in range(8):
        await cluster.wait(5 * MINUTE)
        assert cluster.deployments() == ["llama-mi300x"]
        assert autoscaler.scale_up() == []
    autoscaler.complete(node)
    await cluster.settle()
    assert place_of(cluster)["pool"] == "chat"
    assert cluster.conditions() == SETTLED


async def test_free_gpus_elsewhere_are_taken_when_the_user_says_so() -> None:
    cluster, autoscaler = await empty_pool(1)
    (node,) = autoscaler.scale_up()
    autoscaler.make_ready(node)
    cluster.join(**REST)
    await cluster.settle()
    await cluster.wait(9 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]
    await cluster.wait(1 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]


async def test_a_labeller_that_comes_after_the_device_plugin_ends_no_growth() -> None:
    """The pool names no accelerator; the labels of its first node do."""
    cluster = Cluster({**CHAT, "gpusPerNode": 1})
    cluster.occupy("chat-0", 1)
    declare(cluster, "chat", TEAM, maxNodes=2)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    waiting = uids(cluster.pods())
    cluster.join(**{**CHAT, "gpusPerNode": 1, "count": 2})
    node = cluster.api.object(NODES, None, "chat-1")
    labels = node["metadata"]["labels"]
    node["metadata"]["labels"] = {**TEAM, "kubernetes.io/os": labels["kubernetes.io/os"]}
    node["spec"]["taints"] = [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]
    cluster.api.put(NODES, node)
    await cluster.settle()
    assert uids(cluster.pods()) == waiting
    assert "chat has 1 node that is starting (chat-1: not registered with Karpenter yet)" in (
        cluster.message("Placed")
    )


# What to declare


async def test_a_cluster_without_gpus_says_what_to_declare() -> None:
    cluster = Cluster(CPU)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "NoMatchingPool")
    for field in ("AcceleratorPool", "spec.nodeSelector", "spec.accelerator", "spec.maxNodes"):
        assert field in cluster.message("Placed")
    declare(cluster, "chat", TEAM, accelerator="mi300x", maxNodes=1)
    await cluster.settle()
    assert nodes_of(cluster.pods()) == [None], "a pod waits for the node autoscaler"
    assert cluster.conditions()["Placed"] == WAITS
    assert "chat may grow by 1 node" in cluster.message("Placed")


LACKING = {
    "accelerator": ({"maxNodes": 2}, "set spec.accelerator of AcceleratorPool chat"),
    "maxNodes": ({"accelerator": "mi300x"}, "set spec.maxNodes of AcceleratorPool chat"),
    "both": ({}, "set spec.maxNodes and spec.accelerator of AcceleratorPool chat"),
}


@pytest.mark.parametrize(("spec", "want_advice"), LACKING.values(), ids=LACKING)
async def test_a_pool_without_nodes_says_which_field_it_lacks(
    spec: dict[str, Any], want_advice: str
) -> None:
    cluster = Cluster(CPU)
    declare(cluster, "chat", TEAM, **spec)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert cluster.conditions()["Placed"] == WAITS
    assert want_advice in cluster.message("Placed")
    assert cluster.pods() == []
    declare(cluster, "chat", TEAM, accelerator="mi300x", maxNodes=2)
    await cluster.settle()
    assert nodes_of(cluster.pods()) == [None]


async def test_the_labels_that_a_pool_selects_may_name_its_accelerator() -> None:
    cluster = Cluster(CPU)
    declare(cluster, "chat", {"amd.com/gpu.device-id": "74a1"}, maxNodes=2)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert nodes_of(cluster.pods()) == [None]
    assert cluster.deployments() == ["llama-mi300x"]
