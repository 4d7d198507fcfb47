"""Groups caches whose pages of different sizes share one block.

Source: vLLM 0.32.0, vllm/v1/core/kv_cache_utils.py _get_packed_kv_cache_groups.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tonnage.fit.kv_cache.specs import CacheGroup, CacheKind, PlacedCache, are_uniform


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Uniform caches, also by the size of their pages."""

    caches: CacheGroup
    by_page: Mapping[int, CacheGroup]

    @property
    def balanced(self) -> bool:
        """Whether the bucket has equally many pages of each size: a repeating pattern."""
        return len({len(caches) for caches in self.by_page.values()}) == 1

    @property
    def repeats(self) -> int:
        """How often the pattern repeats."""
        return max(len(caches) for caches in self.by_page.values())

    def widest_bytes(self, groups: int) -> int:
        """Bytes in a block of the largest group, if the bucket is split into `groups` groups."""
        return sum(-(-len(caches) // groups) * page for page, caches in self.by_page.items())


def pack_groups(caches: CacheGroup) -> tuple[CacheGroup, ...]:
    """Splits each bucket of uniform caches so that all groups have about the same size."""
    buckets = [_make_bucket(run) for run in _uniform_runs(caches)]
    repeats = _repeats_per_group(buckets)
    counts = [_fixed_groups(bucket, repeats) for bucket in buckets]
    anchor = max(
        bucket.widest_bytes(len(bucket.caches) if _splits_freely(bucket, repeats) else count)
        for bucket, count in zip(buckets, counts, strict=True)
    )
    return tuple(
        group
        for bucket, count in zip(buckets, counts, strict=True)
        for group in _split_bucket(bucket, max(count, _groups_within(bucket, repeats, anchor)))
    )


def even_block_bytes(groups: Sequence[CacheGroup]) -> int:
    """Bytes of a block in which each group has a page of every size for each layer of the longest.

    The sizes are those of layers that keep every token; vLLM pads other pages to the next size.
    Source: vllm/v1/core/kv_cache_utils.py of 0.22, _get_kv_cache_config_deepseek_v4.
    """
    caches = [[placed.cache for placed in group] for group in groups]
    sizes = sorted(
        {cache.page_bytes for group in caches for cache in group if cache.kind is CacheKind.FULL}
    )
    longest = (
        max(Counter(bisect_left(sizes, cache.page_bytes) for cache in group).values())
        for group in caches
        if group
    )
    return sum(sizes) * max(longest, default=0)


def _uniform_runs(caches: CacheGroup) -> list[list[PlacedCache]]:
    """The caches in runs: each cache joins the first run that it is uniform with."""
    runs: list[list[PlacedCache]] = []
    for placed in caches:
        for run in runs:
            if are_uniform((run[0], placed)):
                run.append(placed)
                break
        else:
            runs.append([placed])
    return runs


def _make_bucket(caches: Sequence[PlacedCache]) -> _Bucket:
    by_page: dict[int, list[PlacedCache]] = {}
    for placed in caches:
        by_page.setdefault(placed.cache.page_bytes, []).append(placed)
    return _Bucket(tuple(caches), {page: tuple(group) for page, group in by_page.items()})


def _repeats_per_group(buckets: Sequence[_Bucket]) -> int | None:
    """Repeats of the pattern in a group, None if no bucket mixes sizes evenly.

    The number that pads the balanced buckets least, the largest of equal ones, but at least the
    repeats of every bucket that mixes sizes, which must stay whole (_approximate_gcd).
    """
    balanced = [bucket for bucket in buckets if bucket.balanced]
    mixed = [bucket.repeats for bucket in balanced if len(bucket.by_page) > 1]
    if not mixed:
        return None
    counts = [bucket.repeats for bucket in balanced]
    candidates = range(max(mixed), max(counts) + 1)
    return min(candidates, key=lambda size: (sum(-count % size for count in counts), -size))


def _fixed_groups(bucket: _Bucket, repeats: int | None) -> int:
    """The number of groups that the pattern splits a bucket into."""
    if repeats is None or not bucket.balanced:
        return 1
    return -(-bucket.repeats // repeats)


def _splits_freely(bucket: _Bucket, repeats: int | None) -> bool:
    """Whether groups of one layer are possible: for states, and for windows without a pattern."""
    kind = bucket.caches[0].cache.kind
    return kind is CacheKind.STATE or (repeats is None and kind is CacheKind.WINDOW)


def _groups_within(bucket: _Bucket, repeats: int | None, anchor: int) -> int:
    """The number of groups that keep a freely splitting bucket within `anchor` bytes per block."""
    if not _splits_freely(bucket, repeats):
        return 1
    layers_per_group = max(1, anchor // bucket.caches[0].cache.page_bytes)
    return -(-len(bucket.caches) // layers_per_group)


def _split_bucket(bucket: _Bucket, groups: int) -> Iterator[CacheGroup]:
    """Groups that take caches in turn, a page of each size at a time if the bucket is balanced."""
    if groups == 1:
        yield bucket.caches
        return
    pattern_iterator = (
        zip(*bucket.by_page.values(), strict=True) if bucket.balanced else zip(bucket.caches)
    )
    patterns = list(pattern_iterator)
    for start in range(groups):
        yield tuple(placed for pattern in patterns[start::groups] for placed in pattern)
