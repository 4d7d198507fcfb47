"""Rules that the user overrides, tight fits that the user accepts, and the notes of a choice."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.engines.shapes import load_shape
from tests.support.fleets.gpu_nodes import H200, MI300X, amd_node, mixed_fleet, nvidia_node
from tests.support.fleets.placing import (
    LLAMA_8B,
    MI300X_POOL,
    by_pool,
    checkpoint_of,
    chosen,
    decide_on,
    reason_of,
    spec_of,
    taken,
)
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint, Quantization
from tonnage.fit.model import Parallelism
from tonnage.placement.filters.screening import check_accelerators, check_allowed_rules
from tonnage.placement.model import Decision, Verdict
from tonnage.placement.report import list_candidates, placement_status


def test_an_unknown_accelerator_in_the_allow_list_is_named_with_the_nearest() -> None:
    spec = spec_of(placement={"accelerators": ["mi300x", "h100-smx"]})
    with pytest.raises(ValueError, match=r"spec\.placement\.accelerators\[1\].*h100-sxm-80gb"):
        check_accelerators(spec, load_catalog())


def test_known_accelerators_pass() -> None:
    for name in ("mi300x", "MI300X", "H100", "nvidia"):
        check_accelerators(spec_of(placement={"accelerators": [name]}), load_catalog())
    check_accelerators(spec_of(), load_catalog())


def test_an_unknown_rule_to_be_allowed_is_named_with_the_nearest() -> None:
    spec = spec_of(placement={"allow": ["Nvfp4Emulated", "Nvfp4OnAmd"]})
    with pytest.raises(ValueError, match=r"spec\.placement\.allow\[1\].*did you mean: Nvfp4"):
        check_allowed_rules(spec, load_catalog())


def test_known_rules_pass() -> None:
    check_allowed_rules(spec_of(placement={"allow": ["Nvfp4Emulated"]}), load_catalog())
    check_allowed_rules(spec_of(), load_catalog())


class TestOverriddenRules:
    MI210 = amd_node("m", {"amd.com/gpu.device-id": "740f"})
    MODEL = checkpoint_of("llama-3.3-70b-fp8-dynamic")

    def test_the_pool_is_chosen_and_the_message_names_the_rule(self) -> None:
        allow = {"allow": ["Fp8WithoutHardware"]}
        decision = decide_on([self.MI210], self.MODEL, placement=allow)
        assert decision.chosen is not None
        assert decision.chosen.overridden == ("Fp8WithoutHardware",)
        assert "rule Fp8WithoutHardware is overridden: Instinct MI210 has no" in decision.message

    def test_status_names_the_rules(self) -> None:
        allow = {"allow": ["Fp8WithoutHardware"]}
        decision = decide_on([self.MI210], self.MODEL, placement=allow)
        assert decision.chosen is not None
        status = placement_status(
            decision, decision.chosen, image="vllm:test", replicas=1, ready_replicas=0
        )
        assert status.to_dict()["overriddenRules"] == ["Fp8WithoutHardware"]
        (candidate,), _ = list_candidates(decision)
        assert candidate.to_dict()["overriddenRules"] == ["Fp8WithoutHardware"]

    def test_a_rule_that_does_not_apply_is_not_named(self) -> None:
        allow = {"allow": ["Fp8WithoutHardware"]}
        decision = decide_on([amd_node("x", MI300X)], self.MODEL, placement=allow)
        assert decision.chosen is not None
        assert decision.chosen.overridden == ()

    def test_devices_that_no_image_supports(self) -> None:
        mi100 = amd_node("m", {"amd.com/gpu.device-id": "738c"})
        decision = decide_on([mi100], LLAMA_8B, placement={"allow": ["UnsupportedAccelerator"]})
        assert decision.chosen is not None
        assert decision.chosen.overridden == ("UnsupportedAccelerator",)


def test_settings_of_a_rule_are_part_of_the_choice() -> None:
    decision = decide_on([nvidia_node("h100")], checkpoint_of("llama-3.1-405b-fp8"))
    assert decision.chosen is not None
    assert decision.chosen.settings.args == ("--allow-deprecated-quantization",)
    assert "takes fbgemm_fp8, which it will drop, only with" in decision.message


def test_a_group_within_a_mesh_names_its_share_of_the_links() -> None:
    many = decide_on([amd_node("x", MI300X)], checkpoint_of("llama-3.1-405b-fp8"))
    assert many.chosen is not None
    assert many.chosen.parallelism.tensor == 4
    assert "TP 4 uses 192 of 448 GB/s of each GPU's links" in many.message
    switched = decide_on([nvidia_node("h100")])
    assert "GB/s" not in switched.message


def test_a_choice_names_unknowns_and_warnings() -> None:
    version = {"engine": {"vllm": {"version": "v99.0.0"}}}
    decision = decide_on([amd_node("a")], LLAMA_8B, **version)
    assert "vLLM 99.0.0 is not in the catalogue; planned like" in decision.message
    mxfp4 = replace(LLAMA_8B.shape, quantization=Quantization("mxfp4", 4, group_size=32))
    decision = decide_on([amd_node("a")], replace(LLAMA_8B, shape=mxfp4))
    assert "has no MXFP4 matrix units" in decision.message


class TestTightFits:
    """One replica of Llama 70B on MI300X with TP 1, with requests that fill its KV cache."""

    @staticmethod
    def workload(share: float) -> dict[str, Any]:
        held = chosen(decide_on(mixed_fleet())).fit.account.kv_cache_tokens
        return {"concurrency": int(held * share), "inputTokens": 1, "outputTokens": 1}

    def decide(self, share: float, **placement: Any) -> Decision:
        # Two tokens a request, so half as many requests fill the cache.
        return decide_on(
            mixed_fleet(),
            workload=self.workload(share / 2),
            replicas=1,
            placement={"accelerators": ["mi300x"], **placement},
        )

    def test_memory_to_spare_is_no_tight_fit(self) -> None:
        assert taken(self.decide(0.5)) == (MI300X_POOL, 1, 1)

    def test_the_next_size_is_preferred(self) -> None:
        assert taken(self.decide(0.999)) == (MI300X_POOL, 2, 1)

    def test_a_user_may_accept_it(self) -> None:
        decision = self.decide(0.999, tightFit="Accept")
        assert taken(decision) == (MI300X_POOL, 1, 1)
        assert "fits tightly with TP 1" in by_pool(decision)[MI300X_POOL].message

    def test_it_is_chosen_without_an_alternative(self) -> None:
        node = amd_node("alone", MI300X, gpus=1)
        decision = decide_on([node], workload=self.workload(0.4995), replicas=1)
        assert taken(decision)[1:] == (1, 1)
        assert chosen(decision).avoided

    def test_a_pool_with_memory_to_spare_comes_before_a_cheaper_one(self) -> None:
        workload = self.workload(0.4995)
        decision = decide_on([amd_node("small", MI300X, gpus=1), nvidia_node("h200", H200)],
                             workload=workload, replicas=1)  # fmt: skip
        assert chosen(decision).pool.accelerator.id.startswith("h200")
        assert reason_of(decision, MI300X_POOL) == (Verdict.FEASIBLE, "TightFit")

    def test_replicas_that_run_with_a_tight_fit_stay(self) -> None:
        decision = decide_on(
            mixed_fleet(),
            workload=self.workload(0.4995),
            replicas=1,
            placement={"accelerators": ["mi300x"]},
            keep=(MI300X_POOL, Parallelism(1)),
            held=1,
        )
        assert taken(decision) == (MI300X_POOL, 1, 1)


def test_an_estimated_shape_is_noted() -> None:
    shape = load_shape("llama-3.1-8b", architectures=["AcmeForCausalLM"])
    allowed = {"allow": ["ArchitectureUnknown"]}
    decision = decide_on([amd_node("a")], Checkpoint(shape), replicas=1, placement=allowed)
    assert shape.estimated is not None
    assert decision.chosen is not None
    assert shape.estimated in decision.chosen.notes
    assert shape.estimated in decision.message
