"""The weight matrices of compressed attention, as one rank holds them.

Sources: vLLM 0.32.0, vllm/models/deepseek_v4/attention.py, compressor.py and nvidia/flashmla.py.
"""

from collections.abc import Iterator
from typing import Final

from tonnage.checkpoint.mixer_kinds import CompressedAttention
from tonnage.fit.weights.matrix import FLOAT32_BYTES, Matrix, Sharding, WeightPart

_PART: Final = WeightPart.ATTENTION
_SINK_MULTIPLE: Final = 64
"""The kernels take 64 or 128 query heads; vLLM pads the sinks to them (flashmla.py)."""


def compressed_attention_matrices(
    mixer: CompressedAttention, hidden: int, sharding: Sharding
) -> Iterator[Matrix]:
    """Every rank holds down-projections, compressors and indexer; ranks share heads and groups."""
    heads = sharding.shard(mixer.heads)
    width, latent = heads * mixer.head_dim, mixer.head_dim
    down = mixer.query_rank + latent
    group = mixer.heads * mixer.head_dim // mixer.output_groups
    inner = sharding.shard(mixer.output_groups) * mixer.output_rank
    yield Matrix(_PART, "self_attn.fused_wqa_wkv", down, hidden)
    yield Matrix(_PART, "self_attn.wq_b", width, mixer.query_rank)
    yield Matrix(_PART, "self_attn.wo_a", inner, group)
    yield Matrix(_PART, "self_attn.wo_b", hidden, inner, row_parallel=True)
    sinks = -(-heads // _SINK_MULTIPLE) * _SINK_MULTIPLE
    yield Matrix(_PART, None, sinks, 1, element_bytes=FLOAT32_BYTES)
    yield Matrix(WeightPart.NORMS, None, down, 1)
    if mixer.compress_ratio > 1:
        yield from _compressor(mixer, latent, hidden)
    if mixer.indexer_heads:
        indexed = mixer.indexer_heads * mixer.indexer_head_dim
        yield Matrix(_PART, "self_attn.indexer.wq_b", indexed, mixer.query_rank)
        yield Matrix(_PART, None, mixer.indexer_heads, hidden)
        yield from _compressor(mixer, mixer.indexer_head_dim, hidden)


def _compressor(mixer: CompressedAttention, width: int, hidden: int) -> Iterator[Matrix]:
    """Values and their weights for each position of a group, never quantised."""
    wide = width * (2 if mixer.overlapping else 1)
    yield Matrix(_PART, None, 2 * wide, hidden)
    yield Matrix(_PART, None, mixer.compress_ratio, wide, element_bytes=FLOAT32_BYTES)
    yield Matrix(WeightPart.NORMS, None, width, 1)
