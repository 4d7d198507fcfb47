"""In any fleet each pool has one candidate with a reason, and the decision is deterministic."""

import re
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fleets.gpu_nodes import amd_node, nvidia_node
from tests.support.fleets.placing import CATALOG, LLAMA_70B, pools_of, spec_of
from tests.support.fleets.random_fleets import random_pools, random_request
from tonnage.fleet.model import Pool
from tonnage.placement.decide import decide
from tonnage.placement.filters.latency import meets_targets
from tonnage.placement.model import Candidate, Decision, Option, Request, Verdict
from tonnage.placement.reasons import ChosenReason, FeasibleReason, RejectedReason, nearness
from tonnage.placement.report import list_candidates
from tonnage.placement.scoring.ranking import CapacityClass, capacity_class, rank

RANDOMS = st.randoms(use_true_random=False)
NODES = st.integers(0, 12)
REASONS = {
    Verdict.CHOSEN: set(ChosenReason),
    Verdict.FEASIBLE: set(FeasibleReason),
    Verdict.REJECTED: set(RejectedReason),
}
STANDS_AGAINST: dict[str, str] = {
    "CostsMore": r"/h against [\d.]+/h",
    "NoPriceKnown": "no price known",
    "NeedsMoreGPUs": r"\d (GPU|partition)s? against \d",
    "Slower": r"about \d+ tokens/s against about \d+ tokens/s \(estimate ±\d+ %\)",
    "LessRoom": r"capacity for \d+ of \d+ replicas? now",
    "NotVerified": r"compatibility rules? \w+(, \w+)* warns? of the model there",
    "TightFit": "tightFit is Avoid",
    "RanksLower": "against|comes first",
    "ReplicasRunElsewhere": "replicas stay on",
    "InsufficientGPUs": r"needs \d+ free .* has \d+ free of \d+",
    "NoUsableNodes": "no usable node|no node has the labels|none of its",
    "OverBudget": r"[\d.]+/h for .* spec.placement.maxCostPerHour is [\d.]+",
    "TooSlow": r"about [\d.]+m?s .*, at most .+ asked \(estimate ±\d+ %",
    "NoEstimate": "no estimate",
    "KVCacheDoesNotFit": r"the KV cache of \d+ tokens needs [\d.]+ GiB",
    "OverheadDoesNotFit": r"needs? [\d.]+ GiB",
    "WeightsDoNotFit": r"the weights need [\d.]+ GiB a GPU; -?[\d.]+ of its [\d.]+ GiB are left",
    "IllegalParallelism": r"no valid parallelism for \d+",
    "Incompatible": r"\(rule \w+\)",
    "UnsupportedArchitecture": r"\(rule Architecture\w+\)",
    "Unsupported": "mi100",
    "Unrecognised": r"\d GPU",
    "NotSelected": "spec.placement.poolSelector asks for label team=chat",
    "NotAllowed": "is not in spec.placement.accelerators",
}
"""What a message has to name for its reason."""


def request_and_pools(random: Random, nodes: int) -> tuple[Request, tuple[Pool, ...]]:
    pools = random_pools(random, nodes)
    return random_request(random, pools), pools


def option_of(candidate: Candidate) -> Option:
    assert candidate.option is not None
    return candidate.option


@given(RANDOMS, NODES)
@settings(max_examples=150, deadline=None)
def test_every_pool_has_one_candidate_with_a_reason_and_numbers(random: Any, nodes: int) -> None:
    request, pools = request_and_pools(random, nodes)
    decision = decide(request, pools, CATALOG)
    names = [candidate.pool.name for candidate in decision.candidates]
    assert sorted(names) == sorted(pool.name for pool in pools)
    for candidate in decision.candidates:
        assert candidate.reason in REASONS[candidate.verdict]
        assert re.search(r"\d", candidate.message)
        against = STANDS_AGAINST.get(candidate.reason, "fits")
        assert re.search(against, candidate.message), (candidate.reason, candidate.message)
    assert decision.message


@given(RANDOMS, NODES)
@settings(max_examples=100, deadline=None)
def test_candidates_are_listed_best_first_and_the_chosen_one_first_of_all(
    random: Any, nodes: int
) -> None:
    request, pools = request_and_pools(random, nodes)
    decision = decide(request, pools, CATALOG)
    verdicts = [candidate.verdict for candidate in decision.candidates]
    order = [Verdict.CHOSEN, Verdict.FEASIBLE, Verdict.REJECTED]
    assert verdicts == sorted(verdicts, key=order.index)
    assert verdicts.count(Verdict.CHOSEN) == (decision.chosen is not None)
    feasible = [
        rank(option_of(candidate), request.spec.placement)
        for candidate in decision.candidates
        if candidate.verdict is Verdict.FEASIBLE
    ]
    assert feasible == sorted(feasible)
    rejected = [
        nearness(candidate.reason)
        for candidate in decision.candidates
        if candidate.verdict is Verdict.REJECTED
    ]
    assert rejected == sorted(rejected)


@given(RANDOMS, NODES)
@settings(max_examples=150, deadline=None)
def test_the_chosen_pool_fits_has_capacity_and_meets_all_bounds(random: Any, nodes: int) -> None:
    request, pools = request_and_pools(random, nodes)
    spec = request.spec
    for candidate in decide(request, pools, CATALOG).candidates:
        if candidate.verdict is Verdict.REJECTED:
            continue
        option = option_of(candidate)
        assert option.fit.account.kv_cache_tokens >= option.fit.required_tokens
        assert option.fit.required_tokens >= spec.workload.max_model_len
        assert option.replicas == 0 or option.grown_capacity > 0
        assert option.parallelism.gpus <= option.pool.largest_node
        assert option.pool.partition is None or option.parallelism.gpus == 1
        if spec.workload.latency_targets.are_set:
            assert option.estimate is not None
            assert meets_targets(spec.workload.latency_targets, option.estimate)
        if spec.placement.max_cost_per_hour is not None:
            assert option.cost_per_hour is not None
            assert option.cost_per_hour <= Decimal(spec.placement.max_cost_per_hour)
        if spec.replicas is not None:
            assert option.replicas == spec.replicas
        else:
            assert spec.scaling.min_replicas <= option.replicas <= spec.scaling.max_replicas


@given(RANDOMS, NODES)
@settings(max_examples=100, deadline=None)
def test_no_object_waits_for_a_node_while_a_pool_has_capacity(random: Any, nodes: int) -> None:
    request, pools = request_and_pools(random, nodes)
    decision = decide(replace(request, keep=None), pools, CATALOG)
    if decision.chosen is None or capacity_class(decision.chosen) < CapacityClass.ALL_LATER:
        return
    capacities = [
        option_of(candidate).capacity
        for candidate in decision.candidates
        if candidate.option is not None
    ]
    feasible = [
        candidate for candidate in decision.candidates if candidate.verdict is not Verdict.REJECTED
    ]
    assert all(option_of(candidate).capacity == 0 for candidate in feasible), capacities
    assert "waits for the node autoscaler" in decision.message
    assert decision.reason == "InsufficientGPUs"


@given(RANDOMS, NODES)
@settings(max_examples=100, deadline=None)
def test_the_order_of_pools_does_not_matter(random: Any, nodes: int) -> None:
    request, pools = request_and_pools(random, nodes)
    shuffled = random.sample(pools, len(pools))
    assert decide(request, shuffled, CATALOG) == decide(request, pools, CATALOG)


@given(RANDOMS)
@settings(max_examples=40, deadline=None)
def test_the_order_of_nodes_does_not_matter(random: Any) -> None:
    raw = [amd_node(f"a{number}", cordoned=number % 3 == 0) for number in range(5)]
    raw += [nvidia_node(f"n{number}", ready="False") for number in range(4)]
    request = random_request(random, ())

    def decided(nodes: list[Any]) -> Decision:
        return decide(request, pools_of(nodes), CATALOG)

    assert decided(random.sample(raw, len(raw))) == decided(raw)


@given(RANDOMS, NODES, st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_omitted_candidates_are_counted(random: Any, nodes: int, limit: int) -> None:
    request, pools = request_and_pools(random, nodes)
    listed, omitted = list_candidates(decide(request, pools, CATALOG), limit=limit)
    assert len(listed) + sum(omitted.values()) == len(pools)
    assert len({entry.pool for entry in listed}) == len(listed)


@given(RANDOMS, st.integers(1, 64), st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_the_first_of_equal_pools_by_name_is_chosen(random: Any, pools: int, replicas: int) -> None:
    (one,) = pools_of([amd_node("a")])
    alike = [replace(one, name=f"pool-{number:02}") for number in range(pools)]
    request = Request(("a", "b"), spec_of(replicas=replicas), LLAMA_70B)
    decision = decide(request, random.sample(alike, pools), CATALOG)
    assert [candidate.pool.name for candidate in decision.candidates] == [
        pool.name for pool in alike
    ]
