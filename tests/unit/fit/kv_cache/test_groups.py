"""How caches are grouped, on groups that vLLM 0.32.0's own planner made of the same caches."""

from dataclasses import replace

import pytest

from tonnage.catalog.vllm.kv_cache import kv_cache_rules
from tonnage.fit.kv_cache.groups import group_caches
from tonnage.fit.kv_cache.specs import CacheKind, LayerCache, PlacedCache

RULES = kv_cache_rules("0.32.0")
FULL = LayerCache(CacheKind.FULL, 16, 65_536, layout=(8, 128, 128))
WINDOW = LayerCache(CacheKind.WINDOW, 16, 65_536, layout=(8, 128, 128), reach=1024)
STATE = LayerCache(CacheKind.STATE, 16, 65_536, states=2)
LATENT = LayerCache(CacheKind.FULL, 16, 18_432, layout=(576,), latent=True)
PACKED = LayerCache(CacheKind.FULL, 256, 37_440, layout=(37_376,), latent=True, packed=True)


def placed(*layers: tuple[LayerCache, int]) -> tuple[PlacedCache, ...]:
    caches = [cache for cache, count in layers for _ in range(count)]
    return tuple(PlacedCache(layer, cache) for layer, cache in enumerate(caches))


def sizes(
    *layers: tuple[LayerCache, int], release: str = "0.32.0", hybrid_manager: bool = True
) -> list[tuple[CacheKind, int]]:
    groups = group_caches(placed(*layers), kv_cache_rules(release), hybrid_manager)
    return [(group[0].cache.kind, len(group)) for group in groups]


def test_layers_that_are_alike_are_one_group() -> None:
    assert sizes((FULL, 80)) == [(CacheKind.FULL, 80)]


def test_layers_of_different_sizes_that_keep_everything_are_one_group() -> None:
    smaller = replace(FULL, page_bytes=32_768, layout=(4, 128, 128))
    assert sizes((FULL, 30), (smaller, 2), (LATENT, 1)) == [(CacheKind.FULL, 33)]


SLACKS: list[tuple[str, int, int, list[int]]] = [
    ("0.32.0", 18, 18, [18, 18]),
    ("0.32.0", 10, 50, [10, 10, 10, 10, 10, 10]),
    ("0.32.0", 13, 12, [13, 12]),
    ("0.32.0", 12, 17, [12, 17]),
    ("0.32.0", 12, 18, [12, 9, 9]),
    ("0.32.0", 10, 52, [10, 9, 9, 9, 9, 8, 8]),
    ("0.14.0", 13, 12, [13, 12]),
    ("0.14.0", 12, 17, [12, 9, 8]),
    ("0.11.0", 13, 12, [7, 6, 12]),
]


@pytest.mark.parametrize(("release", "full", "windows", "want"), SLACKS)
def test_groups_have_as_many_layers_as_the_rarest_kind_or_a_little_more(
    release: str, full: int, windows: int, want: list[int]
) -> None:
    groups = sizes((FULL, full), (WINDOW, windows), release=release)
    assert [count for _, count in groups] == want


def test_layers_are_dealt_out_so_that_each_stage_has_its_part() -> None:
    groups = group_caches(placed((FULL, 2), (WINDOW, 4)), RULES, True)
    assert [[cache.layer for cache in group] for group in groups] == [[0, 1], [2, 4], [3, 5]]


def test_smaller_pages_hold_more_tokens_and_others_are_padded() -> None:
    half = replace(WINDOW, page_bytes=32_768, layout=(4, 128, 128))
    odd = replace(WINDOW, page_bytes=40_000, layout=(5, 128, 128), reach=512)
    state = replace(STATE, page_bytes=1024)
    groups = group_caches(placed((FULL, 1), (half, 1), (odd, 1), (state, 1)), RULES, True)
    tokens = [group[0].cache.block_tokens for group in groups]
    assert {group[0].cache.page_bytes for group in groups} == {65_536}
    assert tokens == [16, 32, 16, 16]


def test_latents_that_are_no_part_of_a_page_make_windows_keep_everything() -> None:
    assert sizes((LATENT, 10), (replace(WINDOW, page_bytes=20_480), 2)) == [(CacheKind.FULL, 12)]
    dividing = replace(WINDOW, page_bytes=36_864)
    assert sizes((LATENT, 10), (dividing, 10)) == [(CacheKind.FULL, 10), (CacheKind.WINDOW, 10)]


def test_without_the_hybrid_manager_windows_join_the_full_layers() -> None:
    assert sizes((FULL, 10), (WINDOW, 50), hybrid_manager=False) == [(CacheKind.FULL, 60)]
    assert sizes((WINDOW, 50), hybrid_manager=False) == [(CacheKind.WINDOW, 50)]


def test_packed_groups_have_about_equal_size() -> None:
    """The layers of DeepSeek-V4-Flash: vLLM groups them 62, 22, 21, 42 and 20."""
    keys = replace(PACKED, page_bytes=8640, layout=(8448,))
    sparse = replace(PACKED, page_bytes=1728, layout=(1168,))
    window = replace(PACKED, kind=CacheKind.WINDOW, block_tokens=64, reach=128)
    short = replace(PACKED, kind=CacheKind.WINDOW, block_tokens=4, page_bytes=32_832, reach=8)
    shorter = replace(short, page_bytes=8640, layout=(8192,))
    long = replace(short, block_tokens=8, reach=128)
    caches = placed(
        (window, 43), (keys, 21), (shorter, 21), (PACKED, 21), (short, 21), (sparse, 20), (long, 20)
    )
    groups = group_caches(caches, RULES, True)
    assert sorted(len(group) for group in groups) == [20, 21, 22, 42, 62]
    assert max(sum(cache.cache.page_bytes for cache in group) for group in groups) == 1_002_240


def test_packed_states_do_not_widen_the_block_that_others_need() -> None:
    caches = placed((PACKED, 2), (replace(STATE, page_bytes=20_000), 10))
    groups = group_caches(caches, RULES, True)
    assert sorted(len(group) for group in groups) == [2, 2, 2, 3, 3]
    assert max(sum(cache.cache.page_bytes for cache in group) for group in groups) == 2 * 37_440


def test_packed_windows_of_even_sizes_stay_together() -> None:
    small = replace(PACKED, kind=CacheKind.WINDOW, block_tokens=4, page_bytes=1152, reach=8)
    large = replace(small, page_bytes=2304, layout=(2304,))
    assert sizes((PACKED, 1), (small, 8), (large, 8)) == [
        (CacheKind.FULL, 1), (CacheKind.WINDOW, 16)
    ]  # fmt: skip


def test_of_groups_that_waste_as_little_the_larger_are_taken() -> None:
    keys = replace(PACKED, page_bytes=8640, layout=(8448,))
    small = replace(PACKED, kind=CacheKind.WINDOW, block_tokens=4, page_bytes=1152, reach=8)
    large = replace(small, page_bytes=2304, layout=(2304,))
    other = replace(small, block_tokens=64)
    groups = sizes((PACKED, 1), (keys, 2), (small, 2), (large, 2), (other, 3))
    assert [count for _, count in groups] == [3, 4, 3], (
        "not 2 and 1: one layer is lacking either way"
    )


def test_a_model_without_caches_has_no_groups() -> None:
    assert sizes() == []
