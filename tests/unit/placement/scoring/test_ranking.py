"""What decides between pools before the policy: verified or not, and capacity now or to come."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import Raw, amd_node, nvidia_labels, nvidia_node
from tests.support.fleets.placing import (
    H100_POOL,
    LLAMA_8B,
    MI300X_POOL,
    by_pool,
    checkpoint_of,
    chosen,
    decide_among,
    decide_on,
    declared,
    full,
    grow,
    pools_of,
    reason_of,
    taken,
)
from tonnage.api.conditions import Reason
from tonnage.checkpoint.model import Quantization
from tonnage.fleet.model import Pool
from tonnage.placement.model import Decision, Verdict

A100_POOL = "nvidia-a100-sxm-80gb"
A100 = nvidia_labels("NVIDIA-A100-SXM4-80GB", 81920)
FP8 = checkpoint_of("llama-3.3-70b-fp8-dynamic")
"""vLLM computes FP8 in 16 bits on A100 (rule Fp8WeightOnly, outcome warned)."""
BOTH = {"accelerators": ["a100-sxm-80gb", "h100-sxm-80gb"]}


def a100_and_h100(**how: Any) -> list[Raw]:
    return [nvidia_node("a100", A100, **how), nvidia_node("h100")]


class TestUnverified:
    def decide(self, nodes: list[Raw], **how: Any) -> Decision:
        placement = {**BOTH, **how.pop("placement", {})}
        return decide_on(nodes, FP8, placement=placement, **how)

    def test_the_pool_without_a_rule_is_cheaper_where_nothing_is_quantised(self) -> None:
        assert taken(decide_on(a100_and_h100(), placement=BOTH))[0] == A100_POOL

    def test_a_verified_pool_with_capacity_comes_first(self) -> None:
        decision = self.decide(a100_and_h100())
        assert taken(decision)[0] == H100_POOL
        assert decision.message.endswith(
            "the lowest cost of 1 pool with capacity where no compatibility rule warns"
        )
        assert reason_of(decision, A100_POOL) == (Verdict.FEASIBLE, "NotVerified")
        assert by_pool(decision)[A100_POOL].message.endswith(
            "compatibility rule Fp8WeightOnly warns of the model there and not on"
            " nvidia-h100-sxm-80gb (spec.placement.allow)"
        )

    def test_capacity_for_some_replicas_is_enough(self) -> None:
        decision = self.decide(a100_and_h100(), replicas=3, pods=full("h100", gpus=6))
        assert taken(decision) == (H100_POOL, 2, 3)
        assert (decision.reason, chosen(decision).capacity) == (Reason.INSUFFICIENT_GPUS, 1)

    def test_it_is_taken_while_no_verified_pool_has_capacity(self) -> None:
        decision = self.decide(a100_and_h100(), pods=full("h100"))
        assert taken(decision)[0] == A100_POOL
        assert "has no FP8 matrix units" in decision.message
        assert "; the lowest cost of 1 pool with capacity; " in decision.message

    def test_free_gpus_come_before_a_verified_pool_that_has_to_grow(self) -> None:
        pools = pools_of(a100_and_h100(), pods=full("h100"))
        grown = [grow(pool, 2) if pool.name == H100_POOL else pool for pool in pools]
        assert taken(decide_among(grown, FP8, placement=BOTH))[0] == A100_POOL

    def test_a_user_may_allow_the_rule(self) -> None:
        decision = self.decide(a100_and_h100(), placement={"allow": ["Fp8WeightOnly"]})
        assert taken(decision)[0] == A100_POOL
        assert "has no FP8 matrix units" in decision.message
        assert chosen(decision).overridden == ()

    def test_it_comes_before_memory_to_spare(self) -> None:
        alone = chosen(self.decide([nvidia_node("h100")]))
        held = alone.fit.account.kv_cache_tokens
        workload = {"concurrency": held // 2, "inputTokens": 1, "outputTokens": 1}
        nodes = [nvidia_node("a100", A100), nvidia_node("h100", gpus=alone.parallelism.gpus)]
        decision = self.decide(nodes, workload=workload, replicas=1)
        assert taken(decision)[0] == H100_POOL
        assert chosen(decision).avoided

    def test_models_that_are_verified_everywhere_are_compared_by_cost_alone(self) -> None:
        mxfp4 = replace(LLAMA_8B.shape, quantization=Quantization("mxfp4", 4, group_size=32))
        decision = decide_on([amd_node("a"), nvidia_node("h")], replace(LLAMA_8B, shape=mxfp4))
        assert taken(decision)[0] == H100_POOL
        assert taken(decide_on([amd_node("a"), nvidia_node("h")], LLAMA_8B))[0] == MI300X_POOL


def dear_now_and_cheap_later(**later: Any) -> tuple[Pool, ...]:
    """A pool at 2.99 a GPU with a free node, and one at 0.125 that is full and may grow."""
    nodes = [nvidia_node("dear", nvidia_labels("NVIDIA-H100-80GB-HBM3", 81559, pool="dear"))]
    nodes += [nvidia_node("cheap", nvidia_labels("NVIDIA-H100-80GB-HBM3", 81559, pool="cheap"))]
    declarations = (
        declared("dear", {"pool": "dear"}, costPerGPUHour="2.99"),
        declared("cheap", {"pool": "cheap"}, costPerGPUHour="0.125", **later),
    )
    return pools_of(nodes, declared_pools=declarations, pods=full("cheap"))


class TestGrowth:
    def test_the_message_counts_only_pools_with_capacity_now(self) -> None:
        decision = decide_among(dear_now_and_cheap_later(maxNodes=3))
        assert taken(decision)[0] == "dear"
        assert "at 11.96/h" in decision.message
        assert decision.message.endswith("; the lowest cost of 1 pool with capacity now")

    def test_the_cheaper_pool_says_what_it_would_take(self) -> None:
        decision = decide_among(dear_now_and_cheap_later(maxNodes=3))
        assert reason_of(decision, "cheap") == (Verdict.FEASIBLE, "LessRoom")
        assert by_pool(decision)["cheap"].message.endswith(
            "waits for the node autoscaler: cheap may grow by 2 nodes, with 1 more it can run 1;"
            " 0.50/h against 11.96/h, spec.placement.preferGrowth takes it first"
        )

    def test_the_user_may_prefer_growth(self) -> None:
        decision = decide_among(
            dear_now_and_cheap_later(maxNodes=3), placement={"preferGrowth": True}
        )
        assert taken(decision)[0] == "cheap"
        assert decision.reason is Reason.INSUFFICIENT_GPUS
        assert decision.message.endswith(
            "; the lowest cost of 2 pools with capacity, now or after growth"
        )
        assert reason_of(decision, "dear") == (Verdict.FEASIBLE, "CostsMore")

    def test_a_pool_that_cannot_grow_any_more_is_not_preferred(self) -> None:
        decision = decide_among(dear_now_and_cheap_later(), placement={"preferGrowth": True})
        assert taken(decision)[0] == "dear"
        assert reason_of(decision, "cheap") == (Verdict.REJECTED, "InsufficientGPUs")

    def test_growth_for_some_replicas_does_not_beat_capacity_for_all(self) -> None:
        pools = dear_now_and_cheap_later(maxNodes=2)
        decision = decide_among(
            pools, LLAMA_8B, replicas=9, placement={"preferGrowth": True, "accelerators": None}
        )
        assert (chosen(decision).pool.name, chosen(decision).replicas) == ("cheap", 9)
        dear = [grow(pool, 1) if pool.name == "dear" else pool for pool in pools]
        decision = decide_among(dear, LLAMA_8B, replicas=9, placement={"preferGrowth": True})
        assert taken(decision)[0] == "dear"

    def test_of_equal_pools_the_one_with_free_gpus_is_taken(self) -> None:
        pools = dear_now_and_cheap_later(maxNodes=3)
        equal = [
            replace(pool, declared=pool.declared.model_copy(update={"cost_per_gpu_hour": "1.00"}))
            for pool in pools
            if pool.declared is not None
        ]
        decision = decide_among(equal, placement={"preferGrowth": True})
        assert taken(decision)[0] == "dear"
        assert by_pool(decision)["cheap"].reason == "LessRoom"
        assert "waits for the node autoscaler" in by_pool(decision)["cheap"].message

    @pytest.mark.parametrize("placement", [{}, {"preferGrowth": True}])
    def test_pools_filled_by_cost_are_called_what_they_are(self, placement: Any) -> None:
        placement = {**placement, "spread": {"policy": "ByCost"}}
        decision = decide_among(dear_now_and_cheap_later(maxNodes=3), placement=placement)
        prefers = "preferGrowth" in placement
        assert taken(decision)[0] == ("cheap" if prefers else "dear")
        assert decision.message.endswith(
            "of 2 pools with capacity, now or after growth"
            if prefers
            else "of 1 pool with capacity now"
        )

    def test_a_pool_that_only_grows_is_called_so(self) -> None:
        (cheap,) = (pool for pool in dear_now_and_cheap_later(maxNodes=3) if pool.name == "cheap")
        assert decide_among([cheap]).message.endswith("the lowest cost of 1 pool that can grow")

    def test_capacity_for_fewer_replicas_is_distinguished(self) -> None:
        nodes = [amd_node("a", gpus=2), nvidia_node("h")]
        decision = decide_on(nodes, LLAMA_8B, replicas=4)
        assert taken(decision)[0] == H100_POOL
        assert decision.message.endswith(
            "the lowest cost of 1 pool with capacity for all replicas now"
        )
