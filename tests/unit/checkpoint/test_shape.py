"""Parsing config.json of published models, and the errors for invalid ones."""

import json
from collections import Counter
from typing import Any

import pytest

from tests.support.engines.shapes import CONFIGS, load_shape
from tonnage.checkpoint.model import (
    Attention,
    CheckpointError,
    DType,
    Experts,
    LatentAttention,
    LinearAttention,
    ModelShape,
    UnsupportedArchitectureError,
)
from tonnage.checkpoint.shape import MAX_CONFIG_BYTES, parse_config, parse_config_text

DENSE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}


def windows(shape: ModelShape) -> Counter[int | None]:
    """Count layers by their window in tokens."""
    return Counter({m.window: n for m, n in shape.mixer_counts.items() if isinstance(m, Attention)})


def layers_with_experts(shape: ModelShape) -> int:
    return sum(
        count
        for layer, count in shape.layer_counts.items()
        if any(isinstance(block, Experts) for block in layer.feed_forwards)
    )


def load(name: str) -> dict[str, Any]:
    content = json.loads((CONFIGS / f"{name}.json").read_text())
    assert isinstance(content, dict)
    return content


def test_a_dense_model_with_grouped_query_attention() -> None:
    shape = parse_config(load("llama-3.3-70b"))
    assert (shape.layers, shape.hidden_size, shape.intermediate_size) == (80, 8192, 28672)
    assert shape.mixer_counts == {Attention(64, 8, 128, 128): 80}
    assert shape.dtype is DType.BFLOAT16
    assert not shape.tie_word_embeddings
    assert shape.quantization is None
    assert shape.experts is None


def test_latent_attention_and_experts_after_dense_layers() -> None:
    shape = parse_config(load("deepseek-v3"))
    assert shape.latent_attention == LatentAttention(128, 512, 64, 128, 128, 1536)
    assert shape.experts == Experts(256, 8, 2048, shared_intermediate_size=2048, router_bias=True)
    assert layers_with_experts(shape) == 58
    assert len(shape.draft_layers) == 1
    assert shape.quantization is not None
    assert shape.quantization.block == (128, 128)


def test_alternating_windows_and_experts_in_mxfp4() -> None:
    shape = parse_config(load("gpt-oss-120b"))
    assert windows(shape) == {128: 18, None: 18}
    assert shape.experts == Experts(128, 4, 2880, bias=True, silu=False)
    assert layers_with_experts(shape) == 36
    assert shape.quantization is not None
    assert shape.quantization.experts_only
    assert shape.dtype is DType.BFLOAT16, "gpt-oss names no dtype"


def test_a_language_model_nested_in_a_multimodal_config() -> None:
    shape = parse_config(load("gemma-3-27b"))
    assert windows(shape) == {1024: 52, None: 10}
    assert shape.tie_word_embeddings, "Gemma ties them by default"
    assert sum(encoder.elements for encoder in shape.encoders) > 400_000_000


def test_linear_attention_in_three_of_four_layers() -> None:
    shape = parse_config(load("qwen3.5-397b-a17b"))
    linear, attention = shape.mixer_counts
    assert isinstance(linear, LinearAttention)
    assert linear.state_dtype is DType.FLOAT32
    assert isinstance(attention, Attention)
    assert attention.gated
    assert tuple(shape.mixer_counts.values()) == (45, 15)


def test_linear_layers_counted_from_the_interval() -> None:
    config = {
        **DENSE,
        "architectures": ["Qwen3NextForCausalLM"],
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }
    assert list(parse_config(config).mixer_counts.values()) == [6, 2]


def test_layers_kept_in_16_bits_are_counted_by_layer() -> None:
    shape = parse_config(load("llama-3.1-405b-fp8"))
    unquantized = Counter[str]()
    for layer, count in shape.layer_counts.items():
        unquantized.update({linear: count for linear, _ in layer.exceptions})
    assert unquantized["self_attn.q_proj"] == 126, "all of the attention"
    assert unquantized["mlp.down_proj"] == 2, "the MLP of the first and the last layer"


MOE_RULES: list[tuple[str, dict[str, Any], int]] = [
    ("every layer", {"num_experts": 8}, 8),
    ("every second layer", {"num_experts": 8, "decoder_sparse_step": 2}, 4),
    ("all but listed ones", {"num_experts": 8, "mlp_only_layers": [0, 7]}, 6),
    ("after dense ones", {"n_routed_experts": 8, "first_k_dense_replace": 3}, 5),
    ("every second after dense ones",
     {"n_routed_experts": 8, "first_k_dense_replace": 1, "moe_layer_freq": 2}, 3),
    ("interleaved", {"num_local_experts": 8, "interleave_moe_layer_step": 2}, 4),
    ("listed", {"num_local_experts": 8, "moe_layers": [1, 3, 99]}, 2),
    ("by type", {"n_routed_experts": 8, "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 5}, 5),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "fields", "want_layers"), MOE_RULES)
def test_layers_with_experts(rule: str, fields: dict[str, Any], want_layers: int) -> None:
    config = {**DENSE, "num_experts_per_tok": 2, "moe_intermediate_size": 512, **fields}
    assert layers_with_experts(parse_config(config)) == want_layers, rule


def test_no_experts_is_a_dense_model() -> None:
    assert parse_config({**DENSE, "num_experts": 0}).experts is None


SHARED: list[tuple[dict[str, Any], int]] = [
    ({"n_routed_experts": 8, "n_shared_experts": 2}, 1024),
    ({"num_experts": 8, "shared_expert_intermediate_size": 640}, 640),
    ({"num_local_experts": 8, "interleave_moe_layer_step": 1}, 4096),
    ({"num_experts": 8}, 0),
]


@pytest.mark.parametrize(("fields", "want_size"), SHARED)
def test_the_size_of_shared_experts(fields: dict[str, Any], want_size: int) -> None:
    experts = parse_config({**DENSE, "moe_intermediate_size": 512, **fields}).experts
    assert experts is not None
    assert experts.shared_intermediate_size == want_size


def test_llama_4_has_a_separate_size_for_dense_layers() -> None:
    shape = parse_config(
        {**DENSE, "num_local_experts": 8, "interleave_moe_layer_step": 2,
         "intermediate_size_mlp": 16384}
    )  # fmt: skip
    assert shape.intermediate_size == 16384
    assert shape.experts is not None
    assert shape.experts.intermediate_size == 4096


WINDOWS: list[tuple[str, dict[str, Any], int]] = [
    ("switched off", {"sliding_window": 512, "use_sliding_window": False}, 0),
    ("upper layers",
     {"sliding_window": 512, "use_sliding_window": True, "max_window_layers": 6}, 2),
    ("every layer of Mistral", {"sliding_window": 512, "model_type": "mistral"}, 8),
    ("Gemma 2 alternates", {"sliding_window": 512, "model_type": "gemma2"}, 4),
    ("a pattern", {"sliding_window": 512, "sliding_window_pattern": 4}, 6),
    ("a pattern spelt out", {"sliding_window": 512, "sliding_window_pattern": "LLLG"}, 6),
    ("chunks of Llama 4", {"attention_chunk_size": 512, "model_type": "llama4_text"}, 6),
    ("any family without a pattern", {"sliding_window": 512, "model_type": "new"}, 8),
    ("none", {"sliding_window": None}, 0),
]  # fmt: skip


@pytest.mark.parametrize(("what", "fields", "want_layers"), WINDOWS)
def test_layers_with_a_window(what: str, fields: dict[str, Any], want_layers: int) -> None:
    shape = parse_config({**DENSE, **fields})
    assert windows(shape)[512] == want_layers, what


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [
        ("BertModel", {}),
        ("BertForMaskedLM", {}),
        ("CLIPModel", {}),
        ("T5ForConditionalGeneration", {"is_encoder_decoder": True}),
        ("WhisperForConditionalGeneration", {"is_encoder_decoder": True}),
        ("EagleLlamaForCausalLM", {}),
    ],
)
def test_architectures_other_than_decoders_are_unsupported(
    architecture: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedArchitectureError, match=architecture):
        parse_config({**DENSE, "architectures": [architecture], **fields})


def test_unknown_layer_types_are_unsupported() -> None:
    with pytest.raises(UnsupportedArchitectureError, match="mamba"):
        parse_config({**DENSE, "layer_types": ["mamba"] * 8})


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("a bool is no number", {"num_hidden_layers": True}, "num_hidden_layers is True"),
    ("zero layers", {"num_hidden_layers": 0}, "num_hidden_layers is 0"),
    ("too many layers", {"num_hidden_layers": 10**9}, "an integer from 1 to 512"),
    ("a negative size", {"hidden_size": -1}, "hidden_size is -1"),
    ("a float", {"vocab_size": 32000.5}, "vocab_size is 32000.5"),
    ("a string", {"vocab_size": "32000"}, "vocab_size is '32000'"),
    ("an enormous number", {"vocab_size": 10**5000}, "an integer of 16610 bits"),
    ("an enormous number in a list", {"architectures": [10**5000]}, "architectures is"),
    ("a missing size", {"hidden_size": None}, "hidden_size is missing"),
    ("no architecture", {"architectures": []}, "architectures is missing"),
    ("a strange architecture", {"architectures": ["a/b"]}, "model class"),
    ("KV heads that do not divide", {"num_key_value_heads": 5}, "a divisor of 16"),
    ("more heads than width", {"hidden_size": 8}, "at least 16"),
    ("an unknown dtype", {"torch_dtype": "int3"}, "torch_dtype is 'int3'"),
    ("more experts a token than there are",
     {"num_experts": 4, "num_experts_per_tok": 5}, "num_experts_per_tok is 5"),
    ("too short a list of layers", {"layer_types": ["full_attention"]}, "layer_types"),
    ("windows without their size", {"layer_types": ["sliding_attention"] * 8}, "sliding_window"),
    ("a quantisation without a method", {"quantization_config": {}}, "quant_method is missing"),
    ("blocks of one number",
     {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}},
     "weight_block_size"),
    ("a group size below zero",
     {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": -2}},
     "group_size is -2"),
    ("no groups",
     {"quantization_config": {"quant_method": "compressed-tensors"}}, "config_groups"),
    ("a config that is no object", {"quantization_config": "fp8"}, "an object"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "fields", "want_message"), WRONG)
def test_errors_name_field_value_and_expectation(
    what: str, fields: dict[str, Any], want_message: str
) -> None:
    with pytest.raises(CheckpointError) as error:
        parse_config({**DENSE, **fields})
    assert want_message in str(error.value), what
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("factor", [float("inf"), 1e308, -1, True])
def test_a_factor_is_a_number_within_bounds(factor: float) -> None:
    with pytest.raises(CheckpointError, match="block_ffn_dim_multiplier is"):
        load_shape("lfm2-8b-a1b", num_experts=0, block_ffn_dim_multiplier=factor)


def test_an_encoder_without_heads_does_not_divide_by_zero() -> None:
    vision = {"model_type": "gemma4_vision", "num_hidden_layers": 2, "hidden_size": 64}
    config = {**DENSE, "model_type": "gemma4", "text_config": DENSE, "vision_config": vision}
    (encoder,) = parse_config(config).encoders
    assert encoder.elements > 0


TEXTS: list[tuple[str, str | bytes, str]] = [
    ("not JSON", "{", "not valid JSON"),
    ("not an object", "[]", "holds a list"),
    ("a key twice", '{"a": 1, "a": 2}', "'a' twice"),
    ("a key twice, deeper", '{"b": {"a": 1, "a": 2}}', "'a' twice"),
    ("wrong encoding", b"\xff\xfe{}", "not valid JSON"),
    ("nested too deeply", "[" * 100_000 + "]" * 100_000, "nested too deeply"),
    ("a number of thousands of digits", '{"a": ' + "9" * 10_000 + "}", "not valid JSON"),
    ("too large", " " * (MAX_CONFIG_BYTES + 1), "larger than"),
]


@pytest.mark.parametrize(("what", "text", "want_message"), TEXTS)
def test_invalid_text_is_refused(what: str, text: str | bytes, want_message: str) -> None:
    with pytest.raises(CheckpointError) as error:
        parse_config_text(text)
    assert want_message in str(error.value), what


def test_text_and_bytes_have_the_same_shape() -> None:
    text = json.dumps(DENSE)
    assert parse_config_text(text) == parse_config_text(text.encode()) == parse_config(DENSE)
    assert parse_config_text(b"\xef\xbb\xbf" + text.encode()) == parse_config(DENSE)
