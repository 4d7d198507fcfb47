"""What one layer keeps of a request, in pages of so many tokens.

Source: vLLM 0.32.0, vllm/v1/kv_cache_interface.py. A `LayerCache` is what vLLM calls a KVCacheSpec.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tonnage.fit.matrix import FLOAT32_BYTES

_INDEXER_GROUP: Final = 128
"""Elements of an indexer's key that share a scale."""


class CacheKind(StrEnum):
    """How long a layer keeps what it has cached."""

    FULL = "full"
    WINDOW = "window"
    CHUNK = "chunk"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One cache of one layer: pages of `page_bytes` that hold `block_tokens` tokens each.

    `layout` tells caches apart whose pages happen to be of one size. `reach` is the window or the
    chunk in tokens, `states` the pages that a request holds where a page is a state. `latent` ones
    cannot be padded to a larger page, `packed` ones lie beside pages of other sizes.
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
        """Pages that a request of so many tokens holds at most.

        A window ends anywhere in its first block, hence one block more.
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
        """The same cache where it keeps every token, in blocks of so many."""
        page = self.page_bytes * block_tokens // self.block_tokens
        return replace(
            self, kind=CacheKind.FULL, block_tokens=block_tokens, page_bytes=page, reach=0
        )


@dataclass(frozen=True, slots=True)
class PlacedCache:
    """A cache of the layer that is number `layer` of the model, draft layers after the others."""

    layer: int
    cache: LayerCache


CacheGroup = tuple[PlacedCache, ...]
"""Caches that share a block table: a block of it is one page of each."""


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
        for cache in (each.cache for each in group)
    )
