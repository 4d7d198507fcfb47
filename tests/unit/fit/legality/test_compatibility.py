"""Refusals, their overrides, and the settings that the server then needs."""

from dataclasses import replace

import pytest

from tests.support.engines.subjects import (
    BLOCK_FP8,
    CATALOG,
    FP8,
    GPTQ,
    LATENT,
    MXFP8,
    NVFP4,
    SPARSE,
    W8A8,
    W8A16,
    Example,
)
from tonnage.catalog.models.architectures import ServedStatus
from tonnage.fit.legality.compatibility import (
    Compatibility,
    Incompatible,
    check_compatibility,
    judge_compatibility,
)

H100, A100, B200 = "h100-sxm-80gb", "a100-sxm-80gb", "b200-180gb"
BITSANDBYTES = {"quant_method": "bitsandbytes", "load_in_4bit": True}


def judge(example: Example, *allow: str) -> Compatibility:
    return judge_compatibility(
        example.checkpoint, example.accelerator, example.options, allow, CATALOG
    )


def check(example: Example, *allow: str) -> Incompatible | None:
    return check_compatibility(
        example.checkpoint, example.accelerator, example.options, allow, CATALOG
    )


REFUSED: list[tuple[str, Example, str | None]] = [
    ("16 bits on MI300X", Example("mi300x"), None),
    ("16 bits on Radeon", Example("rx-7900-xtx"), None),
    ("16 bits on MI100", Example("mi100"), "UnsupportedAccelerator"),
    ("FP8 on MI300X", Example("mi300x", stored=FP8), None),
    ("FP8 in blocks on MI355X", Example("mi355x", stored=BLOCK_FP8), None),
    ("FP8 on MI210", Example("mi210", stored=FP8), "Fp8WithoutHardware"),
    ("FP8 on Radeon", Example("rx-7900-xtx", stored=FP8), "Fp8WithoutHardware"),
    ("FP8 on A100", Example(A100, stored=FP8), None),
    ("online FP8 on MI210", Example("mi210", quantization="fp8"), "Fp8WithoutHardware"),
    ("INT8 on MI300X", Example("mi300x", stored=W8A8), None),
    ("INT8 on H100", Example(H100, stored=W8A8), None),
    ("INT8 on B200", Example(B200, stored=W8A8), "Int8OnBlackwell"),
    ("8-bit weights on B200", Example(B200, stored=W8A16), None),
    ("NVFP4 on MI355X", Example("mi355x", stored=NVFP4), "Nvfp4Emulated"),
    ("NVFP4 on B200", Example(B200, stored=NVFP4), None),
    ("NVFP4 on H100", Example(H100, stored=NVFP4), None),
    ("fp8_e5m2 cache on MI300X", Example("mi300x", kv_cache_dtype="fp8_e5m2"), "Fp8E5m2OnRocm"),
    ("fp8_e5m2 cache on H100", Example(H100, kv_cache_dtype="fp8_e5m2"), None),
    (
        "fp8_e5m2 cache of an FP8 model",
        Example(H100, stored=FP8, kv_cache_dtype="fp8_e5m2"),
        "Fp8E5m2WithFp8Weights",
    ),
    ("FP8 cache on MI300X", Example("mi300x", kv_cache_dtype="fp8"), None),
    ("FP8 cache on MI210", Example("mi210", kv_cache_dtype="fp8"), "Fp8KvCacheWithoutHardware"),
    ("bitsandbytes", Example(H100, stored=BITSANDBYTES), "QuantizationNeedsPlugin"),
    ("bitsandbytes, before", Example(H100, stored=BITSANDBYTES, version="0.27.1"), None),
    (
        "bitsandbytes on MI300X, before",
        Example("mi300x", stored=BITSANDBYTES, version="0.27.1"),
        None,
    ),
    (
        "bitsandbytes on MI300X, long before",
        Example("mi300x", stored=BITSANDBYTES, version="0.16.0"),
        "QuantizationNotOnRocm",
    ),
    ("GGUF", Example(H100, stored={"quant_method": "gguf"}), "QuantizationNeedsPlugin"),
    ("GPTQ on MI300X", Example("mi300x", stored=GPTQ), None),
    (
        "GPTQ with activation order",
        Example(H100, stored={**GPTQ, "desc_act": True}),
        "GptqActOrder",
    ),
    (
        "another method than the file's",
        Example(H100, stored=FP8, quantization="awq"),
        "QuantizationMismatch",
    ),
    (
        "the file's method by another name",
        Example(H100, stored=GPTQ, quantization="moe_wna16"),
        None,
    ),
    ("FP8 from a 16-bit file", Example(H100, quantization="fp8"), None),
    ("full latent attention on A100", Example(A100, LATENT), None),
    ("sparse attention on A100", Example(A100, SPARSE), "SparseAttentionBelowHopper"),
    ("sparse attention on MI300X", Example("mi300x", SPARSE), None),
]


@pytest.mark.parametrize(("what", "example", "want_rule"), REFUSED, ids=[row[0] for row in REFUSED])
def test_compatibility_of_models_and_devices(
    what: str, example: Example, want_rule: str | None
) -> None:
    refused = check(example)
    assert (refused.rule if refused else None) == want_rule


def test_a_removed_class_that_transformers_has_falls_back_to_its_code() -> None:
    known = CATALOG.architectures
    assert "Dots1ForCausalLM" in known.removed
    assert known.status("Dots1ForCausalLM", "0.23.0") is ServedStatus.SERVED
    assert known.status("Dots1ForCausalLM", "0.32.0") is ServedStatus.UNKNOWN
    assert known.status("MPTForCausalLM", "0.32.0") is ServedStatus.REMOVED


def test_a_removed_class_names_the_release_to_use() -> None:
    refused = check(Example(H100, architecture="QWenLMHeadModel"))
    assert refused is not None
    assert "v0.23.0" in refused.instead


def test_messages_name_the_device_and_an_alternative() -> None:
    refused = check(Example("mi210", stored=FP8))
    assert refused is not None
    assert refused.message == (
        "Instinct MI210 has no FP8 matrix units; use a 16-bit checkpoint, AWQ or GPTQ"
    )


def test_refusals_by_vllm_differ_from_those_by_hardware() -> None:
    by_hardware, by_vllm = check(Example("mi210", stored=FP8)), check(Example(A100, SPARSE))
    assert by_hardware is not None
    assert not by_hardware.by_engine
    assert by_vllm is not None
    assert by_vllm.by_engine


def test_an_overridden_refusal_is_still_reported() -> None:
    example = Example("mi355x", stored=NVFP4)
    assert check(example, "SomethingElse") is not None
    judged = judge(example, "Nvfp4Emulated")
    assert judged.refusals == ()
    assert [refusal.rule for refusal in judged.overridden] == ["Nvfp4Emulated"]


def test_a_rule_that_does_not_apply_is_not_overridden() -> None:
    assert judge(Example(B200, stored=NVFP4), "Nvfp4Emulated").overridden == ()


def test_overriding_one_rule_brings_up_the_next() -> None:
    example = Example("mi355x", stored=NVFP4, kv_cache_dtype="fp8_e5m2")
    refused = check(example, "Nvfp4Emulated")
    assert refused is not None
    assert refused.rule == "Fp8E5m2OnRocm"


def test_warnings_do_not_refuse() -> None:
    (warning,) = judge(Example(A100, stored=FP8)).warnings
    assert "Marlin" in warning
    assert judge(Example(H100, stored=FP8)).warnings == ()


SETTINGS: list[tuple[Example, dict[str, str], tuple[str, ...]]] = [
    (Example(H100), {}, ()),
    (Example("mi300x", SPARSE), {"VLLM_ROCM_USE_AITER": "1"}, ()),
    (
        Example("mi300x", SPARSE, version="0.16.0"),
        {"VLLM_ROCM_USE_AITER_FP4BMM": "0", "VLLM_ROCM_USE_AITER": "1"},
        ("--block-size=1",),
    ),
    (Example("mi300x", stored=MXFP8), {"VLLM_MXFP8_EMULATION_DEQUANT_AT_LOAD": "1"}, ()),
    (
        Example(H100, stored={"quant_method": "fbgemm_fp8"}),
        {},
        ("--allow-deprecated-quantization",),
    ),
]


@pytest.mark.parametrize(("example", "env", "arguments"), SETTINGS)
def test_combinations_that_need_settings(
    example: Example, env: dict[str, str], arguments: tuple[str, ...]
) -> None:
    judged = judge(example)
    assert judged.refusals == ()
    assert (judged.settings.env, judged.settings.args) == (env, arguments)
    assert judged.settings.image is None


def test_settings_that_vllm_needs_to_start_are_marked() -> None:
    needed = judge(Example(H100, stored={"quant_method": "fbgemm_fp8"})).without_settings
    assert [refusal.rule for refusal in needed] == ["DeprecatedQuantization"]
    assert judge(Example("mi300x", stored=MXFP8)).without_settings == ()


def test_a_build_is_pinned_where_the_release_lacks_the_model() -> None:
    judged = judge(Example("mi355x", architecture="DeepseekV4ForCausalLM", version="0.27.1"))
    assert judged.refusals == ()
    assert (judged.settings.image or "").startswith("vllm/vllm-openai-rocm:nightly-")


def test_the_message_of_an_outdated_rule_says_so() -> None:
    newer = Example("mi210", stored=FP8, version="9.0.0")
    refused = check(newer)
    assert refused is not None
    assert refused.rule == "Fp8WithoutHardware"
    assert "checked on 2026-11-21; vLLM 9.0.0 is newer" in refused.message


def test_a_hostile_name_does_not_fill_the_message() -> None:
    long = Example(H100, stored={"quant_method": "{accelerator}" * 40})
    refused = check(long)
    assert refused is not None
    assert refused.rule == "UnknownQuantization"
    assert len(refused.message) < 400
    assert "H100 SXM" not in refused.message


def test_settings_that_contradict_each_other_keep_the_first() -> None:
    one = judge(Example("mi300x", SPARSE)).settings
    other = replace(one, env={"VLLM_ROCM_USE_AITER": "0", "OTHER": "x"}, args=("--a",))
    joined = one.joined(other)
    assert joined.env == {"VLLM_ROCM_USE_AITER": "1", "OTHER": "x"}
    assert joined.args == ("--a",)
