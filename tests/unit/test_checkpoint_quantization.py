"""`quantization_config` in its dialects."""

import time
from collections import Counter
from typing import Any

import pytest

from tonnage.checkpoint.exclusions import Exclusions
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import CheckpointError, Quantization
from tonnage.checkpoint.quantization import read_quantization


def read(config: dict[str, Any]) -> Quantization:
    quantization = read_quantization(ConfigFields({"quantization_config": config}))
    assert quantization is not None
    return quantization


def group(**weights: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights}},
    }


DIALECTS: list[tuple[str, dict[str, Any], Quantization]] = [
    ("FP8 in blocks", {"quant_method": "fp8", "weight_block_size": [128, 128]},
     Quantization("fp8", 8, block=(128, 128))),
    ("FP8 by channel", {"quant_method": "fp8"}, Quantization("fp8", 8)),
    ("Llama 405B", {"quant_method": "fbgemm_fp8"}, Quantization("fbgemm_fp8", 8)),
    ("compressed FP8", group(num_bits=8, type="float", strategy="channel"),
     Quantization("compressed-tensors", 8)),
    ("compressed INT8", group(num_bits=8, type="int", strategy="channel", symmetric=True),
     Quantization("compressed-tensors", 8, is_float=False)),
    ("compressed INT4", group(num_bits=4, type="int", group_size=128, symmetric=True),
     Quantization("compressed-tensors", 4, group_size=128, scale_bits=16, is_float=False)),
    ("compressed INT4 with zero points",
     group(num_bits=4, type="int", group_size=128, symmetric=False),
     Quantization("compressed-tensors", 4, group_size=128, scale_bits=20, is_float=False)),
    ("compressed NVFP4", group(num_bits=4, type="float", group_size=16),
     Quantization("compressed-tensors", 4, group_size=16, scale_bits=8)),
    ("AWQ", {"quant_method": "awq", "bits": 4, "group_size": 128},
     Quantization("awq", 4, group_size=128, scale_bits=20, is_float=False)),
    ("GPTQ by channel", {"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": True},
     Quantization("gptq", 8, scale_bits=24, is_float=False)),
    ("GPTQ with activation order",
     {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True},
     Quantization("gptq", 4, group_size=128, scale_bits=20, is_float=False, desc_act=True)),
    ("gpt-oss", {"quant_method": "mxfp4"},
     Quantization("mxfp4", 4, group_size=32, scale_bits=8, experts_only=True)),
    ("MXFP8", {"quant_method": "mxfp8"}, Quantization("mxfp8", 8, group_size=32, scale_bits=8)),
    ("ModelOpt FP8", {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": "FP8"},
     Quantization("modelopt", 8, kv_cache_bits=8)),
    ("ModelOpt NVFP4",
     {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8}},
     Quantization("modelopt", 4, group_size=16, scale_bits=8, kv_cache_bits=8)),
    ("hf_quant_config.json",
     {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16}},
     Quantization("modelopt", 4, group_size=16, scale_bits=8, kv_cache_bits=8)),
    ("Quark FP8",
     {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}},
     Quantization("quark", 8)),
    ("Quark MXFP4",
     {"quant_method": "quark",
      "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}},
     Quantization("quark", 4, group_size=32, scale_bits=8)),
    ("bitsandbytes", {"quant_method": "bitsandbytes", "load_in_4bit": True},
     Quantization("bitsandbytes", 4, group_size=64)),
    ("a method that is not known", {"quant_method": "novel"},
     Quantization("novel", 16, scale_bits=32)),
]  # fmt: skip


@pytest.mark.parametrize(("what", "config", "want"), DIALECTS)
def test_dialects(what: str, config: dict[str, Any], want: Quantization) -> None:
    assert read(config) == want, what


def test_a_16_bit_checkpoint_has_none() -> None:
    assert read_quantization(ConfigFields({})) is None


IGNORED: list[tuple[str, str, dict[str, int]]] = [
    ("a layer by name", "model.layers.1.mlp.down_proj", {"mlp.down_proj": 1}),
    ("a part of every layer", "self_attn.o_proj", {"self_attn.o_proj": 3}),
    ("a pattern", "model.layers.*.mlp.up_proj", {"mlp.up_proj": 2}),
    ("an open end", "model.language_model.layers.2.mlp.shared_expert*",
     {"mlp.shared_experts.down_proj": 1}),
    ("a regular expression", "re:.*self_attn\\.k_proj$", {"self_attn.k_proj": 3}),
    ("another wrapping", "language_model.model.layers.0.mlp.down_proj", {"mlp.down_proj": 1}),
    ("a name that only begins alike", "mlp.gate", {}),
    ("a regular expression that is not understood", "re:(a|b)+(c)*self_attn", {}),
    ("the head", "lm_head", {}),
]  # fmt: skip


def counted(ignored: list[str], layers: int, expert_layers: set[int]) -> dict[str, int]:
    """In how many layers each linear layer keeps 16 bits."""
    exclusions = Exclusions(ignored)
    return dict(
        Counter(
            linear
            for layer in range(layers)
            for linear, _ in exclusions.of_layer(layer, layer in expert_layers)
        )
    )


@pytest.mark.parametrize(("what", "entry", "want"), IGNORED)
def test_layers_kept_in_16_bits(what: str, entry: str, want: dict[str, int]) -> None:
    """Three layers, the last one with experts instead of an MLP."""
    assert counted([entry], layers=3, expert_layers={2}) == want, what


def test_a_dense_layer_has_no_experts_to_ignore() -> None:
    counts = counted(["model.layers.0*"], layers=3, expert_layers={1, 2})
    assert "mlp.experts.0.down_proj" not in counts
    assert counts["mlp.down_proj"] == 1


def test_hostile_patterns_cost_no_time() -> None:
    patterns = [f"{'*a' * 120}{number}*" for number in range(64)]
    started = time.monotonic()
    counted(patterns, layers=512, expert_layers=set())
    assert time.monotonic() - started < 5


def test_more_patterns_than_any_checkpoint_has_are_refused() -> None:
    with pytest.raises(CheckpointError, match="64 patterns"):
        Exclusions(f"*{number}*" for number in range(65))
