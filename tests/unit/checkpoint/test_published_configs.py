"""Irregular fields, and fields that are missing, in published config.json files."""

from typing import Any

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.checkpoint.model import Attention, Experts, LatentAttention, ModelShape
from tonnage.checkpoint.shape import parse_config, parse_config_text
from tonnage.cli.fit.case import parse_case

LLAMA = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512,
"num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 100, "intermediate_size": 64"""


def attention(shape: ModelShape) -> Attention:
    """Return the attention of the first layer."""
    (mixer,) = shape.layer_kinds[shape.layer_order[0]].mixers
    assert isinstance(mixer, Attention)
    return mixer


@pytest.mark.parametrize("constant", ["Infinity", "-Infinity", "NaN"])
def test_infinity_and_nan_count_as_null(constant: str) -> None:
    text = f'{LLAMA}, "time_step_limit": [0.0, {constant}], "head_dim": {constant}}}'
    assert attention(parse_config_text(text)).head_dim == 64


def test_a_case_may_hold_a_config_with_an_infinity() -> None:
    case = parse_case('{"id": "a", "model": {"config": {"time_step_limit": [0.0, Infinity]}}}')
    assert case.model.config["time_step_limit"][0] == 0.0


def test_transformers_fills_in_what_a_text_config_leaves_out() -> None:
    # the published config of Gemma 3 4B has no heads and no vocabulary
    shape = parse_config(
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "text_config": {
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "model_type": "gemma3_text",
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
        }
    )
    mixer = attention(shape)
    assert (mixer.heads, mixer.kv_heads, mixer.head_dim) == (8, 4, 256)
    assert (shape.vocab_size, mixer.window) == (262208, 1024)


def test_null_overrides_a_default() -> None:
    shape = load_shape("llama-3.1-8b", model_type="mistral")
    assert attention(shape).window == 4096, "the default of Mistral's configuration class"
    assert (
        attention(load_shape("llama-3.1-8b", model_type="mistral", sliding_window=None)).window
        is None
    )


def test_a_text_config_without_a_family_has_that_of_the_root_config() -> None:
    text_config = {
        "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 100,
        "num_key_value_heads": 2, "intermediate_size": 64, "head_dim": 64,
        "sparse_attention_config": {
            "sparse_num_index_heads": 4, "sparse_index_dim": 128, "sparse_topk_blocks": 16,
            "sparse_attention_freq": [1, 1],
        },
    }  # fmt: skip
    shape = parse_config(
        {
            "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
            "model_type": "minimax_m3_vl",
            "text_config": text_config,
        }
    )
    assert shape.model_type == "minimax_m3_vl"
    assert attention(shape).indexer is not None


def test_sparse_latent_attention_has_two_names() -> None:
    fields: dict[str, Any] = {
        "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32,
        "layer_types": ["deepseek_sparse_attention"] * 32,
    }  # fmt: skip
    (mixer,) = load_shape("llama-3.1-8b", **fields).layer_kinds[0].mixers
    assert isinstance(mixer, LatentAttention)


def test_latent_values_have_the_width_of_a_head_by_default() -> None:
    # MiniCPM3 has no v_head_dim
    fields = {"kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32}
    (mixer,) = load_shape("llama-3.1-8b", **fields).layer_kinds[0].mixers
    assert isinstance(mixer, LatentAttention)
    assert mixer.v_head_dim == 4096 // 32


def test_a_value_width_of_zero_means_that_of_a_head() -> None:
    # DeepSeek-VL2 without latent attention
    assert attention(load_shape("llama-3.1-8b", v_head_dim=0)).value_head_dim == 128


MODELOPT: list[dict[str, Any]] = [
    {"quant_algo": "FP8", "producer": {"name": "modelopt"}},
    {"quantization": {"quant_algo": "FP8"}, "producer": {"name": "modelopt"}},
]


@pytest.mark.parametrize("config", MODELOPT)
def test_modelopt_without_a_method_is_recognised_by_its_algorithm(config: dict[str, Any]) -> None:
    quantization = load_shape("llama-3.1-8b", quantization_config=config).quantization
    assert quantization is not None
    assert (quantization.method, quantization.weight_bits) == ("modelopt", 8)


def test_mlp_patterns_do_not_match_experts_next_to_an_mlp() -> None:
    # Gemma 4 in NVFP4: `mlp` is only the MLP
    fields = {
        "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 128,
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4",
                                "group_size": 16, "ignore": ["model.layers.*.mlp*"]},
    }  # fmt: skip
    next_to_mlp = load_shape("llama-3.1-8b", enable_moe_block=True, **fields).layer_kinds[0]
    in_mlp = load_shape("llama-3.1-8b", **fields).layer_kinds[0]
    assert dict(next_to_mlp.exceptions).get("mlp.up_proj", "quantised") is None
    assert "mlp.experts.0.down_proj" not in dict(next_to_mlp.exceptions)
    assert dict(in_mlp.exceptions).get("mlp.experts.0.down_proj", "quantised") is None


def test_ernie_has_experts_for_text_and_for_images() -> None:
    shape = load_shape(
        "llama-3.1-8b",
        moe_num_experts=[64, 32],
        moe_intermediate_size=[1536, 512],
        moe_k=6,
        moe_num_shared_experts=2,
        moe_layer_start_index=[1, 1],
        moe_layer_end_index=[31, 30],
    )
    blocks = shape.layer_kinds[shape.layer_order[-1]].feed_forwards
    sizes = [
        (block.count, block.intermediate_size, block.shared_intermediate_size)
        for block in blocks
        if isinstance(block, Experts)
    ]
    assert sizes == [(64, 1536, 3072), (32, 512, 0)]


def test_the_mlp_size_of_molmo_includes_the_gate() -> None:
    shape = load_shape("llama-3.1-8b", model_type="molmo", intermediate_size=37888)
    assert shape.intermediate_size == 18944
