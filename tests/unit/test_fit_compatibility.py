"""What is refused where, and what a user may override."""

from dataclasses import replace
from typing import Any

import pytest

from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.config import parse_config
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.compatibility import Incompatible, check_compatibility, compatibility_warnings
from tonnage.fit.model import EngineOptions

CATALOG = load_catalog()
OPTIONS = EngineOptions("v0.32.0", 8192)

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
}
FP8 = {"quant_method": "fp8"}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}


def model(quantization: dict[str, Any] | None = None, **fields: Any) -> Checkpoint:
    extra = {} if quantization is None else {"quantization_config": quantization}
    return Checkpoint(parse_config({**LLAMA, **extra, **fields}))


def check(
    checkpoint: Checkpoint,
    accelerator: str,
    *allow: str,
    options: EngineOptions = OPTIONS,
) -> Incompatible | None:
    return check_compatibility(
        checkpoint, CATALOG.accelerator(accelerator), options, allow, CATALOG
    )


REFUSED: list[tuple[str, dict[str, Any] | None, str, EngineOptions, str | None]] = [
    ("16 bits on MI300X", None, "mi300x", OPTIONS, None),
    ("16 bits on MI100", None, "mi100", OPTIONS, "UnsupportedAccelerator"),
    ("FP8 on MI300X", FP8, "mi300x", OPTIONS, None),
    ("FP8 on MI210", FP8, "mi210", OPTIONS, "Fp8WithoutHardware"),
    ("FP8 on Radeon", FP8, "rx-7900-xtx", OPTIONS, "Fp8WithoutHardware"),
    ("FP8 on A100", FP8, "a100-sxm-80gb", OPTIONS, None),
    ("online FP8 on MI210", None, "mi210", replace(OPTIONS, quantization="fp8"),
     "Fp8WithoutHardware"),
    ("NVFP4 on MI355X", NVFP4, "mi355x", OPTIONS, "Nvfp4OnAmd"),
    ("NVFP4 on B200", NVFP4, "b200-180gb", OPTIONS, None),
    ("fp8_e5m2 cache on MI300X", None, "mi300x", replace(OPTIONS, kv_cache_dtype="fp8_e5m2"),
     "Fp8E5m2OnAmd"),
    ("fp8_e5m2 cache on H100", None, "h100-sxm-80gb",
     replace(OPTIONS, kv_cache_dtype="fp8_e5m2"), None),
    ("fp8_e5m2 cache of an FP8 model", FP8, "h100-sxm-80gb",
     replace(OPTIONS, kv_cache_dtype="fp8_e5m2"), "Fp8E5m2WithFp8Weights"),
    ("FP8 cache on MI300X", None, "mi300x", replace(OPTIONS, kv_cache_dtype="fp8"), None),
    ("FP8 cache on MI210", None, "mi210", replace(OPTIONS, kv_cache_dtype="fp8"),
     "Fp8KvCacheUnverified"),
    ("bitsandbytes on H100", {"quant_method": "bitsandbytes", "load_in_4bit": True},
     "h100-sxm-80gb", OPTIONS, "BitsAndBytesNeedsPlugin"),
    ("bitsandbytes on H100, before", {"quant_method": "bitsandbytes", "load_in_4bit": True},
     "h100-sxm-80gb", replace(OPTIONS, vllm_version="v0.20.0"), None),
    ("GGUF", {"quant_method": "gguf"}, "h100-sxm-80gb", OPTIONS, "GgufNeedsPlugin"),
    ("GPTQ", GPTQ, "mi300x", OPTIONS, None),
    ("GPTQ with activation order", {**GPTQ, "desc_act": True}, "h100-sxm-80gb", OPTIONS,
     "GptqActOrder"),
    ("GPTQ with activation order, before", {**GPTQ, "desc_act": True}, "h100-sxm-80gb",
     replace(OPTIONS, vllm_version="v0.27.1"), None),
    ("a method for CUDA only", {"quant_method": "experts_int8", "bits": 8}, "mi300x", OPTIONS,
     "QuantizationNotOnRocm"),
    ("another method than the file's", FP8, "h100-sxm-80gb", replace(OPTIONS, quantization="awq"),
     "QuantizationMismatch"),
    ("the file's method by another name", GPTQ, "h100-sxm-80gb",
     replace(OPTIONS, quantization="gptq_marlin"), None),
    ("AWQ from a 16-bit file", None, "h100-sxm-80gb", replace(OPTIONS, quantization="awq"),
     "QuantizationMismatch"),
    ("FP8 from a 16-bit file", None, "h100-sxm-80gb", replace(OPTIONS, quantization="fp8"), None),
]  # fmt: skip


@pytest.mark.parametrize(("what", "quantization", "accelerator", "options", "want_rule"), REFUSED)
def test_what_runs_where(
    what: str,
    quantization: dict[str, Any] | None,
    accelerator: str,
    options: EngineOptions,
    want_rule: str | None,
) -> None:
    refused = check(model(quantization), accelerator, options=options)
    assert (refused.rule if refused else None) == want_rule, what


ARCHITECTURES: list[tuple[str, str, str | None]] = [
    ("LlamaForCausalLM", "v0.32.0", None),
    ("QWenLMHeadModel", "v0.32.0", "ArchitectureRemoved"),
    ("QWenLMHeadModel", "v0.23.0", None),
    ("NovelForCausalLM", "v0.32.0", "ArchitectureUnknown"),
    ("BartForConditionalGeneration", "v0.32.0", "ArchitectureNeedsPlugin"),
]


@pytest.mark.parametrize(("architecture", "version", "want_rule"), ARCHITECTURES)
def test_what_a_release_serves(architecture: str, version: str, want_rule: str | None) -> None:
    checkpoint = model(architectures=[architecture])
    refused = check(checkpoint, "mi300x", options=replace(OPTIONS, vllm_version=version))
    assert (refused.rule if refused else None) == want_rule


def test_a_removed_architecture_names_the_last_release() -> None:
    refused = check(model(architectures=["QWenLMHeadModel"]), "mi300x")
    assert refused is not None
    assert "v0.23.0" in refused.message


def test_messages_name_the_device_and_what_to_do() -> None:
    refused = check(model(FP8), "mi210")
    assert refused is not None
    assert refused.message.startswith("Instinct MI210 has no FP8 matrix units; use ")


def test_an_overridable_rule_gives_way_to_its_name() -> None:
    assert check(model(NVFP4), "mi355x", "Nvfp4OnAmd") is None
    assert check(model(NVFP4), "mi355x", "SomethingElse") is not None


def test_a_refusal_of_vllm_itself_cannot_be_overridden() -> None:
    refused = check(model(FP8), "mi210", "Fp8WithoutHardware", "UnsupportedAccelerator")
    assert refused is not None
    assert not refused.overridable


def test_overriding_one_rule_brings_up_the_next() -> None:
    options = replace(OPTIONS, kv_cache_dtype="fp8_e5m2")
    refused = check(model(NVFP4), "mi355x", "Nvfp4OnAmd", options=options)
    assert refused is not None
    assert refused.rule == "Fp8E5m2OnAmd"


def test_warnings_do_not_refuse() -> None:
    a100 = CATALOG.accelerator("a100-sxm-80gb")
    warnings = compatibility_warnings(model(FP8), a100, OPTIONS, CATALOG)
    assert len(warnings) == 1
    assert "Marlin" in warnings[0]
    h100 = CATALOG.accelerator("h100-sxm-80gb")
    assert compatibility_warnings(model(FP8), h100, OPTIONS, CATALOG) == ()
