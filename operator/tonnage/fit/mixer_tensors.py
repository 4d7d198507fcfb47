"""The weight matrices of attention and of what stands in its place, as one rank holds them."""

from collections.abc import Iterator

from tonnage.checkpoint.model import Attention, LatentAttention, LinearAttention, Mixer
from tonnage.fit.matrix import Matrix, Split, WeightPart

_PART = WeightPart.ATTENTION


def mixer_matrices(mixer: Mixer, hidden: int, split: Split) -> Iterator[Matrix]:
    """The matrices of one mixer in a model of width `hidden`."""
    match mixer:
        case Attention():
            return _attention(mixer, hidden, split)
        case LatentAttention():
            return _latent_attention(mixer, hidden, split)
        case LinearAttention():
            return _linear_attention(mixer, hidden, split)


def kv_heads_per_rank(kv_heads: int, tensor: int) -> int:
    """KV heads on each rank: shared out, or replicated when there are fewer than ranks.

    Source: vllm/model_executor/layers/linear.py QKVParallelLinear.
    """
    return max(1, kv_heads // tensor)


def _attention(mixer: Attention, hidden: int, split: Split) -> Iterator[Matrix]:
    heads = split.shard(mixer.heads)
    query = heads * mixer.head_dim * (2 if mixer.gated else 1)
    kv_heads = kv_heads_per_rank(mixer.kv_heads, split.tensor)
    output = heads * mixer.value_head_dim
    biased = 1 if mixer.qkv_bias else 0
    yield Matrix(_PART, "self_attn.q_proj", query, hidden, biases=biased * query)
    if mixer.stores_kv:
        key, value = kv_heads * mixer.head_dim, kv_heads * mixer.value_head_dim
        yield Matrix(_PART, "self_attn.k_proj", key, hidden, biases=biased * key)
        yield Matrix(_PART, "self_attn.v_proj", value, hidden, biases=biased * value)
    bias = hidden if mixer.output_bias else 0
    yield Matrix(_PART, "self_attn.o_proj", hidden, output, row_parallel=True, biases=bias)
    if mixer.norm_elements:
        yield Matrix(WeightPart.NORMS, None, mixer.norm_elements, 1)


def _latent_attention(mixer: LatentAttention, hidden: int, split: Split) -> Iterator[Matrix]:
    """Down-projections are replicated, up-projections sharded by head (models/deepseek_v2.py)."""
    heads = split.shard(mixer.heads)
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
    yield Matrix(_PART, "self_attn.o_proj", hidden, heads * mixer.v_head_dim, row_parallel=True)
    yield from _indexer(mixer, hidden)


def _indexer(mixer: LatentAttention, hidden: int) -> Iterator[Matrix]:
    """Replicated on every rank; the weights of its heads are 32-bit."""
    if mixer.indexer is None:
        return
    width = mixer.indexer.heads * mixer.indexer.head_dim
    source = mixer.q_lora_rank or hidden
    yield Matrix(_PART, "self_attn.indexer.wq_b", width, source)
    yield Matrix(_PART, "self_attn.indexer.wk", mixer.indexer.head_dim, hidden)
    yield Matrix(_PART, None, mixer.indexer.heads, hidden, element_bytes=4)


def _linear_attention(mixer: LinearAttention, hidden: int, split: Split) -> Iterator[Matrix]:
    """Gated delta net, sharded by head (models/qwen3_next.py)."""
    keys = split.shard(mixer.key_heads) * mixer.key_head_dim
    values = split.shard(mixer.value_heads) * mixer.value_head_dim
    gates = 2 * split.shard(mixer.value_heads)
    yield Matrix(_PART, "linear_attn.in_proj_qkv", 2 * keys + values, hidden)
    yield Matrix(_PART, "linear_attn.in_proj_z", values, hidden)
    yield Matrix(_PART, "linear_attn.in_proj_ba", gates, hidden)
    yield Matrix(_PART, "linear_attn.out_proj", hidden, values, row_parallel=True)
    yield Matrix(_PART, None, 2 * keys + values, mixer.conv_kernel)
