"""Groups of caches whose pages of different sizes lie side by side in one block.

Source: vLLM 0.32.0, vllm/v1/core/kv_cache_utils.py _get_packed_kv_cache_groups.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tonnage.fit.kv_specs import CacheGroup, CacheKind, PlacedCache, are_uniform


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Uniform caches, and which of them have pages of each size."""

    caches: CacheGroup
    by_page: Mapping[int, CacheGroup]

    @property
    def balanced(self) -> bool:
        """Whether there are as many pages of each size: a pattern that repeats."""
        return len({len(caches) for caches in self.by_page.values()}) == 1

    @property
    def repeats(self) -> int:
        """How often the pattern repeats."""
        return max(len(caches) for caches in self.by_page.values())

    def widest_bytes(self, groups: int) -> int:
        """Bytes of a block of the largest of so many groups."""
        return sum(-(-len(caches) // groups) * page for page, caches in self.by_page.items())


def pack_groups(caches: CacheGroup) -> tuple[CacheGroup, ...]:
    """The groups: each bucket of uniform caches, split so that all groups are about as large."""
    buckets = [_bucket(each) for each in _uniform_runs(caches)]
    repeats = _repeats_per_group(buckets)
    counts = [_fixed_groups(bucket, repeats) for bucket in buckets]
    anchor = max(
        bucket.widest_bytes(len(bucket.caches) if _splits_freely(bucket, repeats) else count)
        for bucket, count in zip(buckets, counts, strict=True)
    )
    return tuple(
        group
        for bucket, count in zip(buckets, counts, strict=True)
        for group in _split(bucket, max(count, _groups_within(bucket, repeats, anchor)))
    )


def even_block_bytes(groups: Sequence[CacheGroup]) -> int:
    """A block where each group has a page of every size for each layer of the longest group.

    The sizes are those of the layers that keep every token, others are padded to the next.
    Source: vllm/v1/core/kv_cache_utils.py of 0.22, _get_kv_cache_config_deepseek_v4.
    """
    caches = [[each.cache for each in group] for group in groups]
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
    """The caches, each with the first others that it is uniform with."""
    runs: list[list[PlacedCache]] = []
    for each in caches:
        for run in runs:
            if are_uniform((run[0], each)):
                run.append(each)
                break
        else:
            runs.append([each])
    return runs


def _bucket(caches: Sequence[PlacedCache]) -> _Bucket:
    by_page: dict[int, list[PlacedCache]] = {}
    for each in caches:
        by_page.setdefault(each.cache.page_bytes, []).append(each)
    return _Bucket(tuple(caches), {page: tuple(found) for page, found in by_page.items()})


def _repeats_per_group(buckets: Sequence[_Bucket]) -> int | None:
    """Repeats of the pattern that a group has, None where no bucket mixes sizes evenly.

    As many as pad the balanced buckets least, but no fewer than one that mixes sizes has: it has
    to stay whole. Of equal ones the largest (_approximate_gcd).
    """
    balanced = [bucket for bucket in buckets if bucket.balanced]
    mixed = [bucket.repeats for bucket in balanced if len(bucket.by_page) > 1]
    if not mixed:
        return None
    counts = [bucket.repeats for bucket in balanced]
    candidates = range(max(mixed), max(counts) + 1)
    return min(candidates, key=lambda size: (sum(-count % size for count in counts), -size))


def _fixed_groups(bucket: _Bucket, repeats: int | None) -> int:
    """Groups that the pattern splits a bucket into."""
    if repeats is None or not bucket.balanced:
        return 1
    return -(-bucket.repeats // repeats)


def _splits_freely(bucket: _Bucket, repeats: int | None) -> bool:
    """Whether one layer a group would do: for states, and for windows where nothing repeats."""
    kind = bucket.caches[0].cache.kind
    return kind is CacheKind.STATE or (repeats is None and kind is CacheKind.WINDOW)


def _groups_within(bucket: _Bucket, repeats: int | None, anchor: int) -> int:
    """Groups that keep a bucket that splits freely within the block that others need anyway."""
    if not _splits_freely(bucket, repeats):
        return 1
    each = max(1, anchor // bucket.caches[0].cache.page_bytes)
    return -(-len(bucket.caches) // each)


def _split(bucket: _Bucket, groups: int) -> Iterator[CacheGroup]:
    """The bucket dealt out in turn, one page of each size at a time where they are even."""
    if groups == 1:
        yield bucket.caches
        return
    dealt = zip(*bucket.by_page.values(), strict=True) if bucket.balanced else zip(bucket.caches)
    patterns = list(dealt)
    for start in range(groups):
        yield tuple(each for pattern in patterns[start::groups] for each in pattern)
