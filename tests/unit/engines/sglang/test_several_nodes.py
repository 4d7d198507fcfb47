"""SGLang over several nodes: pipeline stages, or one tensor-parallel group where the user allows
it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import Raw, nvidia_node, with_resources
from tests.support.fleets.placing import (
    DEEPSEEK_V3,
    H100_POOL,
    LLAMA_70B,
    by_pool,
    chosen,
    decide_on,
)
from tests.support.in_memory.cluster import H100, Cluster, spec_of
from tonnage.catalog.sglang import load_sglang_memory
from tonnage.engines.metrics import MeasuredCache
from tonnage.engines.registry import engine_named
from tonnage.fit.model import Parallelism
from tonnage.fit.sglang.fraction import static_fraction
from tonnage.fit.sglang.model import Device, Replica, ServerOptions
from tonnage.fit.sglang.pools import size_pools
from tonnage.kube.kinds import PODS
from tonnage.placement.model import Decision

RDMA = {"rdma/ib": "1k"}
OVER_NODES = {"multiNode": {"maxNodes": 2, "tensorParallel": True}}


def h100s(count: int, **resources: str) -> list[Raw]:
    """Nodes of 8 H100."""
    return [with_resources(nvidia_node(f"h100-{n}"), resources) for n in range(count)]


def decide(nodes: list[Raw], **how: Any) -> Decision:
    engine = {"sglang": {}}
    return decide_on(nodes, DEEPSEEK_V3, has_leader_worker_set=True, engine=engine, **how)


def test_a_tensor_parallel_group_takes_two_nodes_where_the_user_allows_it() -> None:
    option = chosen(decide(h100s(2, **RDMA), placement=OVER_NODES))
    assert option.parallelism == Parallelism(tensor=16, nodes=2)
    account = option.fit.account
    assert account.kv_cache_tokens >= 8192
    assert account.stages == ()


@pytest.mark.parametrize("placement", [{}, {"multiNode": {"maxNodes": 2}}])
def test_without_that_each_node_is_a_pipeline_stage(placement: dict[str, Any]) -> None:
    option = chosen(decide(h100s(2, **RDMA), placement=placement))
    assert option.parallelism == Parallelism(tensor=8, pipeline=2, nodes=2)
    account = option.fit.account
    assert [stage.layers for stage in account.stages] == [30, 31]
    assert account.kv_cache_tokens == min(stage.kv_cache_tokens for stage in account.stages)


@pytest.mark.parametrize(
    ("sglang", "shape", "why"),
    [
        ({}, {"architecture": "BailingMoeForCausalLM"}, "stages of BailingMoeForCausalLM are not"),
        (
            {"extraArgs": ["--speculative-algorithm=EAGLE"]},
            {},
            "--speculative-algorithm and pipeline stages exclude each other: a draft model",
        ),
        (
            {"env": [{"name": "SGLANG_PP_LAYER_PARTITION", "value": "30,31"}]},
            {},
            "SGLANG_PP_LAYER_PARTITION and pipeline stages exclude each other",
        ),
    ],
)
def test_without_stages_the_reason_says_what_it_needs(
    sglang: dict[str, Any], shape: dict[str, Any], why: str
) -> None:
    model = replace(DEEPSEEK_V3, shape=replace(DEEPSEEK_V3.shape, **shape))
    nodes, engine = h100s(2, **RDMA), {"sglang": sglang}
    decision = decide_on(nodes, model, has_leader_worker_set=True, engine=engine)
    assert decision.chosen is None
    message = by_pool(decision)[H100_POOL].message
    assert message.startswith("even with TP 8 the weights need")
    assert "spec.placement.multiNode.tensorParallel" in message
    assert why in message
    assert "(rule PipelineParallel)" in message


def test_on_one_node_nothing_is_said_of_several() -> None:
    decision = decide(h100s(2, **RDMA), placement={"multiNode": "Never"})
    assert "multiNode" not in by_pool(decision)[H100_POOL].message


def test_without_a_network_the_reason_says_how_to_declare_one() -> None:
    message = by_pool(decide(h100s(2)))[H100_POOL].message
    assert message.startswith("fits with TP 8, PP 2 on 2 nodes")
    assert "has no known network between its nodes" in message


def test_one_node_is_enough_where_the_model_fits() -> None:
    engine = {"sglang": {}}
    decision = decide_on(
        h100s(2, **RDMA), LLAMA_70B, has_leader_worker_set=True, engine=engine, placement={}
    )
    assert chosen(decision).parallelism.nodes == 1
    assert "multiNode" not in decision.message


@pytest.mark.parametrize(
    ("sizes", "want"),
    [
        (["--tp-size=16"], Parallelism(16, nodes=2)),
        (["--tp-size=8", "--pp-size=2"], Parallelism(8, 2, nodes=2)),
    ],
)
def test_the_parallelism_is_read_back(sizes: list[str], want: Parallelism) -> None:
    arguments = [*sizes, "--nnodes=2", "--node-rank=0"]
    engine = engine_named("sglang")
    assert engine.read_parallelism(arguments) == want
    assert engine.render_worker_arguments(arguments) == arguments


@pytest.mark.parametrize(
    ("arch", "memory_mib", "fraction", "tokens"),
    [("sm_90", 81559, 0.787, 291_015), ("gfx942", 196592, 0.857, 373_858)],
)
def test_the_memory_of_16_gpus_is_that_of_sglang(
    arch: str, memory_mib: int, fraction: float, tokens: int
) -> None:
    """As SGLang 0.5.23 configured DeepSeek-V3 in 16 bits with TP 16, by
    tests/support/sglang_memory/configure.py on 2026-11-27."""
    memory, free, weights = load_sglang_memory(), 83_164_256_010, 45_000_000_000
    options = ServerOptions(32768, tensor_parallel_size=16)
    replica = Replica(DEEPSEEK_V3.shape, options, Device(arch, memory_mib))
    static = static_fraction(replica, memory)
    assert static.fraction == pytest.approx(fraction, abs=1e-9)
    assert size_pools(replica, int(free * static.fraction) - weights, memory).tokens == tokens


@pytest.mark.parametrize(("how", "sizes"), [(OVER_NODES, (16, 1, 2)), ({}, (8, 2, 2))])
async def test_a_group_serves_and_is_measured_as_one_replica(
    how: dict[str, Any], sizes: tuple[int, int, int]
) -> None:
    cluster = Cluster({**H100, "count": 2, "resources": RDMA})
    cluster.has_leader_worker_set = True
    spec = spec_of(model="deepseek-v3", engine={"sglang": {}}, placement=how)
    cluster.apply("llama", spec)
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    (placement,) = cluster.status()["placements"]
    names = "tensorParallelSize", "pipelineParallelSize", "nodesPerReplica"
    assert tuple(placement[name] for name in names) == sizes
    leader, worker = (pod["spec"]["containers"][0] for pod in cluster.api.objects(PODS))
    assert leader["args"] == worker["args"]
    assert ("readinessProbe" in leader, "readinessProbe" in worker) == (True, False)
    cluster.measured["llama"] = MeasuredCache(placement["kvCacheTokens"])
    await cluster.resync()
    assert cluster.conditions()["PredictionAccurate"] == ("True", "AsPredicted")
