"""Every compatibility rule applies where it should and nowhere else, and none is out of date."""

from dataclasses import replace

import pytest

from tests.support.engines.subjects import (
    AWQ,
    BLOCK_FP8,
    CATALOG,
    EXPERTS,
    FP8,
    GPTQ,
    LATENT,
    MXFP4,
    MXFP8,
    NVFP4,
    QUARK_FP8,
    SPARSE,
    W4A8,
    W4A16,
    W8A8,
    W8A16,
    Example,
)
from tonnage.catalog.rules import CompatibilityRule, Outcome
from tonnage.fit.legality.rule_matching import covers, describe_subject, fill

BITSANDBYTES = {"quant_method": "bitsandbytes", "load_in_4bit": True}
ACT_ORDER = {**GPTQ, "desc_act": True}
FBGEMM = {"quant_method": "fbgemm_fp8"}
A100, L4, H100, B200, B300 = "a100-sxm-80gb", "l4", "h100-sxm-80gb", "b200-180gb", "b300-288gb"
SM120 = "rtx-pro-6000-bse"

DEEPSEEK_V4 = "DeepseekV4ForCausalLM"

EXAMPLES: dict[str, tuple[Example, Example]] = {
    "UnsupportedAccelerator": (Example("mi100"), Example("mi210")),
    "UncountedMemory": (
        Example(H100, uncounted=("--enable-eplb, which brings copies",)),
        Example(H100),
    ),
    "CudaLoader": (Example("mi300x", cuda_loader=True), Example(H100, cuda_loader=True)),
    "AdaptersUnsupported": (
        Example("mi300x", architecture="DeepseekV4ForCausalLM", adapters=True),
        Example(H100, architecture="DeepseekV4ForCausalLM", adapters=True),
    ),
    "AdaptersOfExpertsOnRocm": (
        Example("mi300x", EXPERTS, adapters=True),
        Example("mi300x", EXPERTS),
    ),
    "ArchitectureRemoved": (
        Example(H100, architecture="QWenLMHeadModel"),
        Example(H100, architecture="QWenLMHeadModel", version="0.23.0"),
    ),
    "ArchitectureNeedsPlugin": (
        Example(H100, architecture="BartForConditionalGeneration"),
        Example(H100),
    ),
    "ArchitectureUnknown": (Example(H100, architecture="NovelForCausalLM"), Example(H100)),
    "QuantizationMismatch": (
        Example(H100, stored=FP8, quantization="awq"),
        Example(H100, stored=GPTQ, quantization="gptq_marlin"),
    ),
    "QuantizationNotOnline": (Example(H100, quantization="awq"), Example(H100, quantization="fp8")),
    "UnknownQuantization": (
        Example(H100, stored={"quant_method": "novel", "bits": 4}),
        Example(H100, stored={"quant_method": "auto-round", "bits": 4, "group_size": 128}),
    ),
    "QuantizationNeedsPlugin": (
        Example(H100, stored=BITSANDBYTES),
        Example(H100, stored=BITSANDBYTES, version="0.27.1"),
    ),
    "QuantizationRemoved": (
        Example(H100, stored={"quant_method": "hqq", "bits": 4}),
        Example(H100, stored={"quant_method": "hqq", "bits": 4}, version="0.11.0"),
    ),
    "QuantizationTooNew": (
        Example(H100, stored=MXFP8, version="0.18.0"),
        Example(H100, stored=MXFP8, version="0.19.0"),
    ),
    "DeprecatedQuantization": (
        Example(H100, stored=FBGEMM),
        Example(H100, stored=FBGEMM, version="0.11.0"),
    ),
    "GptqActOrder": (
        Example(H100, stored=ACT_ORDER),
        Example(H100, stored=ACT_ORDER, version="0.29.0"),
    ),
    "QuantizationNotOnRocm": (
        Example("mi300x", stored=GPTQ, quantization="gptq_marlin"),
        Example("mi300x", stored=GPTQ),
    ),
    "QuantizationBelowCapability": (
        Example(H100, stored={"quant_method": "fp_quant"}),
        Example(B200, stored={"quant_method": "fp_quant"}),
    ),
    "Fp8WithoutHardware": (Example("mi210", stored=FP8), Example("mi300x", stored=FP8)),
    "QuarkFp8BelowAda": (Example(A100, stored=QUARK_FP8), Example(L4, stored=QUARK_FP8)),
    "Fp8WeightOnly": (Example(A100, stored=FP8), Example(L4, stored=FP8)),
    "Int8OnBlackwell": (Example(B300, stored=W8A8), Example(B300, stored=W8A16)),
    "Int8OnRadeon": (Example("rx-7900-xtx", stored=W8A8), Example("mi210", stored=W8A8)),
    "W4A8BelowHopper": (Example(L4, stored=W4A8), Example(H100, stored=W4A8)),
    "W4A8OnRocm": (Example("mi300x", stored=W4A8), Example("mi300x", stored=W4A16)),
    "Nvfp4Emulated": (Example("mi355x", stored=NVFP4), Example(B200, stored=NVFP4)),
    "Nvfp4WithoutHardware": (Example("mi210", stored=NVFP4), Example("mi355x", stored=NVFP4)),
    "Nvfp4WeightOnly": (Example(H100, stored=NVFP4), Example(B200, stored=NVFP4)),
    "Mxfp4OnCdna3": (
        Example("mi300x", EXPERTS, stored=MXFP4),
        Example("mi300x", architecture="GptOssForCausalLM", stored=MXFP4),
    ),
    "Mxfp4Emulated": (Example("mi210", stored=MXFP4), Example("mi355x", stored=MXFP4)),
    "Mxfp8Expanded": (Example("mi300x", stored=MXFP8), Example("mi355x", stored=MXFP8)),
    "FewerExpertKernelsOnSm120": (
        Example(SM120, EXPERTS, stored=NVFP4),
        Example(SM120, stored=NVFP4),
    ),
    "Fp8KvCacheWithoutHardware": (
        Example("mi210", kv_cache_dtype="fp8"),
        Example("mi300x", kv_cache_dtype="fp8"),
    ),
    "Fp8KvCacheOnAmpere": (Example(A100, kv_cache_dtype="fp8"), Example(L4, kv_cache_dtype="fp8")),
    "Fp8E5m2OnRocm": (
        Example("mi300x", kv_cache_dtype="fp8_e5m2"),
        Example(H100, kv_cache_dtype="fp8_e5m2"),
    ),
    "Fp8E5m2WithFp8Weights": (
        Example(H100, stored=FP8, kv_cache_dtype="fp8_e5m2"),
        Example(H100, stored=AWQ, kv_cache_dtype="fp8_e5m2"),
    ),
    "Nvfp4KvCacheNeedsBlackwell": (
        Example(H100, kv_cache_dtype="nvfp4"),
        Example(B300, kv_cache_dtype="nvfp4"),
    ),
    "LatentAttentionOnSm120": (Example(SM120, LATENT), Example(SM120, SPARSE)),
    "AiterLatentAttentionByHeads": (
        Example("mi300x", LATENT, version="0.14.0"),
        Example("mi300x", LATENT),
    ),
    "AiterFp4ProductOnCdna3": (
        Example("mi300x", LATENT, version="0.16.0"),
        Example("mi355x", LATENT, version="0.16.0"),
    ),
    "SparseAttentionNeedsAiter": (Example("mi300x", SPARSE), Example("mi300x", LATENT)),
    "SparseAttentionOfOneTokenBlocks": (
        Example("mi300x", SPARSE, version="0.17.0"),
        Example("mi300x", SPARSE),
    ),
    "SparseAttentionNotOnRocmYet": (
        Example("mi300x", SPARSE, version="0.11.0"),
        Example("mi300x", SPARSE, version="0.14.0"),
    ),
    "SparseAttentionOnCdna2": (Example("mi210", SPARSE), Example("mi210", LATENT)),
    "SparseAttentionOnRadeon": (
        Example("rx-7900-xtx", SPARSE, version="0.27.1"),
        Example("rx-7900-xtx", SPARSE),
    ),
    "SparseAttentionBelowHopper": (Example(A100, SPARSE), Example(H100, SPARSE)),
    "DeepSeekV4BelowHopper": (
        Example(L4, architecture=DEEPSEEK_V4),
        Example(H100, architecture=DEEPSEEK_V4),
    ),
    "DeepSeekV4WithoutKernels": (
        Example("mi210", architecture=DEEPSEEK_V4),
        Example("mi355x", architecture=DEEPSEEK_V4),
    ),
    "DeepSeekV4OnCdna3": (
        Example("mi300x", architecture=DEEPSEEK_V4),
        Example("mi355x", architecture=DEEPSEEK_V4),
    ),
    "DeepSeekV4NeedsNewerImage": (
        Example("mi355x", architecture=DEEPSEEK_V4, version="0.27.1"),
        Example("mi355x", architecture=DEEPSEEK_V4),
    ),
    "DeepSeekV4GraphsOnRocm": (
        Example("mi355x", architecture=DEEPSEEK_V4),
        Example(B200, architecture=DEEPSEEK_V4),
    ),
    "Dots3NoteOnRocm": (
        Example("mi355x", architecture="Dots3NoteForCausalLM"),
        Example(H100, architecture="Dots3NoteForCausalLM"),
    ),
    "Dots3NoteOnBlackwell": (
        Example(B200, architecture="Dots3NoteForCausalLM"),
        Example(H100, architecture="Dots3NoteForCausalLM"),
    ),
    "Qwen3VlFp8OnMi325x": (
        Example("mi325x", architecture="Qwen3VLMoeForConditionalGeneration", stored=BLOCK_FP8),
        Example("mi325x", architecture="Qwen3VLMoeForConditionalGeneration"),
    ),
    "KimiK3OnCdna3": (
        Example("mi300x", architecture="KimiK3ForConditionalGeneration"),
        Example("mi355x", architecture="KimiK3ForConditionalGeneration"),
    ),
    "Glm5NextOnRocm": (
        Example("mi355x", architecture="Glm5NextForCausalLM"),
        Example(B200, architecture="Glm5NextForCausalLM"),
    ),
    "EncoderDecoderOnRocm": (
        Example("mi300x", architecture="WhisperForConditionalGeneration"),
        Example(H100, architecture="WhisperForConditionalGeneration"),
    ),
}


def applicable_rules(example: Example) -> set[str]:
    return {rule.name for rule in CATALOG.rules if covers(rule.when, example.subject)}


def test_every_rule_has_an_example() -> None:
    assert set(EXAMPLES) == {rule.name for rule in CATALOG.rules}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_rule_applies_to_its_example_and_not_to_its_counterexample(name: str) -> None:
    example, counterexample = EXAMPLES[name]
    assert name in applicable_rules(example)
    assert name not in applicable_rules(counterexample)


@pytest.mark.parametrize("rule", CATALOG.rules, ids=lambda rule: rule.name)
def test_sentences_have_a_fact_for_every_placeholder(rule: CompatibilityRule) -> None:
    example, _ = EXAMPLES[rule.name]
    sentence = fill(f"{rule.message}; {rule.instead}", example.subject, CATALOG)
    assert "{" not in sentence
    unknown = "None" if rule.instead else "; None"
    assert unknown not in sentence.removesuffix("; None")


def test_no_rule_is_older_than_the_default_release() -> None:
    """Review a rule that fails here against the new release's source; do not delete it."""
    expired = [r.name for r in CATALOG.rules if r.is_expired(CATALOG.default_release)]
    assert expired == []


def test_names_of_rules_are_unique() -> None:
    names = [rule.name for rule in CATALOG.rules]
    assert len(set(names)) == len(names)


def test_rules_name_accelerators_and_classes_that_exist() -> None:
    known = CATALOG.architectures.served | set(CATALOG.architectures.unsized)
    for rule in CATALOG.rules:
        assert (rule.when.accelerators or frozenset()) <= set(CATALOG.accelerators)
        assert (rule.when.architectures or frozenset()) <= known
        assert (rule.when.except_architectures or frozenset()) <= known


def test_rules_name_methods_that_exist() -> None:
    known = set(CATALOG.quantization_methods.methods)
    for rule in CATALOG.rules:
        assert (rule.when.methods or frozenset()) | (
            rule.when.except_methods or frozenset()
        ) <= known


@pytest.mark.parametrize("rule", CATALOG.rules, ids=lambda rule: rule.name)
def test_patterns_of_architectures_match_something(rule: CompatibilityRule) -> None:
    """A rule about architectures that no accelerator has would never apply."""
    example, _ = EXAMPLES[rule.name]
    unknown_device = replace(example.accelerator, arch="nothing-of-the-kind")
    subject = describe_subject(example.checkpoint.shape, unknown_device, example.options, CATALOG)
    if rule.when.archs is not None:
        assert not covers(rule.when, subject)


def test_settings_are_arguments_and_variables_of_the_pod() -> None:
    for rule in CATALOG.rules:
        if rule.outcome is Outcome.SETTING:
            assert all(argument.startswith("--") for argument in rule.settings.args)
            assert all(name.isupper() for name in rule.settings.env)
