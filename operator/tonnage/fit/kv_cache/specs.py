"""The cache that one layer keeps of a request, in pages of a fixed number of tokens.

Source: vLLM 0.32.0, vllm/v1/kv_cache_interface.py. A `LayerCache` is what vLLM calls a KVCacheSpec.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tonnage.fit.weights.matrix import FLOAT32_BYTES

_INDEXER_GROUP: Final = 128
"""Elements of an indexer's key that share a scale."""


class CacheKind(StrEnum):
    """How long a layer keeps a cached token."""

    FULL = "full"
    WINDOW = "window"
    CHUNK = "chunk"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One cache of one layer: pages of `page_bytes` that hold `block_tokens` tokens each.

    `layout` distinguishes caches whose pages happen to have the same size. `reach` is the window or
    the chunk in tokens, `states` the pages that a request holds if a page is a state. `latent`
    caches cannot be padded to a larger page, `packed` ones share blocks with pages of other
    sizes.
    """

    kind: CacheKind
    block_tokens: int
    page_bytes: int
    layout: tuple[int, ...] = ()
    reach: int = 0
    states: int = 0
    latent: bool = False
    packed: bool = False

    def pages(self, tokens: int, in_flight_tokens: int) -> int:
        """The most pages that a request of `tokens` tokens holds.

        A window may end inside its first block, so it needs one block more.
        """
        match self.kind:
            case CacheKind.FULL:
                return -(-tokens // self.block_tokens)
            case CacheKind.WINDOW:
                kept = min(self.reach - 1 + in_flight_tokens, tokens)
                return -(-kept // self.block_tokens) + 1
            case CacheKind.CHUNK:
                return -(-min(self.reach + in_flight_tokens, tokens) // self.block_tokens)
            case CacheKind.STATE:
                return self.states

    def promoted(self, block_tokens: int) -> "LayerCache":
        """The same cache, keeping every token, in blocks of `block_tokens`."""
        page = self.page_bytes * block_tokens // self.block_tokens
        return replace(
            self, kind=CacheKind.FULL, block_tokens=block_tokens, page_bytes=page, reach=0
        )


@dataclass(frozen=True, slots=True)
class PlacedCache:
    """A cache of layer number `layer` of the model; MTP layers come last."""

    layer: int
    cache: LayerCache


CacheGroup = tuple[PlacedCache, ...]
"""Caches that share a block table: a block has one page of each cache."""


def indexer_key_bytes(head_dim: int) -> int:
    """An indexer's key in FP8 with its 32-bit scales (models/deepseek_v2.py Indexer)."""
    return head_dim + head_dim // _INDEXER_GROUP * FLOAT32_BYTES


def are_uniform(group: CacheGroup) -> bool:
    """Whether all caches need the same blocks, so that one block table serves them.

    Source: UniformTypeKVCacheSpecs.is_uniform_type and is_uniform_with_collection.
    """
    first = group[0].cache
    return all(
        cache.block_tokens == first.block_tokens
        and cache.kind is first.kind
        and cache.reach == first.reach
        and cache.states == first.states
        and (cache.latent or not first.latent or first.kind is CacheKind.FULL)
        and (cache.page_bytes == first.page_bytes or first.kind is not CacheKind.STATE)
        for cache in (placed.cache for placed in group)
    )
