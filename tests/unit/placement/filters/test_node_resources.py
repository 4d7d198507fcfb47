"""Nodes that have the GPUs and lack CPU, memory or storage."""

from typing import Any

import pytest

from tests.support.gpu_nodes import Raw, amd_node, nvidia_node
from tests.support.placing import (
    CATALOG,
    H100_POOL,
    LLAMA_8B,
    OWNER,
    by_pool,
    chosen,
    declared,
    pools_of,
    spec_of,
)
from tonnage.api.conditions import Reason
from tonnage.fleet.model import BoundPod
from tonnage.fleet.resources import Resources
from tonnage.placement.decide import decide
from tonnage.placement.model import Decision, PodDemands, Request, Verdict
from tonnage.placement.pod_demand import PodDemand

GIB = 1024**3
REPLICA = Resources(0, 4000, 64 * GIB, 100 * GIB)


def h100(name: str, **allocatable: str) -> Raw:
    node = nvidia_node(name)
    node["status"]["allocatable"] |= {"ephemeral-storage": "500Gi", **allocatable}
    return node


def used(node: str, cpu: int = 0, memory: int = 0, storage: int = 0) -> BoundPod:
    return BoundPod(node, Resources(0, cpu * 1000, memory * GIB, storage * GIB))


def request_for(**spec: Any) -> Request:
    demands = PodDemands("replica", lambda option: PodDemand(REPLICA))
    return Request(OWNER, spec_of(**{"replicas": 1, **spec}), LLAMA_8B, pods=demands)


def decide_for(nodes: list[Raw], *pods: BoundPod, **spec: Any) -> Decision:
    return decide(request_for(**spec), pools_of(nodes, pods=pods), CATALOG)


SHORTAGES = {
    "memory": (
        (used("h100-0", memory=1988), used("h100-1", memory=1999)),
        "no node has 64 GiB of memory free: h100-0 has 12 GiB of 2,000 GiB of memory",
    ),
    "CPU": (
        (used("h100-0", cpu=188), used("h100-1", cpu=191)),
        "no node has 4 CPU free: h100-0 has 3 CPU of 191 CPU",
    ),
    "storage": (
        (used("h100-0", storage=401), used("h100-1", storage=500)),
        "no node has 100 GiB of ephemeral storage free: h100-0 has 99 GiB of 500 GiB of ephemeral"
        " storage",
    ),
    "something else on each node": (
        (used("h100-0", memory=1988), used("h100-1", cpu=190)),
        "no node has 64 GiB of memory, 4 CPU, 100 GiB of ephemeral storage free at once: h100-0 has"
        " 12 GiB of 2,000 GiB of memory",
    ),
}


@pytest.mark.parametrize(("pods", "message"), SHORTAGES.values(), ids=SHORTAGES.keys())
def test_a_pool_whose_nodes_cannot_carry_the_pod_is_rejected(
    pods: tuple[BoundPod, ...], message: str
) -> None:
    decision = decide_for([h100("h100-0"), h100("h100-1")], *pods)
    assert decision.chosen is None
    assert decision.reason is Reason.INSUFFICIENT_RESOURCES
    candidate = by_pool(decision)[H100_POOL]
    assert (candidate.verdict, candidate.reason) == (Verdict.REJECTED, "InsufficientResources")
    assert candidate.message.endswith(f"but {message}")


def test_another_pool_is_taken() -> None:
    nodes = [h100("h100-0", memory="32Gi"), amd_node("a")]
    assert chosen(decide_for(nodes)).pool.name == "amd-mi300x"


def test_the_capacity_counts_cpu_and_memory() -> None:
    pods = used("h100-0", memory=1800), used("h100-1", cpu=179)
    decision = decide_for([h100("h100-0"), h100("h100-1")], *pods, replicas=10)
    assert (chosen(decision).replicas, chosen(decision).capacity) == (10, 3 + 3)
    assert decision.reason is Reason.INSUFFICIENT_GPUS
    assert "capacity for 6 of 10 replicas now" in decision.message


def test_only_nodes_with_enough_free_gpus_are_compared() -> None:
    nodes = [h100("h100-0"), h100("h100-1", **{"nvidia.com/gpu": "0"})]
    decision = decide_for(nodes, used("h100-0", memory=1999))
    assert "but no node has 64 GiB of memory free: h100-0 has 1 GiB" in decision.message


def test_a_node_that_states_no_memory_has_enough() -> None:
    node = nvidia_node("h100-0")
    del node["status"]["allocatable"]["memory"]
    assert chosen(decide_for([node])).capacity == 8


def test_a_node_to_come_is_as_large_as_the_largest_one() -> None:
    node = h100("h100-0", memory="80Gi")
    node["metadata"]["labels"]["team"] = "a"
    pool = declared("a", {"team": "a"}, maxNodes=3)
    pools = pools_of([node], declared_pools=(pool,))
    option = chosen(decide(request_for(replicas=9), pools, CATALOG))
    assert (option.capacity, option.grown_capacity) == (1, 3)
