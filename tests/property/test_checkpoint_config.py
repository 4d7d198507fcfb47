"""Whatever a config.json holds, the answer is a shape or one of our errors."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.shapes import CONFIGS
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.config import parse_config, parse_config_text
from tonnage.checkpoint.model import Attention, CheckpointError, ModelShape

load_catalog()  # read once, outside of what is timed

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(0, 64)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["full_attention", "linear_attention", "mamba", "auto", "yarn", "longrope"])
    | st.sampled_from(["re:.*", "re:(a|b)*", "*" * 99, "NVFP4", "FP8", "MIXED_PRECISION", "fp4"])
    | st.sampled_from(["LLLG", "M*-E" * 20, "1,2,3", "9" * 99, "head_wise", "noaux_tc"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)

VALID: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "vocab_size": 100,
}
FIELDS = sorted(
    {
        *VALID, "head_dim", "torch_dtype", "tie_word_embeddings", "max_position_embeddings",
        "sliding_window", "sliding_window_pattern", "use_sliding_window", "max_window_layers",
        "layer_types", "full_attention_interval", "attention_chunk_size", "num_experts",
        "num_experts_per_tok", "moe_intermediate_size", "n_routed_experts", "n_shared_experts",
        "first_k_dense_replace", "moe_layer_freq", "decoder_sparse_step", "mlp_only_layers",
        "moe_layers", "mlp_layer_types", "enable_moe_block", "interleave_moe_layer_step",
        "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim",
        "index_n_heads", "index_head_dim", "indexer_types", "linear_num_key_heads",
        "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
        "linear_conv_kernel_dim", "mamba_ssm_dtype", "global_head_dim",
        "num_global_key_value_heads", "quantization_config", "vision_config", "text_config",
        "num_nextn_predict_layers", "is_encoder_decoder", "multi_query", "intermediate_size_mlp",
        "block_configs", "per_layer_config", "num_attention_heads_per_layer", "rope_scaling",
        "rope_parameters", "partial_rotary_factor", "rotary_dim", "num_kv_shared_layers",
        "use_double_wide_mlp", "hidden_size_per_layer_input", "altup_num_inputs", "laurel_rank",
        "attention_other_setting", "swa_num_attention_heads", "swa_head_dim", "attention_bias",
        "use_qk_norm", "zero_expert_num", "moe_layers_enum", "is_moe_layer", "num_dense_layers",
        "moe_layer_end_index", "hybrid_layer_pattern", "router_dtype", "attn_config", "ffn_config",
    }
)  # fmt: skip
PUBLISHED: list[dict[str, Any]] = [
    json.loads(file.read_text()) for file in sorted(CONFIGS.glob("*.json"))
]


def keys_of(config: object) -> Iterator[str]:
    """The keys of an object and of those within it."""
    if isinstance(config, dict):
        yield from config
    inner = config.values() if isinstance(config, dict) else config
    for value in inner if isinstance(config, dict | list) else ():
        yield from keys_of(value)


ALL_FIELDS = sorted({*FIELDS, *(key for config in PUBLISHED for key in keys_of(config))})
QUANTIZATION = st.fixed_dictionaries(
    {},
    optional={
        "quant_method": st.sampled_from(
            ["fp8", "compressed-tensors", "awq", "gptq", "mxfp4", "modelopt", "quark", "novel"]
        )
        | JSON,
        "quantization": JSON,
        "quant_algo": JSON,
        "kv_cache_scheme": JSON,
        "weight_block_size": JSON,
        "config_groups": st.dictionaries(
            st.text(max_size=4),
            st.fixed_dictionaries(
                {"weights": st.dictionaries(st.sampled_from(["num_bits", "type"]), JSON)}
            ),
        )
        | JSON,
        "global_quant_config": JSON,
        "bits": JSON,
        "group_size": JSON,
        "modules_to_not_convert": st.lists(st.text(max_size=20)) | JSON,
        "ignore": JSON,
    },
)


def parsed(config: dict[str, Any]) -> ModelShape | None:
    started, shape, message = time.process_time(), None, "none"
    try:
        shape = parse_config(config)
    except CheckpointError as error:
        message = str(error)
    assert 0 < len(message) < 2000
    assert time.process_time() - started < 1
    return shape


def replaced(config: object, fields: dict[str, Any]) -> Any:
    """The config with other values for some fields, wherever in it they stand."""
    if isinstance(config, dict):
        return {k: fields[k] if k in fields else replaced(v, fields) for k, v in config.items()}
    if isinstance(config, list):
        return [replaced(value, fields) for value in config]
    return config


@given(st.dictionaries(st.text(max_size=10) | st.sampled_from(FIELDS), JSON))
def test_any_object_gives_a_shape_or_our_error(config: dict[str, Any]) -> None:
    parsed(config)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=4))
def test_a_model_with_some_fields_replaced(fields: dict[str, Any]) -> None:
    shape = parsed({**VALID, **fields})
    if shape is not None:
        assert sum(shape.layer_counts.values()) == shape.layers == len(shape.layer_order)
        assert all(
            mixer.heads % mixer.kv_heads == 0
            for mixer in shape.mixer_counts
            if isinstance(mixer, Attention)
        )


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(PUBLISHED),
    st.dictionaries(st.sampled_from(ALL_FIELDS), JSON, min_size=1, max_size=6),
    st.booleans(),
)
def test_a_published_model_with_some_fields_replaced(
    config: dict[str, Any], fields: dict[str, Any], adds: bool
) -> None:
    parsed({**replaced(config, fields), **(fields if adds else {})})


@settings(deadline=None)
@given(st.sampled_from(PUBLISHED), st.lists(st.sampled_from(ALL_FIELDS), min_size=1, max_size=4))
def test_a_published_model_without_some_fields(config: dict[str, Any], gone: list[str]) -> None:
    parsed({key: value for key, value in config.items() if key not in gone})


@given(QUANTIZATION)
def test_a_model_with_any_quantisation(quantization: dict[str, Any]) -> None:
    parsed({**VALID, "quantization_config": quantization})


@given(st.text() | st.binary() | JSON.map(json.dumps))
def test_any_text_gives_a_shape_or_our_error(text: str | bytes) -> None:
    with contextlib.suppress(CheckpointError):
        assert isinstance(parse_config_text(text), ModelShape)
