"""Latency targets and the bound on cost: options that exceed them are rejected with figures."""

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import H100, L40S, UNPRICED, amd_node, mixed_fleet, nvidia_node
from tests.support.fleets.placing import (
    H100_POOL,
    L40S_POOL,
    LLAMA_8B,
    MI300X_POOL,
    UNPRICED_POOL,
    by_pool,
    chosen,
    decide_on,
    priced,
    reason_of,
    spec_of,
    taken,
)
from tonnage.api.conditions import Reason
from tonnage.api.parse import parse_duration
from tonnage.fit.model import Parallelism
from tonnage.placement.model import Decision, Option, Rejection, Verdict
from tonnage.placement.scoring.bounds import keep_within_bounds

REJECTED = Verdict.REJECTED


def latency(decision: Decision, pool: str) -> float:
    """Milliseconds between tokens."""
    option = by_pool(decision)[pool].option
    assert option is not None
    assert option.estimate is not None
    return option.estimate.time_per_output_token_seconds * 1000


class TestLatencyTargets:
    NODES = (nvidia_node("l40s", L40S, gpus=4), nvidia_node("h100"))
    CHEAP = {"accelerators": ["l40s", "h100-sxm-80gb"]}  # noqa: RUF012 - a constant

    def decide(self, replicas: int | None = 1, concurrency: int = 1, **targets: str) -> Decision:
        workload = {"concurrency": concurrency, "latencyTargets": targets, "maxModelLen": 4096}
        fixed = {} if replicas is None else {"replicas": replicas}
        return decide_on(list(self.NODES), LLAMA_8B, workload=workload, **fixed)

    def test_a_pool_that_is_too_slow_is_rejected_with_both_figures(self) -> None:
        slow = latency(self.decide(), L40S_POOL)
        fastest = min(self.of_every_parallelism(L40S_POOL))
        target = f"{fastest * 0.9:.3f}ms"
        decision = self.decide(timePerOutputToken=target)
        assert fastest <= slow
        assert reason_of(decision, L40S_POOL) == (REJECTED, "TooSlow")
        message = by_pool(decision)[L40S_POOL].message
        figures = re.search(r"about ([0-9.]+)ms between tokens, at most ([0-9.]+)ms asked", message)
        assert figures is not None, message
        assert float(figures[1]) > float(figures[2]) == pytest.approx(fastest * 0.9, abs=0.001)
        assert re.search(r"estimate ±[0-9]+ %, with 1 request at once", message)

    @staticmethod
    def of_every_parallelism(pool: str) -> list[float]:
        latencies = []
        for degree in (1, 2, 4):
            keep = (pool, Parallelism(degree))
            nodes = list(TestLatencyTargets.NODES)
            workload = {"maxModelLen": 4096}
            decision = decide_on(nodes, LLAMA_8B, workload=workload, replicas=1, keep=keep)
            latencies.append(latency(decision, pool))
        return latencies

    def test_the_parallelism_of_a_pool_is_chosen_among_those_that_meet_them(self) -> None:
        by_degree = dict(zip((1, 2, 4), self.of_every_parallelism(L40S_POOL), strict=True))
        target = (by_degree[1] + by_degree[2]) / 2
        loose = by_pool(self.decide())[L40S_POOL].option
        tight = by_pool(self.decide(timePerOutputToken=f"{target:.3f}ms"))[L40S_POOL].option
        assert loose is not None
        assert tight is not None
        assert loose.parallelism.tensor == 1
        assert tight.parallelism.tensor > 1

    def test_the_first_token_counts_too(self) -> None:
        decision = self.decide(timeToFirstToken="1ms")
        assert decision.chosen is None
        assert decision.reason is Reason.TOO_SLOW
        assert decision.message.startswith("spec.workload.latencyTargets leave no pool; ")
        for candidate in decision.candidates:
            assert candidate.reason == "TooSlow"
            assert "to the first token, at most 1ms asked" in candidate.message

    def test_without_replicas_there_are_more_of_them_with_fewer_requests_each(self) -> None:
        one = chosen(self.decide(replicas=None, concurrency=64))
        assert one.estimate is not None
        alone = min(self.of_every_parallelism(one.pool.name))
        target = (alone + one.estimate.time_per_output_token_seconds * 1000) / 2
        hurried = self.decide(None, 64, timePerOutputToken=f"{target:.3f}ms")
        candidate = by_pool(hurried)[one.pool.name]
        assert candidate.option is not None
        assert candidate.option.replicas > one.replicas
        assert latency(hurried, one.pool.name) <= target

    def test_fixed_replicas_share_the_requests_whatever_the_target(self) -> None:
        wide = self.decide(replicas=1, concurrency=64)
        target = f"{latency(wide, L40S_POOL) * 0.5:.3f}ms"
        few = self.decide(replicas=1, concurrency=64, timePerOutputToken=target)
        assert by_pool(few)[L40S_POOL].option is not None
        assert by_pool(few)[L40S_POOL].option.replicas == 1  # type: ignore[union-attr]  # asserted

    def test_an_option_without_an_estimate_is_rejected(self) -> None:
        spec = spec_of(workload={"latencyTargets": {"timePerOutputToken": "10s"}})
        unknown = replace(chosen(self.decide()), estimate=None)
        rejected = keep_within_bounds(spec, [unknown])
        assert isinstance(rejected, Rejection)
        assert rejected.reason == "NoEstimate"
        assert rejected.message.endswith(
            "no estimate shows that it keeps to spec.workload.latencyTargets"
        )
        assert keep_within_bounds(spec_of(), [unknown]) == [unknown]


class TestCostBound:
    def bounded(self, bound: str, nodes: list[Any] | None = None, **how: Any) -> Decision:
        placement = {"maxCostPerHour": bound, **how.pop("placement", {})}
        return decide_on(nodes or mixed_fleet(), placement=placement, **how)

    def test_pools_that_cost_more_are_rejected_with_both_amounts(self) -> None:
        decision = self.bounded("2.50")
        assert taken(decision)[0] == MI300X_POOL
        assert reason_of(decision, H100_POOL) == (REJECTED, "OverBudget")
        message = by_pool(decision)[H100_POOL].message
        assert message.endswith(
            "; 11.96/h for 1 replica of 4 GPUs, and spec.placement.maxCostPerHour is 2.50"
        )

    def test_the_bound_applies_to_all_replicas_together(self) -> None:
        assert taken(self.bounded("3.98", replicas=2)) == (MI300X_POOL, 1, 2)
        decision = self.bounded("3.97", replicas=2)
        assert decision.chosen is None
        assert decision.reason is Reason.OVER_BUDGET
        assert decision.message.startswith("spec.placement.maxCostPerHour leaves no pool; ")
        assert "3.98/h for 2 replicas of 1 GPU" in decision.message

    def test_close_amounts_are_distinguishable(self) -> None:
        node, pool = priced("1.000001", H100, "near")
        decision = self.bounded("4", [node], declared_pools=(pool,))
        assert "4.000004/h for 1 replica of 4 GPUs" in decision.message

    def test_highest_throughput_is_the_fastest_split_within_the_bound(self) -> None:
        fastest = {"policy": "HighestThroughput", "accelerators": ["mi300x"]}
        free = chosen(decide_on(mixed_fleet(), placement=fastest))
        bound = chosen(self.bounded("4.00", placement=fastest))
        assert (free.parallelism.tensor, bound.parallelism.tensor) == (8, 2)

    @pytest.mark.parametrize("policy", ["LowestCost", "FewestGPUs", "HighestThroughput"])
    def test_it_applies_under_every_policy(self, policy: str) -> None:
        decision = self.bounded("8.00", placement={"policy": policy}, replicas=2)
        options = [each.option for each in decision.candidates if each.verdict is not REJECTED]
        assert options
        assert all(cost_of(option) <= 8 for option in options)

    def test_a_pool_without_a_price_is_rejected(self) -> None:
        decision = self.bounded("1000", [amd_node("a", UNPRICED)])
        assert reason_of(decision, UNPRICED_POOL) == (REJECTED, "NoPriceKnown")
        assert decision.reason is Reason.OVER_BUDGET
        assert "set costPerGPUHour of an AcceleratorPool" in decision.message

    def test_a_bound_of_zero_leaves_free_pools(self) -> None:
        node, pool = priced("0", H100, "own")
        assert taken(self.bounded("0", [node, amd_node("a")], declared_pools=(pool,)))[0] == "own"

    def test_no_replicas_cost_nothing(self) -> None:
        assert taken(self.bounded("0.01", replicas=0)) == (MI300X_POOL, 1, 0)

    def test_a_missed_target_comes_before_an_exceeded_bound(self) -> None:
        workload = {"latencyTargets": {"timePerOutputToken": "0.001ms"}}
        decision = self.bounded("0.01", workload=workload)
        assert {candidate.reason for candidate in decision.candidates} == {"TooSlow"}


def cost_of(option: Option | None) -> float:
    assert option is not None
    assert option.cost_per_hour is not None
    return float(option.cost_per_hour)


def test_the_nearest_miss_is_reported_for_the_pool() -> None:
    """Of eight splits each too slow, the one that comes nearest to the target is reported."""
    nodes = [nvidia_node("h100")]
    decision = decide_on(nodes, workload={"latencyTargets": {"timePerOutputToken": "0.1ms"}})
    option = by_pool(decision)[H100_POOL].option
    assert option is not None
    assert option.parallelism.tensor == 8
    assert parse_duration("0.1ms") < latency(decision, H100_POOL)
