"""The weight matrices of attention on one rank, and the choice of module for other mixers."""

from collections.abc import Iterator

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
    LatentAttention,
    LinearAttention,
    Mixer,
    SparseIndexer,
)
from tonnage.fit.weights.compressed_attention import compressed_attention_matrices
from tonnage.fit.weights.linear_attention import (
    delta_attention_matrices,
    gated_delta_net_matrices,
    lightning_attention_matrices,
)
from tonnage.fit.weights.matrix import FLOAT32_BYTES, Matrix, Sharding, WeightPart
from tonnage.fit.weights.state_space import (
    mamba2_matrices,
    mamba_matrices,
    short_convolution_matrices,
)

_PART = WeightPart.ATTENTION


def mixer_matrices(mixer: Mixer, hidden: int, sharding: Sharding) -> Iterator[Matrix]:
    """The matrices of one mixer in a model of width `hidden`."""
    match mixer:
        case Attention():
            return _attention(mixer, hidden, sharding)
        case LatentAttention():
            return _latent_attention(mixer, hidden, sharding)
        case LinearAttention():
            return gated_delta_net_matrices(mixer, hidden, sharding)
        case CompressedAttention():
            return compressed_attention_matrices(mixer, hidden, sharding)
        case DeltaAttention():
            return delta_attention_matrices(mixer, hidden, sharding)
        case LightningAttention():
            return lightning_attention_matrices(mixer, hidden, sharding)
        case Mamba():
            return mamba_matrices(mixer, hidden, sharding)
        case Mamba2():
            return mamba2_matrices(mixer, hidden, sharding)
        case ShortConvolution():
            return short_convolution_matrices(mixer, hidden, sharding)


def kv_heads_per_rank(kv_heads: int, tensor: int) -> int:
    """KV heads on each rank: sharded, or replicated if there are fewer heads than ranks.

    Source: vllm/model_executor/layers/linear.py QKVParallelLinear.
    """
    return max(1, kv_heads // tensor)


def _attention(mixer: Attention, hidden: int, sharding: Sharding) -> Iterator[Matrix]:
    heads = sharding.shard(mixer.heads)
    query = heads * mixer.head_dim * (2 if mixer.gated else 1)
    kv_heads = kv_heads_per_rank(mixer.kv_heads, sharding.tensor)
    output = heads * mixer.value_head_dim
    biased = 1 if mixer.qkv_bias else 0
    if mixer.query_rank is None:
        yield Matrix(_PART, "self_attn.q_proj", query, hidden, biases=biased * query)
    else:
        yield Matrix(_PART, "self_attn.q_proj", mixer.query_rank, hidden)
        yield Matrix(_PART, "self_attn.wq", query, mixer.query_rank)
        yield Matrix(WeightPart.NORMS, None, mixer.query_rank, 1)
    if mixer.head_gate:
        yield Matrix(_PART, "self_attn.g_proj", heads, hidden)
    if mixer.stores_kv:
        key, value = kv_heads * mixer.head_dim, kv_heads * mixer.value_head_dim
        yield Matrix(_PART, "self_attn.k_proj", key, hidden, biases=biased * key)
        yield Matrix(_PART, "self_attn.v_proj", value, hidden, biases=biased * value)
    bias = hidden if mixer.output_bias else 0
    yield Matrix(_PART, "self_attn.o_proj", hidden, output, row_parallel=True, biases=bias)
    if mixer.norm_elements:
        yield Matrix(WeightPart.NORMS, None, mixer.norm_elements, 1)
    if mixer.indexer is not None:
        yield from _block_indexer(mixer.indexer, hidden, sharding)


def _block_indexer(indexer: SparseIndexer, hidden: int, sharding: Sharding) -> Iterator[Matrix]:
    """Queries are sharded as KV heads are; every rank has the single key.

    Source: vllm/models/minimax_m3/nvidia/model.py MiniMaxM3SparseAttention.
    """
    queries = kv_heads_per_rank(indexer.heads, sharding.tensor)
    yield Matrix(_PART, "self_attn.q_proj", (queries + 1) * indexer.head_dim, hidden)
    yield Matrix(WeightPart.NORMS, None, 2 * indexer.head_dim, 1)


def _latent_attention(mixer: LatentAttention, hidden: int, sharding: Sharding) -> Iterator[Matrix]:
    """Down-projections are replicated, up-projections sharded by head (models/deepseek_v2.py)."""
    heads = sharding.shard(mixer.heads)
    query = heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim)
    rank = mixer.kv_lora_rank
    if mixer.q_lora_rank is None:
        yield Matrix(_PART, "self_attn.q_proj", query, hidden)
    else:
        yield Matrix(_PART, "self_attn.q_a_proj", mixer.q_lora_rank, hidden)
        yield Matrix(_PART, "self_attn.q_b_proj", query, mixer.q_lora_rank)
    down = rank + mixer.qk_rope_head_dim
    up = heads * (mixer.qk_nope_head_dim + mixer.v_head_dim)
    yield Matrix(_PART, "self_attn.kv_a_proj_with_mqa", down, hidden)
    yield Matrix(_PART, "self_attn.kv_b_proj", up, rank)
    yield Matrix(WeightPart.NORMS, None, rank + (mixer.q_lora_rank or 0), 1)
    yield Matrix(_PART, "self_attn.o_proj", hidden, heads * mixer.v_head_dim, row_parallel=True)
    if mixer.gate_width:
        yield Matrix(_PART, "self_attn.g_proj", heads * mixer.gate_width, hidden)
    yield from _indexer(mixer, hidden)


def _indexer(mixer: LatentAttention, hidden: int) -> Iterator[Matrix]:
    """Every rank has the whole indexer; vLLM quantises neither its keys nor its head weights.

    Source: vllm/models/deepseek_v32/attention.py; the key norm is a 32-bit LayerNorm.
    """
    if mixer.indexer is None:
        return
    width = mixer.indexer.heads * mixer.indexer.head_dim
    input_width = mixer.q_lora_rank or hidden
    yield Matrix(_PART, "self_attn.indexer.wq_b", width, input_width)
    yield Matrix(_PART, None, mixer.indexer.head_dim + mixer.indexer.heads, hidden)
    yield Matrix(WeightPart.NORMS, None, 2 * mixer.indexer.head_dim, 1, element_bytes=FLOAT32_BYTES)
    if mixer.indexer.pool > 1:  # vllm/models/glm5next/common/sparse_indexer.py
        yield Matrix(_PART, None, mixer.indexer.head_dim, hidden)
        yield Matrix(
            _PART, None, mixer.indexer.pool, mixer.indexer.head_dim, element_bytes=FLOAT32_BYTES
        )
