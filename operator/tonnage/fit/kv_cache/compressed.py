"""The caches of a layer that attends to compressed latents.

Source: vLLM 0.32.0, get_kv_cache_spec in vllm/models/deepseek_v4/attention.py and compressor.py and
in vllm/v1/attention/backends/mla/sparse_swa.py. Every rank has the whole cache, whatever the cache
dtype: latents are packed, and tokens not yet compressed are in 32 bits.
"""

from collections.abc import Iterator
from typing import Final

from tonnage.checkpoint.mixer_kinds import CompressedAttention
from tonnage.fit.kv_cache.specs import CacheKind, LayerCache, indexer_key_bytes

PACKED_LATENT_BYTES: Final = 584
"""A latent: 448 elements in FP8 with 8 bytes of scales, 64 position elements in 16 bits."""

PAGE_MULTIPLE: Final = 576
"""vLLM rounds the bytes of a page up to a multiple of this."""

WINDOW_BLOCK: Final = 64
"""Tokens in a block of the window."""

STATE_BLOCKS: Final = {True: 4, False: 8}
"""Tokens in a block of the compressor's state, by whether its groups overlap."""


def compressed_caches(mixer: CompressedAttention, block: int) -> Iterator[LayerCache]:
    """The window, the indexer's keys and the latents, in blocks of `block` tokens.

    Further caches hold key and score of each token that is not yet compressed.
    """
    yield _layer_cache(
        CacheKind.WINDOW, WINDOW_BLOCK, WINDOW_BLOCK * PACKED_LATENT_BYTES, mixer.window
    )
    if mixer.compress_ratio == 1:
        return
    rows = block // mixer.compress_ratio
    if mixer.indexer_heads:
        yield _layer_cache(CacheKind.FULL, block, rows * indexer_key_bytes(mixer.indexer_head_dim))
        yield _state_cache(mixer, mixer.indexer_head_dim)
    yield _layer_cache(CacheKind.FULL, block, rows * PACKED_LATENT_BYTES)
    yield _state_cache(mixer, mixer.head_dim)


def _state_cache(mixer: CompressedAttention, width: int) -> LayerCache:
    """Key and score, in 32 bits, of the tokens in incomplete groups."""
    groups = 2 if mixer.overlapping else 1
    block = STATE_BLOCKS[mixer.overlapping]
    row = 2 * groups * width * 4
    return _layer_cache(CacheKind.WINDOW, block, block * row, groups * mixer.compress_ratio)


def _layer_cache(kind: CacheKind, block: int, content_bytes: int, reach: int = 0) -> LayerCache:
    page = -(-content_bytes // PAGE_MULTIPLE) * PAGE_MULTIPLE
    return LayerCache(
        kind, block, page, layout=(content_bytes,), reach=reach, latent=True, packed=True
    )
