"""The plan of a KV cache: how many blocks fit in its memory, and how many tokens they hold.

Source: vLLM 0.32.0, vllm/v1/core/kv_cache_utils.py get_kv_cache_configs and what it calls. A block
is one page of each cache of a group; groups draw their blocks from one pool, whose blocks are as
large as the largest group's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil

from tonnage.catalog.model import Accelerator
from tonnage.catalog.vllm.kv_cache import KvCacheRules, kv_cache_rules
from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.batch import Batch
from tonnage.fit.kv_cache.groups import group_caches
from tonnage.fit.kv_cache.layers import place_caches
from tonnage.fit.kv_cache.packing import even_block_bytes
from tonnage.fit.kv_cache.settings import CacheSettings, cache_settings
from tonnage.fit.kv_cache.specs import CacheGroup, CacheKind, LayerCache
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.weights.tensors import stage_sizes


@dataclass(frozen=True, slots=True)
class StageCache:
    """The KV cache of the `layers` on one pipeline stage: bytes of a block, and of one token."""

    layers: int
    block_bytes: int
    bytes_per_token: int


@dataclass(frozen=True, slots=True)
class KvCachePlan:
    """The KV cache of one rank, the fullest where pipeline stages differ.

    `groups` has, for each group, the caches that determine how many blocks a request needs.
    `block_bytes` is the size of a block of the pool. `bytes_per_token` is the cost of one more
    token of context, without windows and states. `null_blocks` are blocks of the pool that no
    request gets. `checked_block_bytes` is the block size that vLLM's check at start uses: it may
    count the layers of all pipeline stages. `stages` are the caches of the pipeline stages.
    """

    groups: tuple[tuple[LayerCache, ...], ...]
    block_bytes: int
    checked_block_bytes: int
    bytes_per_token: int
    in_flight_tokens: int
    null_blocks: int
    stages: tuple[StageCache, ...]

    def of_stage(self, stage: int) -> "KvCachePlan":
        """The plan for a rank of one pipeline stage."""
        cache = self.stages[stage]
        return replace(self, block_bytes=cache.block_bytes, bytes_per_token=cache.bytes_per_token)

    def request_blocks(self, tokens: int) -> int:
        """The most blocks that one request of `tokens` tokens holds, at least one."""
        blocks = (
            max(cache.pages(tokens, self.in_flight_tokens) for cache in group)
            for group in self.groups
        )
        return max(1, sum(blocks))

    def request_bytes(self, tokens: int) -> int:
        """The most bytes that one request of `tokens` tokens holds."""
        return self.request_blocks(tokens) * self.block_bytes

    def tokens(self, kv_cache_bytes: int, length: int) -> int:
        """Tokens that `kv_cache_bytes` hold in requests of `length` tokens.

        vLLM prints this as `GPU KV cache size`: maximum concurrency times the length, computed in
        floating point as vLLM does (get_kv_cache_capacity).
        """
        blocks = max(0, kv_cache_bytes) // self.block_bytes
        return int(blocks / self.request_blocks(length) * length)

    def needed_bytes(self, tokens: int, length: int) -> int:
        """Bytes that hold `tokens` at once in requests of `length`, at least one request.

        No request gets the null block (_check_enough_kv_cache_memory).
        """
        request_blocks = self.request_blocks(length)
        blocks = max(-(-request_blocks * tokens // length), request_blocks + self.null_blocks)
        while self.tokens(blocks * self.block_bytes, length) < tokens:  # rounding, at most once
            blocks += 1
        return max(blocks * self.block_bytes, request_blocks * self.checked_block_bytes)


def plan_kv_cache(
    shape: ModelShape,
    parallelism: Parallelism,
    options: EngineOptions,
    batch: Batch,
    accelerator: Accelerator,
    release: EngineRelease,
) -> KvCachePlan:
    """How the release lays out the KV cache of a model on one rank.

    Raises ValueError for an unknown cache dtype.
    """
    rules = kv_cache_rules(release.version)
    settings = cache_settings(shape, parallelism, options, accelerator, rules)
    return _plan(
        shape, settings, parallelism.pipeline, options.hybrid_kv_cache, batch.in_flight_tokens
    )


@lru_cache(maxsize=4096)
def _plan(
    shape: ModelShape,
    settings: CacheSettings,
    stages: int,
    hybrid_manager: bool,
    in_flight_tokens: int,
) -> KvCachePlan:
    rules = settings.rules
    groups = group_caches(place_caches(shape, settings), rules, hybrid_manager)
    caches = []
    for layers in _stage_layers(shape, stages):
        of_stage = tuple(_select_layers(group, layers) for group in groups)
        block = max(1, _block_bytes(of_stage, rules))
        decoder_layers = sum(layer < shape.layers for layer in layers)
        caches.append(StageCache(decoder_layers, block, _token_bytes(of_stage)))
    largest_block = max(cache.block_bytes for cache in caches)
    checked_block = largest_block if rules.checks_stages_apart else _block_bytes(groups, rules)
    return KvCachePlan(
        groups=tuple(_distinct_paces(group) for group in groups),
        block_bytes=largest_block,
        checked_block_bytes=checked_block,
        bytes_per_token=max(cache.bytes_per_token for cache in caches),
        in_flight_tokens=in_flight_tokens,
        null_blocks=rules.null_blocks,
        stages=tuple(caches),
    )


def _distinct_paces(group: CacheGroup) -> tuple[LayerCache, ...]:
    """One cache for each pace at which the group's caches fill blocks, nearly always one in all."""
    caches = (placed.cache for placed in group)
    by_pace = {
        (cache.kind, cache.block_tokens, cache.reach, cache.states): cache for cache in caches
    }
    return tuple(by_pace.values())


def _stage_layers(shape: ModelShape, stages: int) -> Iterator[range]:
    """The indexes of the layers on each pipeline stage; MTP layers are on the last."""
    sizes = stage_sizes(shape.layers, stages)
    ends = [*accumulate(sizes[:-1]), shape.layers + len(shape.draft_layers)]
    return (range(start, end) for start, end in pairwise([0, *ends]))


def _select_layers(group: CacheGroup, layers: range) -> CacheGroup:
    return tuple(placed for placed in group if placed.layer in layers)


def _block_bytes(groups: tuple[CacheGroup, ...], rules: KvCacheRules) -> int:
    """A page of each cache of the largest group (_get_kv_cache_bytes_per_block)."""
    packed = any(placed.cache.packed for group in groups for placed in group)
    if packed and not rules.dense_packing:
        return even_block_bytes(groups)
    return max((sum(placed.cache.page_bytes for placed in group) for group in groups), default=0)


def _token_bytes(groups: tuple[CacheGroup, ...]) -> int:
    """Bytes of one token in the layers that keep every token."""
    caches = [placed.cache for group in groups for placed in group]
    full = (cache for cache in caches if cache.kind is CacheKind.FULL)
    return ceil(sum(Fraction(cache.page_bytes, cache.block_tokens) for cache in full))
