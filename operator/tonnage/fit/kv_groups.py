"""Layers that share a block table: how vLLM groups the caches of a model.

Source: vLLM 0.32.0, vllm/v1/core/kv_cache_utils.py get_kv_cache_groups and what it calls.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tonnage.catalog.kv_cache import KvCacheRules, LocalLayers
from tonnage.fit.kv_packing import pack_groups
from tonnage.fit.kv_specs import CacheGroup, CacheKind, LayerCache, PlacedCache, are_uniform

_LOCAL = (CacheKind.WINDOW, CacheKind.CHUNK)


def group_caches(
    placed: Sequence[PlacedCache], rules: KvCacheRules, hybrid_manager: bool
) -> tuple[CacheGroup, ...]:
    """The groups of a model's caches.

    Without `hybrid_manager` (--disable-hybrid-kv-cache-manager) windows and chunks keep everything
    where there are layers that do.
    """
    kept = _kept(placed, rules, hybrid_manager)
    if not kept:
        return ()
    if are_uniform(kept):
        return (kept,)
    sizes = {each.cache.page_bytes for each in kept}
    if len(sizes) > 1 and any(each.cache.packed for each in kept):
        return pack_groups(kept)
    unified = _with_one_page_size(kept)
    if unified is None:
        return (_promoted(kept),)
    return _equal_groups(unified, rules.group_slack)


def _kept(placed: Sequence[PlacedCache], rules: KvCacheRules, hybrid_manager: bool) -> CacheGroup:
    """The caches as the release keeps them: windows and chunks bounded or not."""
    caches = tuple(placed)
    if rules.local_layers is LocalLayers.NONE:
        return _promoted(caches)
    chunked = any(each.cache.kind is CacheKind.CHUNK for each in caches)
    grouped = (
        hybrid_manager
        and rules.local_layers is LocalLayers.GROUPED
        and (rules.groups_chunks or not chunked)
    )
    beside_full = any(each.cache.kind is CacheKind.FULL for each in caches)
    return _promoted(caches) if beside_full and not grouped else caches


def _promoted(caches: CacheGroup) -> CacheGroup:
    """All windows and chunks as if they kept every token, in blocks like the full layers'.

    Source: _promote_local_kv_cache_specs.
    """
    full = {each.cache.block_tokens for each in caches if each.cache.kind is CacheKind.FULL}
    return tuple(
        replace(
            each,
            cache=each.cache.promoted(min(full) if len(full) == 1 else each.cache.block_tokens),
        )
        if each.cache.kind in _LOCAL
        else each
        for each in caches
    )


def _with_one_page_size(caches: CacheGroup) -> CacheGroup | None:
    """The caches with pages of the largest size, None where a latent page is no part of it.

    Source: unify_kv_cache_spec_page_size.
    """
    largest = max(each.cache.page_bytes for each in caches)
    rigid = [each.cache for each in caches if each.cache.latent]
    if any(cache.kind is CacheKind.FULL and largest % cache.page_bytes for cache in rigid):
        return None
    return tuple(replace(each, cache=_enlarged(each.cache, largest)) for each in caches)


def _enlarged(cache: LayerCache, page_bytes: int) -> LayerCache:
    """The cache with pages of that size: more tokens where they fit evenly, else padding."""
    ratio, rest = divmod(page_bytes, cache.page_bytes)
    if cache.kind is CacheKind.STATE or rest:
        return replace(cache, page_bytes=page_bytes)
    return replace(cache, page_bytes=page_bytes, block_tokens=cache.block_tokens * ratio)


def _equal_groups(caches: CacheGroup, slack: float) -> tuple[CacheGroup, ...]:
    """Groups of as many layers as the rarest kind of cache has, or the most frequent one.

    The last group of a kind may lack layers: its blocks are of the same size all the same. Layers
    are dealt out in turn, so that each pipeline stage has its part of every group.
    Source: _get_kv_cache_groups_uniform_page_size.
    """
    kinds = _by_cache(caches)
    fewest, most = min(map(len, kinds)), max(map(len, kinds))
    size = most if most < fewest * slack else fewest
    return tuple(group for kind in kinds for group in _dealt(kind, -(-len(kind) // size)))


def _by_cache(caches: Iterable[PlacedCache]) -> list[list[PlacedCache]]:
    kinds: dict[LayerCache, list[PlacedCache]] = {}
    for each in caches:
        kinds.setdefault(each.cache, []).append(each)
    return list(kinds.values())


def _dealt(kind: Sequence[PlacedCache], groups: int) -> Iterable[CacheGroup]:
    return (tuple(kind[start::groups]) for start in range(groups))
