"""Nodes whose GPUs are free, and whose CPU, memory or storage is not enough for a replica."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import Raw, gpu_pod_body, nvidia_node
from tests.support.fleets.placing import (
    H100_POOL,
    LLAMA_8B,
    OWNER,
    by_pool,
    declared,
    pools_of,
    spec_of,
)
from tonnage.api.conditions import Reason
from tonnage.catalog.load import load_catalog
from tonnage.fit.model import Parallelism
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.fleet.pool_nodes import PoolNode, PoolNodes
from tonnage.fleet.resources import Resources
from tonnage.placement.decide import decide
from tonnage.placement.model import Decision, ReplicaPods, Request, Verdict

CATALOG = load_catalog()
GIB = 2**30


def node(name: str, **allocatable: str) -> Raw:
    raw = nvidia_node(name)
    named = {key.replace("_", "-"): value for key, value in allocatable.items()}
    raw["status"]["allocatable"] |= named
    return raw


def decide_with(nodes: list[Raw], requests: Resources, **how: Any) -> Decision:
    """What is decided for pods that request as much for each of their GPUs."""
    pods = ReplicaPods(requests, lambda option: requests.times(option.parallelism.gpus))
    of_request = {key: how.pop(key) for key in ("keep", "held") if key in how}
    pools = pools_of(
        nodes, **{key: how.pop(key) for key in ("pods", "declared_pools") if key in how}
    )
    spec = spec_of(replicas=2, **how)
    return decide(Request(OWNER, spec, LLAMA_8B, pods=pods, **of_request), pools, CATALOG)


NODES = {
    "CPU": (
        [node("a", cpu="4"), node("b", cpu="7500m")],
        "a replica requests 8 CPUs, and of the nodes with 1 free GPU b comes nearest with 7.5 CPUs;"
        " lower resources.requests.cpu of the container vllm in spec.podTemplate, or add"
        " larger nodes",
    ),
    "memory": (
        [node("a", memory="40Gi"), node("b", memory="1Gi")],
        "a replica requests 64 GiB of memory, and of the nodes with 1 free GPU a comes nearest with"
        " 40 GiB of memory; lower resources.requests.memory of the container vllm in"
        " spec.podTemplate, or add larger"
        " nodes",
    ),
    "storage": (
        [node("a", ephemeral_storage="50G")],
        "a replica requests 100 GiB of ephemeral storage, and of the nodes with 1 free GPU a comes"
        " nearest with 46.57 GiB of ephemeral storage; lower"
        " resources.requests.ephemeral-storage of the container vllm in spec.podTemplate, or add"
        " larger nodes",
    ),
    "one thing here and another there": (
        [node("a", cpu="4", memory="1Gi"), node("b", cpu="7"), node("c", memory="8Gi")],
        "a replica requests 8 CPUs, and of the nodes with 1 free GPU b comes nearest with 7 CPUs;"
        " lower resources.requests.cpu of the container vllm in spec.podTemplate, or add"
        " larger nodes",
    ),
}


@pytest.mark.parametrize(("nodes", "want"), NODES.values(), ids=NODES)
def test_a_pool_without_a_node_for_the_pods_is_rejected(nodes: list[Raw], want: str) -> None:
    decision = decide_with(nodes, Resources(8000, 64 * GIB, 100 * GIB))
    candidate = by_pool(decision)[H100_POOL]
    assert (candidate.verdict, candidate.reason) == (Verdict.REJECTED, "InsufficientResources")
    assert candidate.message.startswith("fits with TP 1 (")
    assert candidate.message.endswith(f", but {want}")
    assert decision.reason is Reason.INSUFFICIENT_RESOURCES
    assert decision.message == f"{H100_POOL}: {candidate.message}"


def test_pods_with_gpus_leave_the_rest_of_a_node() -> None:
    body = gpu_pod_body("other", node="a", gpus={"nvidia": "2"})
    body["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "92"}
    pod = read_gpu_pod(body)
    assert pod is not None
    decision = decide_with([node("a", cpu="96")], Resources(8000), pods=(pod,))
    assert "a comes nearest with 4 CPUs left of 96 CPUs;" in decision.message


@pytest.mark.parametrize(("cpu", "want"), [("7", 0), ("8", 1), ("15", 1), ("16", 2), ("100", 12)])
def test_only_replicas_whose_requests_fit_are_capacity(cpu: str, want: int) -> None:
    candidate = by_pool(decide_with([node("a", cpu=cpu), node("b", cpu="1")], Resources(8000)))
    option = candidate[H100_POOL].option
    assert option is not None
    assert option.capacity == min(want, 8)


def test_a_pool_that_lacks_gpus_is_the_nearest_miss() -> None:
    team = declared("team", {"team": "a"})
    full = nvidia_node("full")
    full["metadata"]["labels"]["team"] = "a"
    pods = read_gpu_pod(gpu_pod_body("other", node="full", gpus={"nvidia": "8"}))
    assert pods is not None
    decision = decide_with(
        [node("a", cpu="4"), full], Resources(8000), pods=(pods,), declared_pools=(team,)
    )
    reasons = [(one.pool.name, one.reason) for one in decision.candidates]
    assert reasons == [("team", "InsufficientGPUs"), (H100_POOL, "InsufficientResources")]
    assert decision.reason is Reason.INSUFFICIENT_GPUS


def test_the_nodes_of_a_pool_without_free_gpus_are_not_listed() -> None:
    def fail() -> Iterable[PoolNode]:
        raise AssertionError("thousands of nodes are listed")

    pod = read_gpu_pod(gpu_pod_body("other", node="a", gpus={"nvidia": "8"}))
    assert pod is not None
    (pool,) = pools_of([node("a", cpu="4")], pods=(pod,))
    counted = replace(pool, nodes=PoolNodes(pool.nodes.counts, fail))
    pods = ReplicaPods(Resources(8000), lambda _: Resources(8000))
    decision = decide(Request(OWNER, spec_of(), LLAMA_8B, pods=pods), [counted], CATALOG)
    assert decision.reason is Reason.INSUFFICIENT_GPUS


def test_a_pool_grows_by_nodes_that_are_large_enough() -> None:
    team = declared("team", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, maxNodes=3)
    for cpu, want in (("8", Reason.INSUFFICIENT_GPUS), ("7", Reason.INSUFFICIENT_RESOURCES)):
        body = gpu_pod_body("other", node="a", gpus={"nvidia": "1"})
        body["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "2"}
        pod = read_gpu_pod(body)
        assert pod is not None
        nodes = [node("a", cpu=cpu)]
        decision = decide_with(nodes, Resources(8000), pods=(pod,), declared_pools=(team,))
        assert decision.reason is want
        if decision.chosen is not None:
            assert (decision.chosen.grown_capacity, decision.chosen.awaited_nodes) == (2, 2)


def test_replicas_that_run_stay_whatever_the_nodes_have() -> None:
    keep = (H100_POOL, Parallelism())
    decision = decide_with([node("a", cpu="1")], Resources(8000), keep=keep, held=2)
    assert decision.chosen is not None
    assert (decision.chosen.pool.name, decision.chosen.capacity) == (H100_POOL, 2)
    assert decision.reason is Reason.POOL_CHOSEN
