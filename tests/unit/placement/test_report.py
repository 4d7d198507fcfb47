"""A decision rendered for status."""

import pytest

from tests.support.fleets.gpu_nodes import (
    H100,
    UNPRICED,
    amd_node,
    gpu_pod_body,
    mixed_fleet,
    nvidia_node,
)
from tests.support.fleets.placing import (
    H100_POOL,
    MI300X_POOL,
    UNPRICED_POOL,
    by_pool,
    decide_among,
    decide_on,
    grow,
    pools_of,
    priced,
)
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.fleet.pools.declared import read_declared_pool
from tonnage.placement.report import MAX_CANDIDATES_BYTES, list_candidates, placement_status


def test_a_candidate_is_listed_with_its_numbers() -> None:
    decision = decide_on(mixed_fleet())
    listed, omitted = list_candidates(decision)
    assert omitted == {}
    assert [entry.verdict for entry in listed] == ["Chosen"] + ["Feasible"] * 4
    (h100,) = (entry.to_dict() for entry in listed if entry.pool == H100_POOL)
    estimate = h100.pop("estimate")
    assert h100 == {
        "pool": "nvidia-h100-sxm-80gb",
        "accelerator": "h100-sxm-80gb",
        "verdict": "Feasible",
        "tensorParallelSize": 4,
        "gpusPerReplica": 4,
        "replicas": 1,
        "room": 1,
        "kvCacheTokens": by_pool(decision)[H100_POOL].option.fit.account.kv_cache_tokens,
        "costPerHour": "11.96",
        "priceSource": "List",
        "reason": "CostsMore",
        "message": "fits with TP 4 (36.5 GiB for KV a GPU); 11.96/h against 1.99/h",
    }
    assert set(estimate) == {
        "tokensPerSecond",
        "timeToFirstToken",
        "timePerOutputToken",
        "costPerMillionTokens",
        "bandPercent",
    }


def test_free_gpus_are_listed_only_where_they_are_too_few() -> None:
    decision = decide_on([amd_node("a"), nvidia_node("b")], replicas=3)
    listed, _ = list_candidates(decision)
    figures = {entry.pool: entry.to_dict() for entry in listed}
    assert (figures[MI300X_POOL]["room"], figures[H100_POOL]["room"]) == (3, 2)
    assert "freeGPUs" not in figures[MI300X_POOL]
    assert figures[H100_POOL]["freeGPUs"] == 8


def test_nodes_to_come_count_after_growth() -> None:
    pools = [grow(pool, 1) for pool in pools_of([amd_node("a")])]
    (entry,), _ = list_candidates(decide_among(pools, replicas=10))
    assert (entry.room, entry.room_after_growth, entry.free_gpus) == (8, 10, 8)
    (entry,), _ = list_candidates(decide_among(pools, replicas=2))
    assert (entry.room, entry.room_after_growth, entry.free_gpus) == (2, None, None)


def test_status_names_the_source_of_a_price() -> None:
    node, pool = priced("9.00", H100, "dear")
    decision = decide_on([node, amd_node("a"), amd_node("b", UNPRICED)], declared_pools=(pool,))
    listed, _ = list_candidates(decision)
    sources = {entry.pool: (entry.price_source, entry.cost_per_hour) for entry in listed}
    assert sources == {
        "dear": ("Pool", "36.00"),
        MI300X_POOL: ("List", "1.99"),
        UNPRICED_POOL: ("GPUCount", None),
    }


def test_a_pool_without_capacity_states_its_parallelism() -> None:
    pod = read_gpu_pod(gpu_pod_body("other", node="a", gpus={"amd": "8"}))
    assert pod is not None
    (entry,), _ = list_candidates(decide_on([amd_node("a")], pods=(pod,)))
    assert (entry.verdict, entry.reason, entry.tensor_parallel_size) == (
        "Rejected",
        "InsufficientGPUs",
        1,
    )


def test_a_pool_where_nothing_fits_has_no_parallelism() -> None:
    (entry,), _ = list_candidates(decide_on([nvidia_node("a", gpus=1)]))
    assert set(entry.to_dict()) == {"pool", "accelerator", "verdict", "reason", "message"}


def test_of_two_hundred_pools_most_are_omitted_and_counted() -> None:
    names = [f"pool-{number:03}" for number in range(200)]
    nodes = [nvidia_node(name, H100 | {"pool": name}) for name in names]
    pools = tuple(
        pool
        for name in names
        if (
            pool := read_declared_pool(
                {"metadata": {"name": name}, "spec": {"nodeSelector": {"pool": name}}}
            )
        )
    )
    decision = decide_on(nodes, declared_pools=pools)
    listed, omitted = list_candidates(decision)
    assert len(listed) == 50
    assert listed[0].verdict == "Chosen"
    assert omitted == {"RanksLower": 150}
    size = sum(len(entry.model_dump_json(by_alias=True)) for entry in listed)
    assert size < MAX_CANDIDATES_BYTES
    assert len(list_candidates(decision, limit=3)[0]) == 3


def test_a_placement_shows_its_memory_and_cost() -> None:
    decision = decide_on(mixed_fleet(), workload={"concurrency": 32})
    assert decision.chosen is not None
    status = placement_status(
        decision, decision.chosen, image="vllm:test", replicas=1, ready_replicas=0
    )
    entry = status.to_dict()
    memory, estimate = entry.pop("memory"), entry.pop("estimate")
    message, tokens = entry.pop("message"), entry.pop("kvCacheTokens")
    assert entry == {
        "name": "mi300x",
        "pool": "amd-mi300x",
        "accelerator": "mi300x",
        "tensorParallelSize": 1,
        "pipelineParallelSize": 1,
        "gpusPerReplica": 1,
        "replicas": 1,
        "readyReplicas": 0,
        "image": "vllm:test",
        "reason": "LowestCost",
        "costPerHour": "1.99",
        "priceSource": "List",
    }
    assert message.startswith("fits with TP 1")
    assert tokens == decision.chosen.fit.account.kv_cache_tokens
    parts = ("weightsGiB", "activationGiB", "nonTorchGiB", "graphGiB", "kvCacheGiB")
    assert sum(memory[part] for part in parts) == pytest.approx(memory["budgetGiB"], abs=0.3)
    assert memory["deviceGiB"] == 192.0
    assert decision.chosen.estimate is not None
    assert estimate["bandPercent"] == round(decision.chosen.estimate.band * 100)
    assert estimate["timePerOutputToken"].endswith("ms")
    per_million = 1.99 / (estimate["tokensPerSecond"] * 3600) * 1e6
    assert float(estimate["costPerMillionTokens"]) == pytest.approx(per_million, rel=0.02)


def test_without_a_price_there_is_no_cost() -> None:
    decision = decide_on([amd_node("a", UNPRICED)])
    assert decision.chosen is not None
    status = placement_status(
        decision, decision.chosen, image="vllm:test", replicas=1, ready_replicas=1
    ).to_dict()
    assert "costPerHour" not in status
    assert status["priceSource"] == "GPUCount"
    assert "costPerMillionTokens" not in status["estimate"]
