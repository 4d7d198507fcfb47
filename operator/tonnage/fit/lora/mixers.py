"""The adapted layers of attention and of states on one rank.

Source: vLLM 0.32.0, the linear layers that the classes of vllm/model_executor/models build.
"""

from collections.abc import Iterator

from tonnage.catalog.vllm.lora import AdaptedClass
from tonnage.checkpoint.mixer_kinds import CompressedAttention, Mamba, Mamba2, ShortConvolution
from tonnage.checkpoint.model import Attention, LatentAttention, LinearAttention, Mixer
from tonnage.fit.lora.layer import AdaptedLayer, Shards, fused
from tonnage.fit.weights.attention import kv_heads_per_rank
from tonnage.fit.weights.linear_attention import convolved_width
from tonnage.fit.weights.matrix import Sharding
from tonnage.fit.weights.state_space import mamba2_convolved_width

_COLUMN, _ROW, _WHOLE = Shards.RANK_OF_A, Shards.OUTPUTS_OF_B, Shards.NOTHING


def mixer_layers(
    mixer: Mixer, hidden: int, sharding: Sharding, model: AdaptedClass
) -> Iterator[AdaptedLayer]:
    """The adapted layers of one mixer in a model of width `hidden`, by their usual names."""
    match mixer:
        case Attention():
            yield from _attention(mixer, hidden, sharding, model)
        case LatentAttention():
            yield from _latent_attention(mixer, hidden, sharding, model)
        case CompressedAttention():
            yield from _compressed_attention(mixer, hidden, sharding)
        case LinearAttention():
            yield from _gated_delta_net(mixer, hidden, sharding, model)
        case Mamba():
            yield from _mamba(mixer, hidden, sharding)
        case Mamba2():
            yield from _mamba2(mixer, hidden, sharding)
        case ShortConvolution():
            yield from _short_convolution(mixer, hidden, sharding)
        case _:  # Kimi and Ling: vLLM takes no adapters for their classes
            return


def _attention(
    mixer: Attention, hidden: int, sharding: Sharding, model: AdaptedClass
) -> Iterator[AdaptedLayer]:
    heads = sharding.shard(mixer.heads)
    query, output = heads * mixer.head_dim, heads * mixer.value_head_dim
    gate = query if mixer.gated else 0
    kv_heads = kv_heads_per_rank(mixer.kv_heads, sharding.tensor)
    key_value = kv_heads * (mixer.head_dim + mixer.value_head_dim)
    slices = 1 if "qkv_proj" in model.one_slice else 3
    outputs = query + key_value + (0 if model.own_gate else gate)
    parts = ("q_proj", "k_proj", "v_proj")
    yield AdaptedLayer("qkv_proj", slices * hidden, outputs, _COLUMN, parts)
    if gate and model.own_gate:
        yield AdaptedLayer("gate_proj", hidden, gate, _COLUMN)
    if mixer.head_gate:
        yield AdaptedLayer("g_proj", hidden, heads, _COLUMN)
    yield AdaptedLayer("o_proj", output, hidden, _ROW)


def _latent_attention(
    mixer: LatentAttention, hidden: int, sharding: Sharding, model: AdaptedClass
) -> Iterator[AdaptedLayer]:
    """Every rank has the whole down-projections, so that nothing of them is divided."""
    heads = sharding.shard(mixer.heads)
    query = heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim)
    latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim
    key_value = AdaptedLayer("kv_a_proj_with_mqa", hidden, latent, _WHOLE)
    if mixer.q_lora_rank is None:
        yield key_value
        yield AdaptedLayer("q_proj", hidden, query, _COLUMN)
    else:
        down = AdaptedLayer("q_a_proj", hidden, mixer.q_lora_rank, _WHOLE)
        yield from fused("fused_qkv_a_proj", (down, key_value), model)
        yield AdaptedLayer("q_b_proj", mixer.q_lora_rank, query, _COLUMN)
    up = heads * (mixer.qk_nope_head_dim + mixer.v_head_dim)
    yield AdaptedLayer("kv_b_proj", mixer.kv_lora_rank, up, _COLUMN)
    yield AdaptedLayer("o_proj", heads * mixer.v_head_dim, hidden, _ROW)
    if mixer.indexer is not None:
        width = mixer.indexer.heads * mixer.indexer.head_dim
        yield AdaptedLayer("wq_b", mixer.q_lora_rank or hidden, width, _WHOLE)


def _gated_delta_net(
    mixer: LinearAttention, hidden: int, sharding: Sharding, model: AdaptedClass
) -> Iterator[AdaptedLayer]:
    """Queries, keys, values and the output's gate are slices of one layer; so are both gates of
    the state (layers/mamba/gdn/qwen_gdn_linear_attn.py)."""
    heads, convolved = sharding.shard(mixer.value_heads), convolved_width(mixer, sharding)
    values = heads * mixer.value_head_dim
    slices = 1 if "in_proj_qkvz" in model.one_slice else 4
    gates = 1 if "in_proj_ba" in model.one_slice else 2
    parts, gate_parts = ("in_proj_qkv", "in_proj_z"), ("in_proj_b", "in_proj_a")
    yield AdaptedLayer("conv1d", mixer.conv_kernel, convolved, _COLUMN)
    yield AdaptedLayer("in_proj_qkvz", slices * hidden, convolved + values, _COLUMN, parts)
    yield AdaptedLayer("in_proj_ba", gates * hidden, 2 * heads, _COLUMN, gate_parts)
    yield AdaptedLayer("out_proj", values, hidden, _ROW)


def _mamba(mixer: Mamba, hidden: int, sharding: Sharding) -> Iterator[AdaptedLayer]:
    inner, rank = sharding.shard(mixer.inner_size), mixer.time_step_rank
    yield AdaptedLayer("conv1d", mixer.conv_kernel, inner, _COLUMN)
    yield AdaptedLayer("in_proj", hidden, 2 * inner, _COLUMN)
    yield AdaptedLayer("x_proj", inner, rank + 2 * mixer.state_size, _ROW)
    yield AdaptedLayer("dt_proj", rank, inner, _COLUMN)
    yield AdaptedLayer("out_proj", inner, hidden, _ROW)


def _mamba2(mixer: Mamba2, hidden: int, sharding: Sharding) -> Iterator[AdaptedLayer]:
    """The convolution has three slices, the input projection five: gate, inner channels, B, C and
    time step; a single one where ranks replicate a group (layers/mamba/mamba_mixer2.py).

    vLLM has no fully sharded wrapper for so many slices (lora/layers/column_parallel_linear.py
    MergedColumnParallelLinearVariableSliceWithLoRA).
    """
    sliced = mixer.groups % sharding.tensor == 0
    convolutions, projections = (3, 5) if sliced else (1, 1)
    inner, heads = sharding.shard(mixer.inner_size), sharding.shard(mixer.heads)
    convolved = mamba2_convolved_width(mixer, sharding)
    projected = inner + convolved + heads
    kernel, width = convolutions * mixer.conv_kernel, projections * hidden
    yield AdaptedLayer("conv1d", kernel, convolved, _COLUMN, never_sharded=sliced)
    yield AdaptedLayer("in_proj", width, projected, _COLUMN, never_sharded=sliced)
    yield AdaptedLayer("out_proj", inner, hidden, _ROW)


def _short_convolution(
    mixer: ShortConvolution, hidden: int, sharding: Sharding
) -> Iterator[AdaptedLayer]:
    width = sharding.shard(mixer.width)
    yield AdaptedLayer("conv", mixer.kernel, width, _COLUMN)
    yield AdaptedLayer("in_proj", 3 * hidden, 3 * width, _COLUMN, never_sharded=True)
    yield AdaptedLayer("out_proj", width, hidden, _ROW)


def _compressed_attention(
    mixer: CompressedAttention, hidden: int, sharding: Sharding
) -> Iterator[AdaptedLayer]:
    """DeepSeek-V4 (vllm/models/deepseek_v4/attention.py, compressor.py)."""
    heads = sharding.shard(mixer.heads)
    down = mixer.query_rank + mixer.head_dim
    group = mixer.heads * mixer.head_dim // mixer.output_groups
    inner = sharding.shard(mixer.output_groups) * mixer.output_rank
    yield AdaptedLayer("fused_wqa_wkv", 2 * hidden, down, _WHOLE, ("wq_a", "wkv"))
    yield AdaptedLayer("wq_b", mixer.query_rank, heads * mixer.head_dim, _COLUMN)
    yield AdaptedLayer("wo_a", group, inner, _COLUMN)
    yield AdaptedLayer("wo_b", inner, hidden, _ROW)
    if mixer.compress_ratio > 1:
        yield _compressor(mixer, mixer.head_dim, hidden)
    if mixer.indexer_heads:
        indexed = mixer.indexer_heads * mixer.indexer_head_dim
        yield AdaptedLayer("wq_b", mixer.query_rank, indexed, _WHOLE)
        yield AdaptedLayer("weights_proj", hidden, mixer.indexer_heads, _WHOLE)
        yield _compressor(mixer, mixer.indexer_head_dim, hidden)


def _compressor(mixer: CompressedAttention, width: int, hidden: int) -> AdaptedLayer:
    wide = width * (2 if mixer.overlapping else 1)
    return AdaptedLayer("fused_wkv_wgate", 2 * hidden, 2 * wide, _WHOLE, ("wkv", "wgate"))
