"""The defaults of families, and layers that differ within one model."""

from typing import Any

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.checkpoint.feed_forward_kinds import (
    DraftProjection,
    LayerEmbedding,
    ResidualStreams,
)
from tonnage.checkpoint.model import (
    Attention,
    CheckpointError,
    DecoderLayer,
    Experts,
    LatentAttention,
    Mlp,
    ModelShape,
)
from tonnage.checkpoint.shape import parse_config

SMALL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
    "vocab_size": 32000,
}
ROUTED: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
WINDOWS: list[str] = ["sliding_attention", "full_attention"] * 4


def read(**fields: object) -> ModelShape:
    return parse_config({**SMALL, **fields})


def first(shape: ModelShape) -> DecoderLayer:
    return shape.layer_kinds[0]


def attention(layer: DecoderLayer) -> Attention:
    (mixer,) = layer.mixers
    assert isinstance(mixer, Attention)
    return mixer


def inner_sizes(shape: ModelShape) -> list[int]:
    """Return the MLP's sizes from the first layer to the last."""
    layers = [shape.layer_kinds[kind] for kind in shape.layer_order]
    return [block.intermediate_size for layer in layers for block in layer.feed_forwards
            if isinstance(block, Mlp)]  # fmt: skip


NORMS: list[tuple[str, int]] = [
    ("llama", 2 * 1024), ("gemma3_text", 4 * 1024), ("glm4", 4 * 1024), ("cohere", 1024),
    ("olmo", 0), ("stablelm", 4 * 1024), ("phi", 2 * 1024),
]  # fmt: skip


@pytest.mark.parametrize(("family", "want_elements"), NORMS)
def test_norms_of_a_layer(family: str, want_elements: int) -> None:
    assert first(read(model_type=family)).norm_elements == want_elements


QUERY_KEY_NORMS: list[tuple[str, dict[str, Any], int]] = [
    ("llama", {}, 0),
    ("qwen3", {"head_dim": 64}, 2 * 64),
    ("olmo2", {}, (16 + 4) * 64),
    ("glm4_moe", {"use_qk_norm": True}, 2 * 64),
    ("qwen3", {"use_qk_norm": False}, 0),
]


@pytest.mark.parametrize(("family", "fields", "want_elements"), QUERY_KEY_NORMS)
def test_norms_of_queries_and_keys(family: str, fields: dict[str, Any], want_elements: int) -> None:
    assert attention(first(read(model_type=family, **fields))).norm_elements == want_elements


# Biases of the projections into attention, out of it, and of the MLP.
BIASES: list[tuple[str, dict[str, Any], tuple[bool, bool, bool]]] = [
    ("llama", {}, (False, False, False)),
    ("llama", {"attention_bias": True}, (True, True, False)),
    ("llama", {"attention_bias": True, "mlp_bias": True}, (True, True, True)),
    ("qwen2", {}, (True, False, False)),
    ("qwen3", {"attention_bias": True}, (True, False, False)),
    ("glm4_moe", {"attention_bias": True}, (True, False, False)),
    ("seed_oss", {"attention_bias": True, "attention_out_bias": False}, (True, False, False)),
    ("starcoder2", {"use_bias": True}, (True, True, True)),
    ("starcoder2", {"use_bias": False}, (False, False, False)),
    ("gpt2", {}, (True, True, True)),
]


@pytest.mark.parametrize(("family", "fields", "want"), BIASES)
def test_biases(family: str, fields: dict[str, Any], want: tuple[bool, bool, bool]) -> None:
    layer = first(read(model_type=family, **fields))
    mixer, mlp = attention(layer), layer.feed_forwards[0]
    assert isinstance(mlp, Mlp)
    assert (mixer.qkv_bias, mixer.output_bias, mlp.bias) == want


ROUTERS: list[tuple[str, dict[str, Any], int, bool]] = [
    ("qwen3_moe", {}, 2, False),
    ("glm4_moe", {}, 4, True),
    ("minimax_m2", {}, 4, True),
    ("bailing_moe", {"router_dtype": "fp32"}, 4, False),
    ("deepseek_v3", {"topk_method": "noaux_tc"}, 2, True),
    ("deepseek_v2", {"topk_method": "greedy"}, 2, False),
]


@pytest.mark.parametrize(("family", "fields", "want_bytes", "want_bias"), ROUTERS)
def test_routers(family: str, fields: dict[str, Any], want_bytes: int, want_bias: bool) -> None:
    experts = read(model_type=family, **ROUTED, **fields).experts
    assert experts is not None
    assert (experts.router_bytes, experts.router_bias) == (want_bytes, want_bias)


LEARNED: list[tuple[str, int]] = [("llama", 0), ("gpt2", 2048), ("opt", 2050)]


@pytest.mark.parametrize(("family", "want_rows"), LEARNED)
def test_learned_positions(family: str, want_rows: int) -> None:
    assert read(model_type=family).position_embeddings == want_rows


def test_layers_from_an_architecture_search_differ() -> None:
    """Nemotron-NAS: some layers have no attention, some no MLP, others separate sizes."""
    shape = read(
        num_hidden_layers=3,
        block_configs=[
            {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 2.625}},
            {"attention": {"n_heads_in_group": None, "no_op": True}, "ffn": {"ffn_mult": 1.0}},
            {"attention": {"n_heads_in_group": 16}, "ffn": {"ffn_mult": None, "no_op": True}},
        ],
    )
    assert inner_sizes(shape) == [1792, 768], "rounded up to 256"
    attending = [mixer for mixer in shape.mixer_counts if isinstance(mixer, Attention)]
    assert [mixer.kv_heads for mixer in attending] == [2, 1]


def test_the_error_for_a_block_without_a_size_names_it() -> None:
    block = {"attention": {"n_heads_in_group": 8}, "ffn": {}}
    with pytest.raises(CheckpointError, match=r"block_configs\[0\]\.ffn\.ffn_mult is missing"):
        read(num_hidden_layers=1, block_configs=[block])


def test_layers_with_a_window_have_separate_heads() -> None:
    """MiMo-V2 has fields with a prefix for them, Step-3.5 a nested object."""
    mimo = read(
        model_type="mimo_v2_flash", hybrid_layer_pattern=[0, 1] * 4, sliding_window=128,
        head_dim=192, v_head_dim=128, swa_num_key_value_heads=8, swa_head_dim=192,
        swa_v_head_dim=128,
    )  # fmt: skip
    assert {(mixer.window, mixer.kv_heads) for mixer in mimo.mixer_counts
            if isinstance(mixer, Attention)} == {(None, 4), (128, 8)}  # fmt: skip
    step = read(
        layer_types=WINDOWS, sliding_window=512, num_attention_groups=8, num_key_value_heads=None,
        attention_other_setting={"num_attention_heads": 32, "num_attention_groups": 4},
    )  # fmt: skip
    assert {(mixer.window, mixer.heads, mixer.kv_heads) for mixer in step.mixer_counts
            if isinstance(mixer, Attention)} == {(512, 32, 4), (None, 16, 8)}  # fmt: skip


def test_later_layers_read_the_cache_of_earlier_ones() -> None:
    """Gemma 4 E: the last layers share keys and values and have an MLP twice as wide."""
    shape = read(
        model_type="gemma4_text", layer_types=WINDOWS, sliding_window=512, num_kv_shared_layers=4,
        use_double_wide_mlp=True, hidden_size_per_layer_input=256, vocab_size_per_layer_input=1000,
    )  # fmt: skip
    assert inner_sizes(shape) == [4096] * 4 + [8192] * 4
    stores_kv = [attention(shape.layer_kinds[kind]).stores_kv for kind in shape.layer_order]
    assert stores_kv == [True] * 4 + [False] * 4
    assert first(shape).feed_forwards[-1] == LayerEmbedding(256, 1000)


def test_gemma_3n_has_several_residual_streams() -> None:
    shape = read(
        model_type="gemma3n_text", intermediate_size=[4096] * 4 + [2048] * 4, altup_num_inputs=4,
        laurel_rank=64,
    )  # fmt: skip
    assert inner_sizes(shape) == [4096] * 4 + [2048] * 4
    assert ResidualStreams(4, 64) in first(shape).feed_forwards
    assert shape.stream_projections == 6


def test_longcat_has_two_attentions_and_mlps_in_a_layer_with_experts() -> None:
    """Further choices of its router have no experts."""
    layer = first(read(model_type="longcat_flash", zero_expert_num=4, **ROUTED))
    assert len(layer.mixers) == 2
    assert [type(block) for block in layer.feed_forwards] == [Mlp, Mlp, Experts]
    experts = layer.feed_forwards[-1]
    assert isinstance(experts, Experts)
    assert experts.idle_count == 4


def test_mtp_layers() -> None:
    """An MTP layer is the last decoder layer with a projection and three more norms."""
    shape = load_shape("deepseek-v3")
    (mtp_layer,) = shape.draft_layers
    last = shape.layer_kinds[shape.layer_order[-1]]
    assert mtp_layer.feed_forwards == (DraftProjection(), *last.feed_forwards)
    assert mtp_layer.norm_elements - last.norm_elements == 3 * 7168
    sharded = load_shape("qwen3.5-397b-a17b").draft_layers[0]
    assert DraftProjection(sharded=True) in sharded.feed_forwards
    assert isinstance(sharded.mixers[0], Attention), "even if the last layer has none"


def test_an_mtp_layer_has_an_indexer_even_if_the_last_layer_shares_one() -> None:
    latent = {"kv_lora_rank": 64, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 64}
    shape = read(
        model_type="glm_moe_dsa", **latent, index_n_heads=4, index_head_dim=64,
        indexer_types=["full"] + ["shared"] * 7, num_nextn_predict_layers=1,
    )  # fmt: skip
    last = shape.layer_kinds[-1].mixers[0]
    mtp_mixer = shape.draft_layers[0].mixers[0]
    assert isinstance(last, LatentAttention)
    assert isinstance(mtp_mixer, LatentAttention)
    assert last.indexer is None
    assert mtp_mixer.indexer is not None


def test_the_shape_of_an_unknown_class_is_an_estimate_with_a_reason() -> None:
    shape = read(architectures=["NovelForCausalLM"], model_type="novel", sliding_window=128)
    assert shape.estimated is not None
    assert "NovelForCausalLM is not known" in shape.estimated
    assert attention(first(shape)).window == 128, "in vLLM, the window is that of all layers"
    assert read().estimated is None
