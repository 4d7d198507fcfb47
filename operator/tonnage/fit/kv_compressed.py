"""The caches of a layer that attends to compressed latents.

Source: vLLM 0.32.0, get_kv_cache_spec in vllm/models/deepseek_v4/attention.py and compressor.py and
in vllm/v1/attention/backends/mla/sparse_swa.py. Every rank has the whole cache, whatever the cache
dtype: latents are packed, what is being compressed is in 32 bits.
"""

from collections.abc import Iterator
from typing import Final

from tonnage.checkpoint.mixer_kinds import CompressedAttention
from tonnage.fit.kv_specs import CacheKind, LayerCache, indexer_key_bytes

PACKED_LATENT_BYTES: Final = 584
"""A latent: 448 elements in FP8 with 8 bytes of scales, 64 that carry the position in 16 bits."""

PAGE_MULTIPLE: Final = 576
"""What the bytes of a page are rounded up to."""

WINDOW_BLOCK: Final = 64
"""Tokens of a block of the window."""

STATE_BLOCKS: Final = {True: 4, False: 8}
"""Tokens of a block of what is being compressed, by whether its groups overlap."""


def compressed_caches(mixer: CompressedAttention, block: int) -> Iterator[LayerCache]:
    """The window, the indexer's keys and the latents, in blocks of so many tokens.

    Keys and latents that are being compressed are kept beside them, key and score of each token.
    """
    yield _cache(CacheKind.WINDOW, WINDOW_BLOCK, WINDOW_BLOCK * PACKED_LATENT_BYTES, mixer.window)
    if mixer.compress_ratio == 1:
        return
    rows = block // mixer.compress_ratio
    if mixer.indexer_heads:
        yield _cache(CacheKind.FULL, block, rows * indexer_key_bytes(mixer.indexer_head_dim))
        yield _state(mixer, mixer.indexer_head_dim)
    yield _cache(CacheKind.FULL, block, rows * PACKED_LATENT_BYTES)
    yield _state(mixer, mixer.head_dim)


def _state(mixer: CompressedAttention, width: int) -> LayerCache:
    """Key and score, in 32 bits, of the tokens whose groups are not complete."""
    groups = 2 if mixer.overlapping else 1
    block = STATE_BLOCKS[mixer.overlapping]
    row = 2 * groups * width * 4
    return _cache(CacheKind.WINDOW, block, block * row, groups * mixer.compress_ratio)


def _cache(kind: CacheKind, block: int, content_bytes: int, reach: int = 0) -> LayerCache:
    page = -(-content_bytes // PAGE_MULTIPLE) * PAGE_MULTIPLE
    return LayerCache(
        kind, block, page, layout=(content_bytes,), reach=reach, latent=True, packed=True
    )
