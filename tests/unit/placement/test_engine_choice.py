"""Which engine runs the model on each pool, and why, where the spec leaves it to the operator."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import H100, H200, L40S, MI300X, amd_node, nvidia_node
from tests.support.fleets.placing import (
    CATALOG,
    DEEPSEEK_V3,
    H100_POOL,
    H200_POOL,
    L40S_POOL,
    LLAMA_8B,
    MI300X_POOL,
    OWNER,
    by_pool,
    checkpoint_of,
    chosen,
    decide_on,
    pools_of,
    spec_of,
)
from tonnage.checkpoint.model import Checkpoint, Quantization
from tonnage.fit.model import Parallelism
from tonnage.placement.adjustments import (
    UNADJUSTED,
    FailedStart,
    MemoryShortfall,
    ShortfallKind,
)
from tonnage.placement.batches.best_options import find_best_options
from tonnage.placement.cache import PlacementCache
from tonnage.placement.decide import decide
from tonnage.placement.engine_choice import judge_for
from tonnage.placement.model import Candidate, Option, Request, Verdict
from tonnage.placement.report import list_candidates

AUTO: dict[str, Any] = {"type": "Auto"}
SGLANG: dict[str, Any] = {"sglang": {}}


def candidate_of(pool: str, decision: Any) -> Candidate:
    return by_pool(decision)[pool]


def engine_on(pool: str, decision: Any) -> str:
    option = candidate_of(pool, decision).option
    assert option is not None
    return option.engine


def of_class(checkpoint: Checkpoint, architecture: str) -> Checkpoint:
    return replace(checkpoint, shape=replace(checkpoint.shape, architecture=architecture))


class TestWhereBothCanRunIt:
    def test_vllm_is_the_default(self) -> None:
        decision = decide_on([amd_node("a", MI300X)], LLAMA_8B, engine=AUTO)
        assert chosen(decision).engine == "vllm"
        assert decision.message.startswith(f"{MI300X_POOL} / vllm: fits with TP 1 (")
        assert "vllm is the default where no rule names another" in decision.message

    def test_a_rule_decides_by_model_class_precision_and_architecture(self) -> None:
        nodes = [amd_node("a", MI300X), amd_node("b", MI300X)]
        decision = decide_on(nodes, DEEPSEEK_V3, engine=AUTO)
        assert chosen(decision).engine == "sglang"
        assert decision.message.startswith(f"{MI300X_POOL} / sglang: fits with TP 4 (")
        fit, reason, *_ = candidate_of(MI300X_POOL, decision).message.split("; ")
        assert fit.startswith("fits with TP 4 (")
        assert "serves DeepSeek-R1 in FP8 on gfx942 with SGLang" in reason
        sixteen_bits = of_class(LLAMA_8B, "DeepseekV3ForCausalLM")
        assert chosen(decide_on(nodes, sixteen_bits, engine=AUTO)).engine == "vllm"

    def test_a_named_engine_is_judged_alone(self) -> None:
        for engine, name in ({}, "vllm"), ({"type": "VLLM"}, "vllm"), (SGLANG, "sglang"):
            decision = decide_on([amd_node("a", MI300X)], LLAMA_8B, engine=engine)
            assert chosen(decision).engine == name
            assert chosen(decision).engine_reason is None
            assert decision.message.startswith(f"{MI300X_POOL}: fits with TP 1 (")
            (listed,), _ = list_candidates(decision)
            assert listed.engine is None

    def test_the_figures_are_those_of_the_engine_alone(self) -> None:
        nodes = [amd_node("a", MI300X)]
        auto = chosen(decide_on(nodes, DEEPSEEK_V3, engine=AUTO))
        named = chosen(decide_on(nodes, DEEPSEEK_V3, engine=SGLANG))
        assert replace(auto, engine_reason=None) == named


class TestWhereOneCanRunIt:
    def test_the_reason_is_what_keeps_the_other_one_away(self) -> None:
        nodes = [amd_node("a", MI300X), nvidia_node("b", L40S, gpus=4)]
        decision = decide_on(nodes, LLAMA_8B, engine=AUTO)
        assert engine_on(L40S_POOL, decision) == "vllm"
        assert "sglang: architecture sm_89 is not" in candidate_of(L40S_POOL, decision).message

    def test_a_class_that_vllm_does_not_have_runs_with_sglang(self) -> None:
        newer = of_class(LLAMA_8B, "GigaChat35ForCausalLM")
        assert "GigaChat35ForCausalLM" not in CATALOG.architectures.served
        decision = decide_on([amd_node("a", MI300X)], newer, engine=AUTO)
        assert chosen(decision).engine == "sglang"
        assert "vllm: vLLM" in decision.message
        assert "has no implementation of GigaChat35ForCausalLM" in decision.message

    def test_a_fallback_on_transformers_is_no_reason_to_take_sglang(self) -> None:
        unknown = of_class(LLAMA_8B, "UnheardOfForCausalLM")
        decision = decide_on([amd_node("a", MI300X)], unknown, engine=AUTO)
        assert decision.chosen is None
        message = candidate_of(MI300X_POOL, decision).message
        assert message.index("vllm:") < message.index("sglang: sglang 0.5.23 has no implementation")

    def test_where_sglang_is_named_the_fallback_on_transformers_is_noted(self) -> None:
        nodes, unknown = [amd_node("a", MI300X)], of_class(LLAMA_8B, "UnheardOfForCausalLM")
        decision = decide_on(nodes, unknown, engine=SGLANG)
        assert chosen(decision).engine == "sglang"
        assert "sglang 0.5.23 has no implementation of UnheardOf" in decision.message
        assert "its fallback on Transformers may run it" in decision.message
        known = decide_on(nodes, LLAMA_8B, engine=SGLANG)
        assert "Transformers" not in known.message

    def test_an_engine_that_was_refused_for_the_spec_is_not_asked(self) -> None:
        pools = pools_of([amd_node("a", MI300X)])
        request = Request(
            OWNER,
            spec_of(engine=AUTO),
            DEEPSEEK_V3,
            refused_engines={"sglang": "spec.lora: not supported"},
        )
        decision = decide(request, pools, CATALOG)
        assert chosen(decision).engine == "vllm"
        assert "sglang: spec.lora: not supported" in decision.message


class TestWhereNoneCanRunIt:
    def test_what_a_rule_refuses_to_vllm_is_not_tried_with_sglang(self) -> None:
        gptq = Quantization(method="gptq", weight_bits=4, group_size=128, desc_act=True)
        refused = replace(LLAMA_8B, shape=replace(LLAMA_8B.shape, quantization=gptq))
        decision = decide_on([nvidia_node("a", H100)], refused, engine=AUTO)
        assert decision.chosen is None
        candidate = candidate_of(H100_POOL, decision)
        assert candidate.reason == "Incompatible"
        assert "no longer takes GPTQ with desc_act: true" in candidate.message
        assert "sglang: fits with TP 1" in candidate.message
        assert "name it to try" in candidate.message

    def test_the_reasons_of_both_are_given(self) -> None:
        decision = decide_on([nvidia_node("a", L40S, gpus=4)], DEEPSEEK_V3, engine=AUTO)
        candidate = candidate_of(L40S_POOL, decision)
        assert candidate.verdict is Verdict.REJECTED
        assert candidate.reason == "WeightsDoNotFit"
        assert "sglang: architecture sm_89" in candidate.message
        assert "vllm: even " in candidate.message

    def test_a_reason_that_is_not_about_an_engine_is_given_once(self) -> None:
        only_amd = {"accelerators": ["mi300x"]}
        nodes = [amd_node("a", MI300X), nvidia_node("b", H100)]
        auto = decide_on(nodes, LLAMA_8B, engine=AUTO, placement=only_amd)
        named = decide_on(nodes, LLAMA_8B, placement=only_amd)
        assert candidate_of(H100_POOL, auto) == candidate_of(H100_POOL, named)

    def test_messages_stay_short_enough_for_a_status(self) -> None:
        decision = decide_on([nvidia_node("a", L40S, gpus=4)], DEEPSEEK_V3, engine=AUTO)
        assert len(candidate_of(L40S_POOL, decision).message.encode()) <= 400


class TestReplicasThatRun:
    RUNS: tuple[str, Parallelism] = MI300X_POOL, Parallelism(8)

    def decide(self, engine: str, *nodes: Any, **more: Any) -> Any:
        request = Request(
            OWNER,
            spec_of(engine=AUTO),
            DEEPSEEK_V3,
            keep=self.RUNS,
            held=1,
            kept_engine=engine,
            **more,
        )
        return decide(request, pools_of(list(nodes)), CATALOG)

    @pytest.mark.parametrize("engine", ["vllm", "sglang"])
    def test_they_keep_their_engine_although_a_rule_names_another(self, engine: str) -> None:
        decision = self.decide(engine, amd_node("a", MI300X))
        assert chosen(decision).engine == engine
        kept = "its replicas run with vllm" in decision.message
        assert kept is (engine == "vllm")

    @pytest.mark.parametrize("engine", ["vllm", "sglang"])
    def test_other_pools_take_it_first(self, engine: str) -> None:
        nodes = [amd_node("a", MI300X), nvidia_node("b", H200)]
        decision = self.decide(engine, *nodes)
        assert {each.option.engine for each in decision.candidates} == {engine}

    @pytest.mark.parametrize("engine", ["vllm", "sglang"])
    def test_after_a_start_without_memory_more_gpus_of_the_pool_come_first(
        self, engine: str
    ) -> None:
        memory_bytes, alone = CATALOG.accelerator("mi300x").memory_bytes, Parallelism(1)
        assert memory_bytes is not None
        lacks = MemoryShortfall(ShortfallKind.ALLOCATION, 2 * memory_bytes, 0)
        request = Request(
            OWNER,
            spec_of(engine=AUTO),
            LLAMA_8B,
            keep=(MI300X_POOL, alone),
            held=1,
            kept_engine=engine,
            failed_starts=(FailedStart("mi300x", memory_bytes, alone, UNADJUSTED, lacks, engine),),
        )
        pools = pools_of([amd_node("a", MI300X), nvidia_node("b", H100)])
        option = chosen(decide(request, pools, CATALOG))
        assert (option.pool.name, option.parallelism) == (MI300X_POOL, Parallelism(2))
        assert option.engine == engine

    def test_their_pool_is_not_judged_with_the_other_engine(self) -> None:
        decision = self.decide(
            "sglang", amd_node("a", MI300X), refused_engines={"sglang": "spec.lora: not supported"}
        )
        assert decision.chosen is None
        assert "spec.lora" in candidate_of(MI300X_POOL, decision).message


def test_the_judge_lists_every_parallelism_of_the_engine_that_is_taken() -> None:
    pools = pools_of([amd_node("a", MI300X)])
    request = Request(OWNER, spec_of(engine=AUTO), DEEPSEEK_V3)
    options = judge_for(request, CATALOG).options(pools[0])
    assert isinstance(options, list)
    assert {option.engine for option in options} == {"sglang"}
    assert all(isinstance(option, Option) and option.engine_reason for option in options)


def test_a_cache_changes_no_choice() -> None:
    pools, cache = pools_of([amd_node("a", MI300X), nvidia_node("b", H200)]), PlacementCache()
    first = Request(OWNER, spec_of(engine=AUTO), DEEPSEEK_V3)
    kept = replace(first, keep=(H200_POOL, Parallelism(8)), held=1, kept_engine="vllm")
    refused = replace(first, refused_engines={"sglang": "spec.lora: not supported"})
    for request in (first, kept, refused, first, replace(kept, kept_engine="sglang"), kept):
        assert decide(request, pools, CATALOG, cache) == decide(request, pools, CATALOG)
    again = decide(first, pools, CATALOG, cache)
    assert again.chosen is decide(first, pools, CATALOG, cache).chosen


def test_the_best_options_of_a_batch_are_those_of_the_engines_that_are_taken() -> None:
    request = Request(OWNER, spec_of(engine=AUTO), DEEPSEEK_V3)
    pools = pools_of([amd_node("a", MI300X)])
    best = find_best_options([request], pools, CATALOG, {}, PlacementCache())
    assert best.taken[OWNER].engine == "sglang"


def test_the_figures_of_a_candidate_name_their_engine() -> None:
    nodes = [amd_node("a", MI300X), nvidia_node("b", L40S, gpus=4)]
    listed, _ = list_candidates(decide_on(nodes, checkpoint_of("llama-3.3-70b"), engine=AUTO))
    assert {each.pool: each.engine for each in listed} == {MI300X_POOL: "vllm", L40S_POOL: "vllm"}
