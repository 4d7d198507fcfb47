"""Layers other than attention with an MLP, from the field names of each family."""

from collections import Counter

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.checkpoint.mixer_kinds import (
    CompressedAttention,
    DeltaAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    ShortConvolution,
)
from tonnage.checkpoint.model import (
    Attention,
    CheckpointError,
    Experts,
    LatentAttention,
    Mlp,
    ModelShape,
)


def mixers(shape: ModelShape) -> dict[str, int]:
    """Count layers by the class of their mixers."""
    counted: Counter[str] = Counter()
    for mixer, count in shape.mixer_counts.items():
        counted[type(mixer).__name__] += count
    return dict(counted)


def feed_forwards(shape: ModelShape) -> dict[str, int]:
    """Count the blocks of all layers by class."""
    counted: Counter[str] = Counter()
    for layer, count in shape.layer_counts.items():
        for block in layer.feed_forwards:
            counted[type(block).__name__] += count
    return dict(counted)


LAYERS: list[tuple[str, dict[str, int], dict[str, int]]] = [
    ("nemotron-3-nano-nvfp4", {"Mamba2": 23, "Attention": 6}, {"Experts": 23}),
    ("jamba-v0.1", {"Mamba": 28, "Attention": 4}, {"Mlp": 16, "Experts": 16}),
    ("granite-4.0-h-small", {"Mamba2": 36, "Attention": 4}, {"Experts": 40}),
    ("falcon-h1-34b", {"Mamba2": 72, "Attention": 72}, {"Mlp": 72}),
    ("falcon-mamba-7b", {"Mamba": 64}, {}),
    ("mamba-codestral-7b", {"Mamba2": 64}, {}),
    ("lfm2-8b-a1b", {"ShortConvolution": 18, "Attention": 6}, {"Mlp": 2, "Experts": 22}),
    (
        "kimi-linear-48b-a3b",
        {"DeltaAttention": 20, "LatentAttention": 7},
        {"Mlp": 1, "Experts": 26},
    ),
    ("ring-2.5-1t", {"LightningAttention": 70, "LatentAttention": 10}, {"Mlp": 4, "Experts": 76}),
    (
        "kimi-k3-like",
        {"DeltaAttention": 46, "LatentAttention": 15},
        {"Mlp": 1, "Experts": 60},
    ),
    ("glm-5.3-text", {"DeltaAttention": 34, "LatentAttention": 11}, {"Mlp": 3, "Experts": 42}),
    ("longcat-flash", {"LatentAttention": 56}, {"Mlp": 56, "Experts": 28}),
    ("deepseek-v4-flash", {"CompressedAttention": 43}, {"Experts": 43}),
    ("minimax-m3", {"Attention": 60}, {"Mlp": 3, "Experts": 57}),
]


@pytest.mark.parametrize(("name", "want_mixers", "want_blocks"), LAYERS)
def test_blocks_of_all_layers(
    name: str, want_mixers: dict[str, int], want_blocks: dict[str, int]
) -> None:
    shape = load_shape(name)

    assert mixers(shape) == want_mixers
    assert feed_forwards(shape) == want_blocks


def test_a_layer_of_nemotron_is_one_block_and_one_norm() -> None:
    shape = load_shape("nemotron-3-nano-nvfp4")

    assert {len(kind.mixers) + len(kind.feed_forwards) for kind in shape.layer_kinds} == {1}
    assert {kind.norm_elements for kind in shape.layer_kinds} == {shape.hidden_size}


def test_nemotron_without_a_pattern_lists_its_layers() -> None:
    shape = load_shape(
        "nemotron-3-nano-nvfp4",
        hybrid_override_pattern=None,
        num_hidden_layers=None,
        layers_block_type=["linear_attention", "moe", "full_attention", "mlp", "mamba"],
    )

    assert shape.layers == 5
    assert mixers(shape) == {"Mamba2": 2, "Attention": 1}
    assert feed_forwards(shape) == {"Experts": 1, "Mlp": 1}


def test_each_layer_of_nemotron_from_a_search_has_its_own_sizes() -> None:
    blocks = [
        {"block_type": "mamba"},
        {"block_type": "moe", "n_routed_experts": 96, "moe_intermediate_size": 1280},
    ]

    shape = load_shape(
        "nemotron-3-nano-nvfp4",
        num_hidden_layers=2,
        hybrid_override_pattern="ME",
        block_configs=blocks,
    )

    assert shape.experts is not None
    assert (shape.experts.count, shape.experts.intermediate_size) == (96, 1280)


def test_mlps_of_nemotron_may_differ_in_size() -> None:
    shape = load_shape(
        "nemotron-3-nano-nvfp4",
        num_hidden_layers=4,
        hybrid_override_pattern="-M-M",
        intermediate_size=[1024, 2048],
    )

    sizes = [kind.feed_forwards for kind in shape.layer_kinds if kind.feed_forwards]
    assert sizes == [(Mlp(1024, gated=False),), (Mlp(2048, gated=False),)]


def test_states_have_32_bits_by_default() -> None:
    def element_bytes(dtype: str | None) -> set[int | None]:
        shape = load_shape("nemotron-3-nano-nvfp4", mamba_ssm_cache_dtype=dtype)
        return {m.state_element_bytes for m in shape.mixer_counts if isinstance(m, Mamba2)}

    assert element_bytes(None) == {4}
    assert element_bytes("bfloat16") == {2}


def test_automatic_rank_of_jambas_time_step() -> None:
    shape = load_shape("jamba-v0.1", mamba_dt_rank="auto")

    ranks = {m.time_step_rank for m in shape.mixer_counts if isinstance(m, Mamba)}
    assert ranks == {256}


def test_jamba_has_an_output_head_even_if_its_config_ties_it() -> None:
    assert not load_shape("jamba-v0.1", tie_word_embeddings=True).tie_word_embeddings


def test_lfm2_rounds_the_size_of_its_mlp() -> None:
    shape = load_shape(
        "lfm2-8b-a1b",
        model_type="lfm2",
        num_experts=None,
        block_ff_dim=12_288,
        block_multiple_of=256,
        block_ffn_dim_multiplier=1.0,
    )

    assert shape.intermediate_size == 8192
    assert {m.width for m in shape.mixer_counts if isinstance(m, ShortConvolution)} == {2048}


def test_granite_without_experts_has_its_shared_mlp() -> None:
    shape = load_shape("granite-4.0-h-small", num_local_experts=0)

    assert shape.experts is None
    assert feed_forwards(shape) == {"Mlp": 40}
    assert shape.intermediate_size == 1536


def test_granite_without_positions_has_no_tables() -> None:
    assert load_shape("granite-4.0-h-small").rope_caches == ()
    assert load_shape("granite-4.0-h-small", position_embedding_type="rope").rope_caches != ()


def test_kimis_decay_and_by_default_its_gate_have_low_rank() -> None:
    def delta(**linear: object) -> DeltaAttention:
        sizes = {"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4}
        layers = {"kda_layers": [1, 2], "full_attn_layers": [3]}
        config = {**sizes, **layers, **linear}
        shape = load_shape("kimi-linear-48b-a3b", linear_attn_config=config)
        return next(m for m in shape.mixer_counts if isinstance(m, DeltaAttention))

    assert (delta().gate_rank, delta().decay_rank) == (128, 128)
    full = delta(use_full_rank_gate=True)
    assert (full.gate_rank, full.decay_rank, full.row_multiple) == (None, 128, 16)


def test_the_last_layer_of_each_group_of_ring_has_latent_attention() -> None:
    shape = load_shape("ring-2.5-1t", num_hidden_layers=10)

    kinds = [shape.layer_kinds[kind].mixers[0] for kind in shape.layer_order]
    latent_layers = [i for i, mixer in enumerate(kinds) if isinstance(mixer, LatentAttention)]
    assert latent_layers == [7]
    assert isinstance(kinds[-1], LightningAttention)


def test_ling_3_has_only_complete_groups() -> None:
    shape = load_shape("ring-2.5-1t", num_hidden_layers=10, short_conv_kernel_size=4)

    kinds = [shape.layer_kinds[kind].mixers[0] for kind in shape.layer_order]
    latent_layers = [i for i, mixer in enumerate(kinds) if isinstance(mixer, LatentAttention)]
    assert latent_layers == [7, 8, 9]
    assert isinstance(kinds[0], DeltaAttention)


def test_only_the_shortest_groups_of_deepseek_v4_overlap_and_have_an_indexer() -> None:
    shape = load_shape("deepseek-v4-flash")

    by_ratio = {
        m.compress_ratio: m for m in shape.mixer_counts if isinstance(m, CompressedAttention)
    }
    assert sorted(by_ratio) == [1, 4, 128]
    assert [by_ratio[ratio].overlapping for ratio in (1, 4, 128)] == [False, True, False]
    assert [by_ratio[ratio].indexer_heads for ratio in (1, 4, 128)] == [0, 64, 0]


def test_the_first_layers_of_deepseek_v4_have_a_table_of_experts() -> None:
    shape = load_shape("deepseek-v4-flash")

    hashed = [
        kind
        for kind in shape.layer_kinds
        if any(isinstance(b, Experts) and not b.router_bias for b in kind.feed_forwards)
    ]
    table = shape.vocab_size * 6
    mixing = shape.layer_kinds[shape.layer_order[-1]].float32_elements
    assert sum(shape.layer_counts[kind] for kind in hashed) == 3
    assert {kind.float32_elements for kind in hashed} == {mixing + table}


def test_experts_of_deepseek_v4_have_4_bits_and_other_layers_fp8() -> None:
    def expert_bits(**fields: object) -> set[int]:
        shape = load_shape("deepseek-v4-flash", **fields)
        return {
            scheme.weight_bits
            for kind in shape.layer_kinds
            for linear, scheme in kind.exceptions
            if linear == "mlp.experts.0.down_proj" and scheme is not None
        }

    assert expert_bits() == {4}
    assert expert_bits(expert_dtype="fp8") <= {8}


def test_defaults_of_glm_5_3() -> None:
    shape = load_shape("glm-5.3-text", layer_types=None, mlp_layer_types=None)

    assert shape.layer_order == load_shape("glm-5.3-text").layer_order


def test_attention_of_glm_5_3_is_never_quantised() -> None:
    for kind in load_shape("glm-5.3-text").layer_kinds:
        unquantized = {linear for linear, scheme in kind.exceptions if scheme is None}
        assert {"self_attn.q_proj", "self_attn.o_proj", "self_attn.kv_b_proj"} <= unquantized


def test_the_first_layers_of_minimax_m3_have_no_indexer() -> None:
    shape = load_shape("minimax-m3")

    indexers = {m.indexer: n for m, n in shape.mixer_counts.items() if isinstance(m, Attention)}
    assert indexers.pop(None) == 3
    ((indexer, count),) = indexers.items()
    assert indexer is not None
    assert (indexer.heads, indexer.head_dim, indexer.top_k, count) == (4, 128, 16, 57)


BROKEN: list[tuple[str, dict[str, object], str]] = [
    ("nemotron-3-nano-nvfp4", {"hybrid_override_pattern": "MX"}, "hybrid_override_pattern"),
    ("nemotron-3-nano-nvfp4", {"n_groups": 0}, "n_groups"),
    ("granite-4.0-h-small", {"layer_types": ["mamba"]}, "layer_types"),
    ("granite-4.0-h-small", {"mamba_n_heads": 77}, "mamba_n_heads"),
    ("jamba-v0.1", {"mamba_d_state": None}, "mamba_d_state"),
    ("kimi-linear-48b-a3b", {"linear_attn_config": None}, "linear_attn_config"),
    ("minimax-m3", {"text_config": {}}, "num_hidden_layers"),
    ("deepseek-v4-flash", {"compress_ratios": [0, 4]}, "compress_ratios"),
    ("lfm2-8b-a1b", {"layer_types": ["conv"]}, "layer_types"),
]


@pytest.mark.parametrize(("name", "fields", "named"), BROKEN)
def test_errors_name_the_invalid_field(name: str, fields: dict[str, object], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        load_shape(name, **fields)
