"""Groups the caches of a model by block table, as vLLM does.

Source: vLLM 0.32.0, vllm/v1/core/kv_cache_utils.py get_kv_cache_groups and what it calls.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tonnage.catalog.vllm.kv_cache import KvCacheRules, LocalLayers
from tonnage.fit.kv_cache.packing import pack_groups
from tonnage.fit.kv_cache.specs import CacheGroup, CacheKind, LayerCache, PlacedCache, are_uniform

_LOCAL = (CacheKind.WINDOW, CacheKind.CHUNK)


def group_caches(
    caches: Sequence[PlacedCache], rules: KvCacheRules, hybrid_manager: bool
) -> tuple[CacheGroup, ...]:
    """The groups of a model's caches.

    Without `hybrid_manager` (--disable-hybrid-kv-cache-manager) windows and chunks keep every token
    if some layer does.
    """
    bounded = _apply_bounds(tuple(caches), rules, hybrid_manager)
    if not bounded:
        return ()
    if are_uniform(bounded):
        return (bounded,)
    sizes = {placed.cache.page_bytes for placed in bounded}
    if len(sizes) > 1 and any(placed.cache.packed for placed in bounded):
        return pack_groups(bounded)
    unified = _unify_page_size(bounded)
    if unified is None:
        return (_promote(bounded),)
    return _equal_groups(unified, rules.group_slack)


def _apply_bounds(caches: CacheGroup, rules: KvCacheRules, hybrid_manager: bool) -> CacheGroup:
    """The caches of the release: it bounds windows and chunks, or keeps every token in them."""
    if rules.local_layers is LocalLayers.NONE:
        return _promote(caches)
    chunked = any(placed.cache.kind is CacheKind.CHUNK for placed in caches)
    grouped = (
        hybrid_manager
        and rules.local_layers is LocalLayers.GROUPED
        and (rules.groups_chunks or not chunked)
    )
    has_full = any(placed.cache.kind is CacheKind.FULL for placed in caches)
    return _promote(caches) if has_full and not grouped else caches


def _promote(caches: CacheGroup) -> CacheGroup:
    """The caches with every token in windows and chunks, in blocks like the full layers'.

    Source: _promote_local_kv_cache_specs.
    """
    full_blocks = {
        placed.cache.block_tokens for placed in caches if placed.cache.kind is CacheKind.FULL
    }
    full_block = min(full_blocks) if len(full_blocks) == 1 else None
    return tuple(
        replace(placed, cache=placed.cache.promoted(full_block or placed.cache.block_tokens))
        if placed.cache.kind in _LOCAL
        else placed
        for placed in caches
    )


def _unify_page_size(caches: CacheGroup) -> CacheGroup | None:
    """The caches with pages of the largest size, None if a latent page does not divide it.

    Source: unify_kv_cache_spec_page_size.
    """
    largest = max(placed.cache.page_bytes for placed in caches)
    latents = [placed.cache for placed in caches if placed.cache.latent]
    if any(cache.kind is CacheKind.FULL and largest % cache.page_bytes for cache in latents):
        return None
    return tuple(replace(placed, cache=_enlarge(placed.cache, largest)) for placed in caches)


def _enlarge(cache: LayerCache, page_bytes: int) -> LayerCache:
    """The cache with pages of that size: more tokens if they fill it evenly, else padding."""
    ratio, rest = divmod(page_bytes, cache.page_bytes)
    if cache.kind is CacheKind.STATE or rest:
        return replace(cache, page_bytes=page_bytes)
    return replace(cache, page_bytes=page_bytes, block_tokens=cache.block_tokens * ratio)


def _equal_groups(caches: CacheGroup, slack: float) -> tuple[CacheGroup, ...]:
    """Groups of as many layers as the rarest kind of cache has, or the most frequent one.

    The last group of a kind may have fewer layers; its blocks have the same size. Groups take
    layers in turn, so that each pipeline stage has its part of every group.
    Source: _get_kv_cache_groups_uniform_page_size.
    """
    kinds = _group_by_cache(caches)
    fewest, most = min(map(len, kinds)), max(map(len, kinds))
    size = most if most < fewest * slack else fewest
    return tuple(group for kind in kinds for group in _deal(kind, -(-len(kind) // size)))


def _group_by_cache(caches: Iterable[PlacedCache]) -> list[list[PlacedCache]]:
    kinds: dict[LayerCache, list[PlacedCache]] = {}
    for placed in caches:
        kinds.setdefault(placed.cache, []).append(placed)
    return list(kinds.values())


def _deal(kind: Sequence[PlacedCache], groups: int) -> Iterable[CacheGroup]:
    return (tuple(kind[start::groups]) for start in range(groups))
