"""The pool chosen on a mixed fleet, and the verdict on every other one."""

from typing import Any

import pytest

from tests.support.engines.shapes import load_shape
from tests.support.fleets.gpu_nodes import (
    H100,
    H200,
    L40S,
    MI300X,
    UNPRICED,
    amd_node,
    mixed_fleet,
    nvidia_labels,
    nvidia_node,
)
from tests.support.fleets.placing import (
    DEEPSEEK_V3,
    H100_POOL,
    H200_POOL,
    L40S_POOL,
    LLAMA_8B,
    LLAMA_405B_FP8,
    MI300X_POOL,
    MI355X_POOL,
    UNPRICED_POOL,
    by_pool,
    checkpoint_of,
    chosen,
    decide_on,
    declared,
    full,
    priced,
    reason_of,
    taken,
)
from tonnage.api.conditions import Reason
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.model import Parallelism
from tonnage.fleet.model import GpuPod
from tonnage.placement.model import RunningSecondary, Verdict


class TestLlama70B:
    def test_one_mi300x_runs_it_on_the_mixed_fleet(self) -> None:
        decision = decide_on(mixed_fleet())
        assert taken(decision) == (MI300X_POOL, 1, 1)
        assert decision.reason is Reason.POOL_CHOSEN
        candidate = by_pool(decision)[MI300X_POOL]
        assert (candidate.verdict, candidate.reason) == (Verdict.CHOSEN, "LowestCost")
        assert "1 replica on 1 GPU at 1.99/h (list price of 2026-05-18)" in candidate.message

    def test_h100_is_listed_with_tp_4_and_the_reason_against_it(self) -> None:
        candidate = by_pool(decide_on(mixed_fleet()))[H100_POOL]
        assert (candidate.verdict, candidate.reason) == (Verdict.FEASIBLE, "CostsMore")
        assert candidate.option is not None
        assert candidate.option.parallelism == Parallelism(4)
        assert candidate.message.startswith("fits with TP 4 (36.5 GiB for KV a GPU); ")
        assert candidate.message.endswith("11.96/h against 1.99/h")

    WITHOUT_AMD: dict[str, list[dict[str, Any]]] = {  # noqa: RUF012 - a table of cases
        "absent": mixed_fleet(amd=False),
        "cordoned": mixed_fleet(cordoned=True),
        "NotReady": mixed_fleet(ready="Unknown"),
    }

    @pytest.mark.parametrize("nodes", WITHOUT_AMD.values(), ids=WITHOUT_AMD.keys())
    def test_without_amd_h100_takes_tp_4_where_it_may(self, nodes: list[dict[str, Any]]) -> None:
        allowed = {"accelerators": ["mi300x", "h100-sxm-80gb"]}
        assert taken(decide_on(nodes, placement=allowed)) == (H100_POOL, 4, 1)

    @pytest.mark.parametrize("nodes", WITHOUT_AMD.values(), ids=WITHOUT_AMD.keys())
    def test_two_h200_cost_less_than_four_h100(self, nodes: list[dict[str, Any]]) -> None:
        allowed = {"accelerators": ["mi300x", "h100-sxm-80gb", "h200-sxm-141gb"]}
        decision = decide_on(nodes, placement=allowed)
        assert taken(decision) == (H200_POOL, 2, 1)
        assert reason_of(decision, H100_POOL) == (Verdict.FEASIBLE, "CostsMore")

    def test_one_h200_is_too_small_for_the_weights(self) -> None:
        decision = decide_on([nvidia_node("h200", H200, gpus=1)])
        assert decision.reason is Reason.DOES_NOT_FIT
        assert reason_of(decision, H200_POOL) == (Verdict.REJECTED, "WeightsDoNotFit")

    def test_cordoned_pools_state_their_parallelism(self) -> None:
        candidate = by_pool(decide_on(mixed_fleet(cordoned=True)))[MI300X_POOL]
        assert (candidate.verdict, candidate.reason) == (Verdict.REJECTED, "NoUsableNodes")
        assert candidate.message == (
            "fits with TP 1 (39.6 GiB for KV a GPU), but has no usable node "
            "(mi300x-0: cordoned, and 3 more)"
        )

    def test_more_requests_than_one_replica_holds_make_more_replicas(self) -> None:
        workload = {"concurrency": 64, "inputTokens": 2000, "outputTokens": 500}
        option = chosen(decide_on([amd_node("a")], workload=workload))
        held = option.fit.account.kv_cache_tokens // 2500
        assert 32 <= held < 64
        assert (option.pool.name, option.parallelism.tensor, option.replicas) == (MI300X_POOL, 1, 2)

    def test_fixed_replicas_share_the_requests(self) -> None:
        workload = {"concurrency": 64, "inputTokens": 2000, "outputTokens": 500}
        one = chosen(decide_on([amd_node("a")], workload=workload, replicas=1))
        assert one.fit.required_tokens == 64 * 2500
        assert one.fit.account.kv_cache_tokens >= 64 * 2500
        two = chosen(decide_on([amd_node("a")], workload=workload, replicas=2))
        assert two.fit.required_tokens == 32 * 2500
        assert (two.parallelism.tensor, two.replicas) == (1, 2)

    def test_replicas_are_bounded_by_default(self) -> None:
        workload = {"concurrency": 1_000_000}
        assert chosen(decide_on(mixed_fleet(), workload=workload)).replicas == 64


class TestLargeModels:
    @pytest.mark.parametrize("policy", ["LowestCost", "FewestGPUs"])
    def test_405b_fp8_belongs_on_two_mi355x(self, policy: str) -> None:
        decision = decide_on(mixed_fleet(), LLAMA_405B_FP8, placement={"policy": policy})
        assert taken(decision) == (MI355X_POOL, 2, 1)

    def test_405b_fp8_takes_all_of_a_node_where_that_is_fastest(self) -> None:
        nodes = [nvidia_node("h100"), amd_node("mi300x")]
        fastest = decide_on(
            nodes,
            LLAMA_405B_FP8,
            workload={"concurrency": 32},
            placement={"policy": "HighestThroughput"},
        )
        assert taken(fastest)[1:] == (8, 1)
        cheapest = decide_on(nodes, LLAMA_405B_FP8)
        assert taken(cheapest) == (MI300X_POOL, 4, 1)
        assert by_pool(cheapest)[H100_POOL].message.endswith("23.92/h against 7.96/h")

    def test_deepseek_v3_never_runs_on_eight_h100(self) -> None:
        nodes = [nvidia_node(f"h100-{n}") for n in range(4)]
        decision = decide_on(nodes, DEEPSEEK_V3, placement={"multiNode": "Never"})
        assert decision.chosen is None
        assert decision.reason is Reason.DOES_NOT_FIT
        assert "even with TP 8 the weights need 79.6 GiB a GPU" in decision.message

    def test_deepseek_v3_finds_a_place_on_the_mixed_fleet(self) -> None:
        decision = decide_on(mixed_fleet(), DEEPSEEK_V3)
        assert taken(decision)[0] == MI300X_POOL
        assert reason_of(decision, H100_POOL) == (Verdict.REJECTED, "NoInterconnect")

    def test_a_model_that_fits_nowhere_has_a_shortage_per_pool(self) -> None:
        nodes = [nvidia_node("h100", H100, gpus=2), nvidia_node("l40s", L40S, gpus=4)]
        decision = decide_on(nodes, DEEPSEEK_V3)
        assert decision.reason is Reason.DOES_NOT_FIT
        for candidate in decision.candidates:
            assert candidate.reason == "WeightsDoNotFit"
            assert candidate.shortage is not None
            assert f"{candidate.shortage.needed_bytes / 2**30:.1f} GiB" in candidate.message
            assert candidate.pool.name in decision.message

    def test_a_kv_cache_too_small_has_its_own_reason(self) -> None:
        decision = decide_on([nvidia_node("l40s", L40S, gpus=4)], workload={"maxModelLen": 131072})
        candidate = by_pool(decision)[L40S_POOL]
        assert candidate.reason == "KVCacheDoesNotFit"
        assert "the KV cache of 131072 tokens needs" in candidate.message


class TestFilters:
    def test_the_allow_list(self) -> None:
        decision = decide_on(mixed_fleet(), placement={"accelerators": ["l40s"]})
        assert taken(decision)[0] == L40S_POOL
        assert reason_of(decision, MI300X_POOL) == (Verdict.REJECTED, "NotAllowed")
        assert "mi300x is not in spec.placement.accelerators (l40s)" in (
            by_pool(decision)[MI300X_POOL].message
        )

    @pytest.mark.parametrize(
        ("names", "want"),
        [
            (["L40S"], {L40S_POOL}),
            (["H100"], {H100_POOL}),
            (["amd"], {MI300X_POOL, MI355X_POOL}),
            (["NVIDIA H100", "mi300x"], {H100_POOL, MI300X_POOL}),
        ],
    )
    def test_the_allow_list_has_families_and_vendors_in_any_case(
        self, names: list[str], want: set[str]
    ) -> None:
        decision = decide_on(mixed_fleet(), placement={"accelerators": names})
        allowed = {one.pool.name for one in decision.candidates if one.reason != "NotAllowed"}
        assert allowed == want

    def test_the_pool_selector(self) -> None:
        nodes = [nvidia_node("a", H100 | {"t": "1"}), amd_node("b")]
        pool = declared("chat", {"t": "1"}, labels={"team": "chat"})
        wanted = {"poolSelector": {"matchLabels": {"team": "chat"}}}
        decision = decide_on(nodes, declared_pools=(pool,), placement=wanted)
        assert taken(decision) == ("chat", 4, 1)
        assert reason_of(decision, MI300X_POOL) == (Verdict.REJECTED, "NotSelected")

    def test_discovered_pools_have_the_label_of_their_objects(self) -> None:
        wanted = {"poolSelector": {"matchLabels": {"tonnage.dev/discovered": "true"}}}
        assert taken(decide_on(mixed_fleet(), placement=wanted))[0] == MI300X_POOL

    def test_nothing_qualifies(self) -> None:
        decision = decide_on(mixed_fleet(), placement={"accelerators": ["b200-180gb"]})
        assert decision.reason is Reason.NO_MATCHING_POOL
        assert decision.message.startswith("none of 5 pools qualifies: 5 NotAllowed")

    def test_a_cluster_without_gpus(self) -> None:
        decision = decide_on([])
        assert decision.candidates == ()
        assert (decision.reason, decision.message) == (
            Reason.NO_MATCHING_POOL,
            "the cluster has no node with GPUs and no AcceleratorPool; where a node autoscaler adds"
            " nodes, declare an AcceleratorPool with their labels in spec.nodeSelector,"
            " spec.accelerator and spec.maxNodes",
        )

    def test_unrecognised_and_unsupported_pools_have_their_reasons(self) -> None:
        unknown = nvidia_node("x", nvidia_labels("NVIDIA-X9000", 1))
        old = amd_node("m", {"amd.com/gpu.device-id": "738c"})
        decision = decide_on([unknown, old])
        assert decision.reason is Reason.NO_MATCHING_POOL
        assert reason_of(decision, "nvidia-unrecognised") == (Verdict.REJECTED, "Unrecognised")
        assert reason_of(decision, "amd-mi100") == (Verdict.REJECTED, "Unsupported")

    def test_a_precision_that_no_card_has_is_incompatible(self) -> None:
        mi210 = amd_node("m", {"amd.com/gpu.device-id": "740f"})
        decision = decide_on([mi210], checkpoint_of("llama-3.3-70b-fp8-dynamic"))
        assert decision.reason is Reason.INCOMPATIBLE_PRECISION
        candidate = by_pool(decision)["amd-mi210"]
        assert candidate.reason == "Incompatible"
        assert "(rule " in candidate.message

    CLASSES = {  # noqa: RUF012 - a table of cases
        "AcmeForCausalLM": "ArchitectureUnknown",
        "MPTForCausalLM": "ArchitectureRemoved",
        "BartForConditionalGeneration": "ArchitectureNeedsPlugin",
    }

    @pytest.mark.parametrize(("model_class", "rule"), CLASSES.items())
    def test_a_class_that_vllm_does_not_serve_is_an_unsupported_architecture(
        self, model_class: str, rule: str
    ) -> None:
        model = Checkpoint(load_shape("llama-3.1-8b", architectures=[model_class]))
        decision = decide_on([nvidia_node("h100"), amd_node("a")], model)
        assert decision.reason is Reason.UNSUPPORTED_ARCHITECTURE
        for candidate in decision.candidates:
            assert candidate.reason == "UnsupportedArchitecture"
            assert model_class in candidate.message
            assert f"(rule {rule})" in candidate.message
        assert decision.message.startswith("runs on no pool; ")
        assert decision.message.count(rule) == decision.candidates[0].message.count(rule)

    def test_the_condition_names_the_node_without_a_device_plugin(self) -> None:
        decision = decide_on([nvidia_node("h100-0", gpus=0)])
        assert decision.reason is Reason.INSUFFICIENT_GPUS
        assert decision.message == (
            "nvidia-h100-sxm-80gb: none of its 1 nodes offers GPUs (h100-0: has nvidia.com/"
            "gpu.product=NVIDIA-H100-80GB-HBM3 but offers no nvidia.com/gpu (is the device plugin"
            " running?)) (0 GPUs on 1 node)"
        )
        decision = decide_on([nvidia_node("h100-0", gpus=0), nvidia_node("h100-1", gpus=2)])
        assert decision.message.startswith("fits on no pool")
        busy = [nvidia_node("h100-0", gpus=0), nvidia_node("h100-1")]
        message = decide_on(busy, pods=full("h100-1")).message
        assert "has 0 free of 8 (not usable: h100-0: has nvidia.com/gpu.product" in message

    def test_the_condition_names_the_node_without_labels(self) -> None:
        decision = decide_on([nvidia_node("gpu-0", {}), nvidia_node("gpu-1", {})])
        assert decision.reason is Reason.NO_MATCHING_POOL
        assert (
            "nvidia-unrecognised: gpu-0 and 1 other node: no label names the accelerator:"
            " nvidia.com/gpu.product is missing" in decision.message
        )

    def test_a_pool_without_nodes_is_a_candidate_too(self) -> None:
        pool = declared("empty", {"t": "1"}, accelerator="l40s")
        decision = decide_on(mixed_fleet(), declared_pools=(pool,))
        assert reason_of(decision, "empty") == (Verdict.REJECTED, "NoUsableNodes")

    def test_a_pool_without_nodes_does_not_hide_why_the_model_fits_on_no_other(self) -> None:
        small = [nvidia_node("h200", H200, gpus=1)]
        pool = declared("empty", {"t": "1"})
        decision = decide_on(small, declared_pools=(pool,))
        why_not = decide_on(small)
        assert why_not.reason is Reason.DOES_NOT_FIT
        assert decision.reason is Reason.INSUFFICIENT_GPUS, "its first node may be large enough"
        assert decision.message.startswith("empty: no node has the labels of spec.nodeSelector")
        assert decision.message.endswith(f"; elsewhere: {why_not.message}")

    def test_a_pool_without_nodes_is_the_cause_where_no_other_is_asked_for(self) -> None:
        pool = declared("empty", {"t": "1"}, accelerator="l40s")
        placement = {"accelerators": ["l40s"]}
        decision = decide_on([amd_node("a")], placement=placement, declared_pools=(pool,))
        assert decision.reason is Reason.INSUFFICIENT_GPUS
        assert decision.message.startswith("empty: no node has the labels of spec.nodeSelector")

    def test_indivisible_heads_run_with_tp_1(self) -> None:
        nodes = [nvidia_node("l40s", L40S, gpus=4)]
        odd = Checkpoint(
            load_shape("llama-3.1-8b", num_attention_heads=31, num_key_value_heads=31, head_dim=128)
        )
        assert chosen(decide_on(nodes, odd)).parallelism == Parallelism(1)


class TestCost:
    def test_a_declared_price_overrides_the_list(self) -> None:
        cheap, pool = priced("0.10", H100, "cheap")
        decision = decide_on([cheap, amd_node("a")], declared_pools=(pool,))
        assert taken(decision)[0] == "cheap"
        assert "at 0.40/h (price of AcceleratorPool cheap)" in decision.message

    def test_without_a_price_a_pool_comes_after_all_with_one(self) -> None:
        nodes = [amd_node("free", UNPRICED), amd_node("a"), nvidia_node("h200", H200)]
        decision = decide_on(nodes)
        assert reason_of(decision, UNPRICED_POOL) == (Verdict.FEASIBLE, "NoPriceKnown")
        names = [candidate.pool.name for candidate in decision.candidates]
        assert names == [MI300X_POOL, H200_POOL, UNPRICED_POOL]

    def test_among_pools_without_a_price_the_fewest_gpus_count(self) -> None:
        small = amd_node("m", {"amd.com/gpu.device-id": "740f"})
        decision = decide_on([small, amd_node("free", UNPRICED)])
        assert taken(decision) == (UNPRICED_POOL, 1, 1)
        assert "(no price known)" in decision.message
        assert reason_of(decision, "amd-mi210") == (Verdict.FEASIBLE, "NeedsMoreGPUs")

    def test_of_equal_cost_the_heavier_pool_is_taken(self) -> None:
        nodes = [nvidia_node(name, H100 | {"pool": name}) for name in ("a", "b")]
        pools = (declared("a", {"pool": "a"}), declared("b", {"pool": "b"}, weight=200))
        decision = decide_on(nodes, declared_pools=pools)
        assert taken(decision)[0] == "b"
        candidate = by_pool(decision)["a"]
        assert candidate.reason == "RanksLower"
        assert candidate.message.endswith("weight 100 against 200 of b")

    def test_of_equal_pools_the_first_by_name_is_chosen(self) -> None:
        nodes = [nvidia_node(name, H100 | {"pool": name}) for name in ("a", "b")]
        pools = (declared("b", {"pool": "b"}), declared("a", {"pool": "a"}))
        assert taken(decide_on(nodes, declared_pools=pools))[0] == "a"

    def test_pools_are_compared_by_the_whole_workload_not_per_gpu(self) -> None:
        """One pool has the cheaper GPU; on the other a single GPU serves all requests."""
        small, cheap = priced("1.00", H100, "cheap")
        large, dear = priced("1.50", H200, "dear")
        typical = {"inputTokens": 4000, "outputTokens": 1000}
        held = chosen(decide_on([small], LLAMA_8B)).fit.account.kv_cache_tokens // 5000
        both = {"declared_pools": (cheap, dear)}
        few = decide_on([small, large], LLAMA_8B, workload={"concurrency": 1, **typical}, **both)
        assert taken(few) == ("cheap", 1, 1)
        many = {"concurrency": held + 1, **typical}
        decision = decide_on([small, large], LLAMA_8B, workload=many, **both)
        assert taken(decision) == ("dear", 1, 1)
        assert by_pool(decision)["cheap"].message.endswith("2.00/h against 1.50/h")

    def test_money_is_never_rounded_to_nothing(self) -> None:
        cheap, pool = priced("0.0004", H100, "cheap")
        decision = decide_on([cheap], declared_pools=(pool,))
        assert "at 0.0016/h" in decision.message


class TestKeptPlacement:
    ON_H100 = (H100_POOL, Parallelism(4))

    def test_replicas_stay_though_another_pool_costs_less(self) -> None:
        decision = decide_on(mixed_fleet(), keep=self.ON_H100)
        assert taken(decision) == (H100_POOL, 4, 1)
        assert reason_of(decision, H100_POOL) == (Verdict.CHOSEN, "KeepsItsPlace")
        candidate = by_pool(decision)[MI300X_POOL]
        assert (candidate.verdict, candidate.reason) == (
            Verdict.FEASIBLE,
            "ReplicasRunElsewhere",
        )
        assert candidate.message.endswith(
            "1.99/h against 11.96/h; replicas stay on nvidia-h100-sxm-80gb"
        )

    def test_the_parallelism_is_kept_too(self) -> None:
        decision = decide_on(mixed_fleet(), keep=(H100_POOL, Parallelism(8)))
        assert taken(decision) == (H100_POOL, 8, 1)

    def test_a_parallelism_that_no_longer_fits_is_left(self) -> None:
        decision = decide_on(mixed_fleet(), keep=(H100_POOL, Parallelism(2)))
        assert taken(decision) == (MI300X_POOL, 1, 1)

    def test_a_pool_that_is_no_longer_allowed_is_left(self) -> None:
        allowed = {"accelerators": ["mi300x"]}
        decision = decide_on(mixed_fleet(), keep=self.ON_H100, placement=allowed)
        assert taken(decision)[0] == MI300X_POOL

    def test_a_pool_without_capacity_is_left(self) -> None:
        busy = full(*(f"h100-{n}" for n in range(4)))
        decision = decide_on(mixed_fleet(), keep=self.ON_H100, pods=busy)
        assert taken(decision)[0] == MI300X_POOL

    def test_replicas_on_cordoned_nodes_stay(self) -> None:
        nodes = [nvidia_node("h", cordoned=True), amd_node("a")]
        decision = decide_on(nodes, keep=self.ON_H100, held=1)
        assert taken(decision) == (H100_POOL, 4, 1)
        assert chosen(decision).capacity == 1

    def test_zero_replicas_keep_their_pool_without_capacity(self) -> None:
        busy = full(*(f"h100-{n}" for n in range(4)))
        decision = decide_on(mixed_fleet(), keep=self.ON_H100, pods=busy, replicas=0)
        assert taken(decision) == (H100_POOL, 4, 0)

    def test_gpus_of_its_own_pods_count_as_free(self) -> None:
        mine = GpuPod("u", "h100-0", {"nvidia.com/gpu": 8}, ("chat", "llama"), "h100-sxm-80gb")
        decision = decide_on(
            [nvidia_node("h100-0")], pods=(mine,), keep=(H100_POOL, Parallelism(8))
        )
        assert taken(decision) == (H100_POOL, 8, 1)


def test_policies_choose_differently_and_explain_it() -> None:
    nodes = [nvidia_node("h100"), nvidia_node("h200", H200), amd_node("mi300x", MI300X)]
    fewest = decide_on(nodes, placement={"policy": "FewestGPUs"})
    assert taken(fewest) == (MI300X_POOL, 1, 1)
    assert by_pool(fewest)[H100_POOL].reason == "NeedsMoreGPUs"
    assert by_pool(fewest)[H100_POOL].message.endswith("4 GPUs against 1")
    fastest = decide_on(nodes, placement={"policy": "HighestThroughput"})
    assert taken(fastest) == (H200_POOL, 8, 1)
    assert by_pool(fastest)[MI300X_POOL].reason == "Slower"
    assert "tokens/s (estimate ±" in by_pool(fastest)[MI300X_POOL].message


class TestSecondaryPlacement:
    """Replicas that run on another pool than the kept one."""

    def test_its_parallelism_is_kept_though_another_one_would_be_chosen_now(self) -> None:
        new = by_pool(decide_on(mixed_fleet()))[H100_POOL].option
        secondary = RunningSecondary(H100_POOL, Parallelism(8), 1)
        kept = by_pool(decide_on(mixed_fleet(), secondary=(secondary,)))[H100_POOL].option
        assert new is not None
        assert kept is not None
        assert (new.parallelism, kept.parallelism) == (Parallelism(4), Parallelism(8))

    def test_its_gpus_count_as_capacity_of_a_full_pool(self) -> None:
        nodes, others = [amd_node("a"), nvidia_node("b")], full("b")
        secondary = RunningSecondary(H100_POOL, Parallelism(4), 2)
        assert by_pool(decide_on(nodes, pods=others))[H100_POOL].verdict is Verdict.REJECTED
        option = by_pool(decide_on(nodes, pods=others, secondary=(secondary,)))[H100_POOL].option
        assert option is not None
        assert option.capacity == 2

    def test_the_choice_does_not_depend_on_it(self) -> None:
        secondary = RunningSecondary(H100_POOL, Parallelism(4), 1)
        assert taken(decide_on(mixed_fleet(), secondary=(secondary,)))[0] == MI300X_POOL
