"""The weight matrices of the kinds of linear attention on one rank.

Sources: vLLM 0.32.0, vllm/model_executor/layers/mamba/gdn and layers/mamba/linear.
"""

from collections.abc import Iterator
from typing import Final

from tonnage.checkpoint.mixer_kinds import DeltaAttention, LightningAttention
from tonnage.checkpoint.model import LinearAttention
from tonnage.fit.weights.matrix import FLOAT32_BYTES, Matrix, Sharding, WeightPart

_PART: Final = WeightPart.ATTENTION


def gated_delta_net_matrices(
    mixer: LinearAttention, hidden: int, sharding: Sharding
) -> Iterator[Matrix]:
    """Gated delta net, sharded by head (models/qwen3_next.py)."""
    values = sharding.shard(mixer.value_heads) * mixer.value_head_dim
    convolved = convolved_width(mixer, sharding)
    yield Matrix(_PART, "linear_attn.in_proj_qkv", convolved, hidden)
    yield Matrix(_PART, "linear_attn.in_proj_z", values, hidden)
    yield Matrix(_PART, "linear_attn.in_proj_ba", 2 * sharding.shard(mixer.value_heads), hidden)
    yield Matrix(_PART, "linear_attn.out_proj", hidden, values, row_parallel=True)
    yield Matrix(_PART, None, convolved, mixer.conv_kernel)


def convolved_width(mixer: LinearAttention, sharding: Sharding) -> int:
    """Channels of a gated delta net's convolution on one rank: queries, keys and values."""
    keys = sharding.shard(mixer.key_heads) * mixer.key_head_dim
    return 2 * keys + sharding.shard(mixer.value_heads) * mixer.value_head_dim


def delta_attention_matrices(
    mixer: DeltaAttention, hidden: int, sharding: Sharding
) -> Iterator[Matrix]:
    """Kimi delta attention (kimi_gdn_linear_attn.py): every rank holds the decay's whole latent."""
    heads, inner = sharding.shard(mixer.heads), sharding.shard(mixer.inner_size)
    full_rank_projections = 3 + (mixer.gate_rank is None) + (mixer.decay_rank is None)
    rows = full_rank_projections * inner + heads + (mixer.decay_rank or 0)
    padded = -(-rows // mixer.row_multiple) * mixer.row_multiple
    yield Matrix(_PART, "self_attn.q_proj", padded, hidden)
    if mixer.decay_rank is not None:
        yield Matrix(_PART, "self_attn.f_b_proj", inner, mixer.decay_rank)
    if mixer.gate_rank is not None:
        yield Matrix(_PART, "self_attn.g_a_proj", mixer.gate_rank, hidden)
        yield Matrix(_PART, "self_attn.g_b_proj", inner, mixer.gate_rank)
    yield Matrix(_PART, None, 3 * inner, mixer.conv_kernel, element_bytes=FLOAT32_BYTES)
    yield Matrix(_PART, None, inner + heads, 1, element_bytes=FLOAT32_BYTES)  # time step and decay
    yield Matrix(_PART, "self_attn.o_proj", hidden, inner, row_parallel=True)
    yield Matrix(WeightPart.NORMS, None, mixer.head_dim, 1)


def lightning_attention_matrices(
    mixer: LightningAttention, hidden: int, sharding: Sharding
) -> Iterator[Matrix]:
    """Ring and Ling 2.5 (bailing_linear_attn.py): equally many query, key and value heads."""
    inner = sharding.shard(mixer.inner_size)
    biases = 3 * inner if mixer.qkv_bias else 0
    yield Matrix(_PART, "self_attn.q_proj", 3 * inner, hidden, biases=biases)
    yield Matrix(_PART, "self_attn.g_proj", inner, hidden)
    bias = hidden if mixer.output_bias else 0
    yield Matrix(_PART, "self_attn.o_proj", hidden, inner, row_parallel=True, biases=bias)
    yield Matrix(WeightPart.NORMS, None, inner + (2 * mixer.head_dim if mixer.qk_norm else 0), 1)
