"""Free GPUs, and nodes that an autoscaler may still add."""

from dataclasses import replace

import pytest

from tests.support.fleets.gpu_nodes import H200, amd_node, mixed_fleet, nvidia_node
from tests.support.fleets.placing import (
    H100_POOL,
    H200_POOL,
    LLAMA_8B,
    MI300X_POOL,
    by_pool,
    chosen,
    decide_among,
    decide_on,
    full,
    grow,
    pools_of,
    reason_of,
    taken,
)
from tonnage.api.conditions import Reason
from tonnage.fit.model import Parallelism
from tonnage.fleet.model import Pool
from tonnage.fleet.pool_nodes import PoolNodes
from tonnage.placement.model import Verdict
from tonnage.placement.scoring.ranking import CapacityClass, capacity_class

TWO = {"accelerators": ["mi300x", "h200-sxm-141gb"]}


class TestCapacity:
    def test_without_free_gpus_the_message_has_the_shortage(self) -> None:
        nodes = [nvidia_node(f"h100-{n}") for n in range(4)]
        busy = full("h100-0", "h100-1", "h100-2", "h100-3")
        decision = decide_on(nodes, pods=busy)
        assert decision.reason is Reason.INSUFFICIENT_GPUS
        assert decision.message == (
            "needs 4 free GPUs on one node; nvidia-h100-sxm-80gb has 0 free of 32"
        )
        assert reason_of(decision, H100_POOL) == (Verdict.REJECTED, "InsufficientGPUs")
        assert by_pool(decision)[H100_POOL].option is not None

    def test_free_gpus_on_different_nodes_cannot_run_one_replica(self) -> None:
        nodes = [nvidia_node("a"), nvidia_node("b")]
        decision = decide_on(nodes, pods=full("a", "b", gpus=5))
        assert decision.chosen is None
        assert decision.message.endswith("has 6 free of 16, at most 3 on one node")

    def test_a_more_expensive_pool_is_chosen_over_a_full_one(self) -> None:
        busy = full(*(f"mi300x-{n}" for n in range(4)), vendor="amd")
        decision = decide_on(mixed_fleet(), pods=busy, placement=TWO)
        assert taken(decision)[0] == H200_POOL
        assert reason_of(decision, MI300X_POOL) == (Verdict.REJECTED, "InsufficientGPUs")

    def test_capacity_for_all_replicas_beats_capacity_for_some(self) -> None:
        busy = full(*(f"mi300x-{n}" for n in range(3)), vendor="amd") + full(
            "mi300x-3", gpus=7, vendor="amd"
        )
        decision = decide_on(mixed_fleet(), pods=busy, replicas=2, placement=TWO)
        assert taken(decision) == (H200_POOL, 2, 2)
        candidate = by_pool(decision)[MI300X_POOL]
        assert (candidate.verdict, candidate.reason) == (Verdict.FEASIBLE, "LessRoom")
        assert candidate.message.endswith("capacity for 1 of 2 replicas now")

    def test_capacity_for_some_replicas_beats_none(self) -> None:
        decision = decide_on([amd_node("a", gpus=2)], replicas=3)
        assert (chosen(decision).replicas, chosen(decision).capacity) == (3, 2)
        assert decision.reason is Reason.INSUFFICIENT_GPUS
        assert "capacity for 2 of 3 replicas now" in decision.message

    def test_placement_waits_for_unusable_nodes(self) -> None:
        decision = decide_on([amd_node("a", ready="False")])
        assert decision.reason is Reason.INSUFFICIENT_GPUS
        assert "a: NotReady" in decision.message

    def test_zero_replicas_are_placed_at_the_price_of_one(self) -> None:
        decision = decide_on(mixed_fleet(), replicas=0)
        assert taken(decision) == (MI300X_POOL, 1, 0)
        assert decision.reason is Reason.SCALED_TO_ZERO
        assert by_pool(decision)[H200_POOL].message.endswith("6.00/h against 1.99/h")

    def test_zero_replicas_need_no_capacity(self) -> None:
        decision = decide_on([amd_node("a")], replicas=0, pods=full("a", vendor="amd"))
        assert taken(decision) == (MI300X_POOL, 1, 0)


def growing(pools: tuple[Pool, ...], **nodes: int) -> tuple[Pool, ...]:
    """Return the pools; those whose names end with a keyword may grow by that many nodes."""
    return tuple(
        next((grow(pool, by) for end, by in nodes.items() if pool.name.endswith(end)), pool)
        for pool in pools
    )


class TestNodesToCome:
    """One MI300X node of 8 GPUs, all in use, in a pool that may grow."""

    FULL = pools_of([amd_node("a")], pods=full("a", vendor="amd"))

    def test_a_full_pool_that_may_grow_is_chosen_and_waits(self) -> None:
        decision = decide_among(growing(self.FULL, mi300x=2), replicas=3)
        option = chosen(decision)
        assert (option.capacity, option.grown_capacity, option.awaited_nodes) == (0, 16, 1)
        assert decision.reason is Reason.INSUFFICIENT_GPUS
        assert (
            "capacity for 0 of 3 replicas now; waits for the node autoscaler: "
            "amd-mi300x may grow by 2 nodes, with 1 more it can run 3"
        ) in decision.message

    def test_a_full_pool_that_may_not_grow_is_rejected(self) -> None:
        decision = decide_among(self.FULL, replicas=3)
        assert decision.chosen is None
        assert reason_of(decision, MI300X_POOL) == (Verdict.REJECTED, "InsufficientGPUs")

    def test_only_needed_nodes_are_awaited(self) -> None:
        decision = decide_among(growing(self.FULL, mi300x=9), replicas=17)
        assert chosen(decision).awaited_nodes == 3
        assert "with 3 more it can run 17" in decision.message

    def test_more_replicas_than_all_nodes_to_come_can_run(self) -> None:
        decision = decide_among(growing(self.FULL, mi300x=1), replicas=10)
        assert "with 1 more it can run 8" in decision.message

    def test_capacity_now_comes_before_cheaper_capacity_to_come(self) -> None:
        dear = pools_of([nvidia_node("h200", H200)])
        decision = decide_among(growing((*self.FULL, *dear), mi300x=4))
        assert taken(decision)[0] == H200_POOL
        assert decision.reason is Reason.POOL_CHOSEN
        candidate = by_pool(decision)[MI300X_POOL]
        assert (candidate.verdict, candidate.reason) == (Verdict.FEASIBLE, "LessRoom")
        assert "capacity for 0 of 1 replica now; waits for the node autoscaler" in candidate.message

    def test_replicas_on_cordoned_nodes_count_in_addition_to_nodes_to_come(self) -> None:
        pools = growing(pools_of([amd_node("a", cordoned=True)]), mi300x=1)
        keep = (MI300X_POOL, Parallelism(1))
        option = chosen(decide_among(pools, replicas=9, keep=keep, held=2))
        assert (option.capacity, option.grown_capacity) == (2, 10)

    def test_placement_waits_for_the_first_node_of_a_pool(self) -> None:
        empty = grow(replace(self.FULL[0], nodes=PoolNodes.of(())), 3)
        decision = decide_among([empty], replicas=9)
        option = chosen(decision)
        assert (option.capacity, option.grown_capacity, option.awaited_nodes) == (0, 24, 2)
        assert "amd-mi300x may grow by 3 nodes, with 2 more it can run 9" in decision.message

    def test_a_pool_without_nodes_and_catalogued_size_is_rejected(self) -> None:
        full = self.FULL[0]
        assert full.accelerator is not None
        unknown_size = replace(full.accelerator, gpus_per_node=None)
        empty = grow(replace(full, nodes=PoolNodes.of(()), accelerator=unknown_size), 3)
        candidate = by_pool(decide_among([empty]))[MI300X_POOL]
        assert (candidate.verdict, candidate.reason) == (Verdict.REJECTED, "NoUsableNodes")
        assert "of the 3 nodes that may come is not known until one exists" in candidate.message


CAPACITIES = {
    "all now": (3, 3, 0, CapacityClass.ALL_NOW),
    "some now, the rest later": (2, 3, 1, CapacityClass.SOME_NOW_ALL_LATER),
    "some now, more later, never all": (1, 2, 1, CapacityClass.SOME_NOW),
    "all later": (0, 8, 1, CapacityClass.ALL_LATER),
    "some later": (0, 2, 1, CapacityClass.SOME_LATER),
    "never": (0, 0, 0, CapacityClass.NONE),
}


@pytest.mark.parametrize(
    ("capacity", "grown", "nodes", "want"), CAPACITIES.values(), ids=CAPACITIES.keys()
)
def test_options_are_classified_by_what_starts_and_when(
    capacity: int, grown: int, nodes: int, want: CapacityClass
) -> None:
    option = chosen(decide_on([amd_node("a")], LLAMA_8B, replicas=3))
    option = replace(option, capacity=capacity, grown_capacity=grown)
    assert capacity_class(option) is want
    assert option.awaited_nodes == nodes
    assert capacity_class(replace(option, replicas=0)) is CapacityClass.ALL_NOW
