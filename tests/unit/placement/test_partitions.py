"""Partitions of a GPU: one replica each, with a share of its memory, speed and price."""

from dataclasses import replace

from tests.support.fleets.gpu_nodes import amd_node, nvidia_node
from tests.support.fleets.placing import (
    H100_POOL,
    LLAMA_8B,
    LLAMA_70B,
    MI300X_POOL,
    by_pool,
    chosen,
    decide_among,
    pools_of,
    taken,
)
from tonnage.fit.model import Parallelism
from tonnage.fleet.model import Partition, Pool
from tonnage.fleet.pool_nodes import PoolNodes
from tonnage.placement.report import list_candidates

CPX = Partition("cpx_nps4", 24 * 2**30, 1 / 8)
MIG = Partition("3g.40gb", 40 * 2**30, 3 / 8)


def partitioned(pool: Pool, partition: Partition, devices: int) -> Pool:
    """Return the pool of one node, which offers this many free partitions instead of GPUs."""
    (node,) = pool.nodes
    node = replace(node, gpus=devices, allocatable=devices, free=devices)
    return replace(pool, partition=partition, nodes=PoolNodes.of([node]))


def cpx_pool(devices: int = 64) -> Pool:
    """Return the pool of an MI300X node in the mode with the most partitions."""
    (pool,) = pools_of([amd_node("a")])
    return partitioned(pool, CPX, devices)


def test_a_small_model_fits_in_one_partition_and_the_message_says_so() -> None:
    decision = decide_among([cpx_pool()], LLAMA_8B, workload={"maxModelLen": 8192})
    assert taken(decision) == (MI300X_POOL, 1, 1)
    assert "fits in one cpx_nps4 partition of Instinct MI300X (" in decision.message
    assert "1 replica on 1 partition at 0.25/h" in decision.message


def test_partitions_carry_no_group_and_the_message_says_so() -> None:
    decision = decide_among([cpx_pool()], LLAMA_70B)
    candidate = by_pool(decision)[MI300X_POOL]
    assert candidate.reason == "WeightsDoNotFit"
    assert candidate.message.startswith("with TP 1 the weights need 131.")
    assert (
        "; one cpx_nps4 partition of Instinct MI300X carries no TP group: TP 1 and PP 1 only"
    ) in candidate.message
    assert candidate.message.endswith(" (64 partitions on 1 node)")


def test_a_partition_has_its_share_of_the_speed() -> None:
    (whole,) = pools_of([amd_node("a")])
    how = {"workload": {"maxModelLen": 8192}, "replicas": 1, "keep": (MI300X_POOL, Parallelism())}
    whole_speed = chosen(decide_among([whole], LLAMA_8B, **how)).tokens_per_second
    part_speed = chosen(decide_among([cpx_pool()], LLAMA_8B, **how)).tokens_per_second
    assert whole_speed is not None
    assert part_speed is not None
    assert whole_speed / 9 < part_speed < whole_speed / 3


def test_a_mig_instance_is_judged_like_any_partition() -> None:
    (pool,) = pools_of([nvidia_node("h100")])
    decision = decide_among([partitioned(pool, MIG, 16)], LLAMA_8B)
    assert taken(decision)[:2] == (H100_POOL, 1)
    assert "fits in one 3g.40gb partition of " in decision.message
    (entry,), _ = list_candidates(decision)
    assert entry.cost_per_hour == "1.12"


def test_capacity_is_counted_in_partitions() -> None:
    decision = decide_among([cpx_pool(4)], LLAMA_8B, replicas=6, workload={"maxModelLen": 8192})
    assert chosen(decision).capacity == 4
    assert "capacity for 4 of 6 replicas now" in decision.message


def test_the_shortage_is_counted_in_partitions() -> None:
    pool = cpx_pool(1)
    pool = replace(pool, nodes=PoolNodes.of(replace(node, free=0) for node in pool.nodes))
    decision = decide_among([pool], LLAMA_8B, workload={"maxModelLen": 8192})
    assert decision.message == "needs 1 free partition; amd-mi300x has 0 free of 1"
