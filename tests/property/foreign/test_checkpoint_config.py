"""Any config.json gives a shape or a CheckpointError."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engines.shapes import CONFIGS
from tests.support.foreign.counted_work import counted_work
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Attention, CheckpointError, ModelShape
from tonnage.checkpoint.shape import parse_config, parse_config_text

load_catalog()  # read once, outside of what is counted

MOST_LINES = 1_000_000
"""Of Python that run for one config; the published ones take 4,000 to 300,000."""

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
BY_NAME: dict[str, dict[str, Any]] = {
    file.stem: json.loads(file.read_text()) for file in sorted(CONFIGS.glob("*.json"))
}
PUBLISHED = list(BY_NAME.values())


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
    shape, message = None, "none"
    try:
        with counted_work(MOST_LINES):
            shape = parse_config(config)
    except CheckpointError as error:
        message = str(error)
    assert 0 < len(message) < 2000
    return shape


def replaced(config: object, fields: dict[str, Any]) -> Any:
    """The config with other values for some fields, wherever in it they stand."""
    if isinstance(config, dict):
        return {k: fields[k] if k in fields else replaced(v, fields) for k, v in config.items()}
    if isinstance(config, list):
        return [replaced(value, fields) for value in config]
    return config


@given(st.dictionaries(st.text(max_size=10) | st.sampled_from(FIELDS), JSON))
def test_any_object_gives_a_shape_or_a_checkpoint_error(config: dict[str, Any]) -> None:
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


@settings(max_examples=200)
@given(
    st.sampled_from(PUBLISHED),
    st.dictionaries(st.sampled_from(ALL_FIELDS), JSON, min_size=1, max_size=6),
    st.booleans(),
)
def test_a_published_model_with_some_fields_replaced(
    config: dict[str, Any], fields: dict[str, Any], adds: bool
) -> None:
    parsed({**replaced(config, fields), **(fields if adds else {})})


@given(st.sampled_from(PUBLISHED), st.lists(st.sampled_from(ALL_FIELDS), min_size=1, max_size=4))
def test_a_published_model_without_some_fields(config: dict[str, Any], gone: list[str]) -> None:
    parsed({key: value for key, value in config.items() if key not in gone})


@given(QUANTIZATION)
def test_a_model_with_any_quantisation(quantization: dict[str, Any]) -> None:
    parsed({**VALID, "quantization_config": quantization})


@given(st.text() | st.binary() | JSON.map(json.dumps))
def test_any_text_gives_a_shape_or_a_checkpoint_error(text: str | bytes) -> None:
    with contextlib.suppress(CheckpointError):
        assert isinstance(parse_config_text(text), ModelShape)


SIZES = (30, 60, 120)
"""Each twice the one before, and the last one within all limits, so that nothing is refused."""

MANY: Mapping[str, Callable[[int], Any]] = {
    "names": lambda many: [f"model.layers.{n}.self_attn.q_proj" for n in range(many)],
    "other names": lambda many: [f"a{n}" for n in range(many)],
    "patterns": lambda many: [f"re:.*self_attn.a{n}.*" for n in range(many)],
    "numbers": lambda many: list(range(many)),
    "numbers in a text": lambda many: ",".join(map(str, range(many))),
    "objects": lambda many: [{"num_bits": 4, "bits": 4} for _ in range(many)],
    "named objects": lambda many: {
        f"model.layers.{n}.mlp": {"num_bits": 4, "bits": 4, "quant_algo": "FP8"}
        for n in range(many)
    },
    "groups": lambda many: {
        f"group_{n}": {"targets": [f"re:.*a{n}"], "weights": {"num_bits": 2 + n % 7}}
        for n in range(many)
    },
}
"""So many of something that a field may hold."""

NAMES = ("names", "other names", "patterns")
GROUPS = {"config_groups": MANY["groups"](1)}
"""compressed-tensors has at least one group; the other methods do not read them."""

PER_LAYER_FIELDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "fp8": {"ignored_layers": NAMES, "modules_to_not_convert": NAMES},
    "compressed-tensors": {"ignore": NAMES, "config_groups": ["groups"]},
    "gptq": {"dynamic": ["named objects"]},
    "awq": {"modules_to_not_convert": NAMES},
    "auto-round": {"extra_config": ["named objects"]},
    "modelopt": {"quantized_layers": ["named objects"]},
    "quark": {"exclude": NAMES, "layer_quant_config": ["named objects"]},
}
"""The fields by which methods of quantisation tell layers apart, and what they hold."""

LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
"""What families call it."""


def lines_of(config: dict[str, Any]) -> int:
    """How many run, once whatever is kept for the next time is kept."""
    for _ in range(2):
        with counted_work(MOST_LINES) as work, contextlib.suppress(CheckpointError):
            parse_config(config)
    return work.lines


def find_growth(sized: Callable[[int], dict[str, Any]]) -> list[int]:
    """The lines for each of SIZES where twice as much takes more than twice as many, else none."""
    small, middle, large = counts = [lines_of(sized(size)) for size in SIZES]
    return counts if large - middle > 2.2 * max(0, middle - small) + 100 else []


def with_layers(config: dict[str, Any], layers: int, known: int | None = None) -> dict[str, Any]:
    """The config of a model like it with so many layers: what it lists for each goes on.

    `known` are those of the model that this is a part of.
    """
    counts = {key: config[key] for key in config if key in LAYER_COUNTS}
    known = next(iter(counts.values()), known)

    def resized(value: Any) -> Any:
        if isinstance(value, dict):
            return with_layers(value, layers, known)
        # Layers that predict ahead are listed behind the others.
        if isinstance(value, list | str) and known and 0 <= len(value) - known <= 3:
            return (value[:known] * (layers // known + 1))[:layers] + value[known:]
        return value

    return {key: layers if key in counts else resized(value) for key, value in config.items()}


@pytest.mark.parametrize("name", BY_NAME)
def test_twice_the_layers_are_at_most_twice_the_work(name: str) -> None:
    assert parse_config(with_layers(BY_NAME[name], SIZES[-1])).layers == SIZES[-1]
    assert find_growth(lambda layers: with_layers(BY_NAME[name], layers)) == []


@pytest.mark.parametrize("kind", MANY)
def test_twice_as_much_in_any_field_is_at_most_twice_the_work(kind: str) -> None:
    grown = {
        field: find_growth(lambda many, field=field: {**VALID, field: MANY[kind](many)})
        for field in ALL_FIELDS
    }
    assert {field: lines for field, lines in grown.items() if lines} == {}


def quantized(method: str, field: str, value: Any) -> dict[str, Any]:
    """A model with layers that differ in that field."""
    scheme = {"quant_method": method, "bits": 4, "quant_algo": "MIXED_PRECISION"}
    return {**VALID, "quantization_config": {**scheme, **GROUPS, field: value}}


@pytest.mark.parametrize(
    ("method", "field", "kind"),
    [
        (method, field, kind)
        for method, fields in PER_LAYER_FIELDS.items()
        for field, kinds in fields.items()
        for kind in kinds
    ],
)
def test_twice_as_many_listed_layers_are_at_most_twice_the_work(
    method: str, field: str, kind: str
) -> None:
    parse_config(quantized(method, field, MANY[kind](SIZES[-1])))
    assert find_growth(lambda many: quantized(method, field, MANY[kind](many))) == []
