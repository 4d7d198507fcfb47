"""Metrics of an engine that the operator reads: the load, and the KV cache that it measured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadMetrics:
    """Names of the metrics with the load of a server.

    Gauges: requests that are `running` and `waiting`, and `kv_usage`, the used share of the KV
    cache. Histograms in seconds: `first_token`, `prefill` (None without one) and `per_token`.
    `rank_label` tells the data-parallel ranks of a server apart, `class_label` the classes of
    requests that have histograms of their own (None without classes). `has_idle_histograms`: they
    have series before the first request.
    """

    running: str
    waiting: str
    kv_usage: str
    first_token: str
    prefill: str | None
    per_token: str
    rank_label: str
    class_label: str | None = None
    has_idle_histograms: bool = True


@dataclass(frozen=True, slots=True)
class MeasuredCache:
    """The measured size of the KV cache of one replica, or of one of its data-parallel ranks, in
    tokens.

    `blocks` of `block_tokens` each are how the engine divides it, None if unknown. If the number of
    blocks was `overridden`, it says nothing about the free GPU memory.
    """

    kv_cache_tokens: int
    blocks: int | None = None
    block_tokens: int | None = None
    overridden: bool = False


@dataclass(frozen=True, slots=True)
class CacheMetric:
    """The metric with the size of the KV cache, and what reads it from its labels and its value:
    None if they are invalid, or while the engine has not sized the cache. `rank_label` as for the
    load. Without `has_value` all is in the labels."""

    name: str
    read: Callable[[Mapping[str, str], float], MeasuredCache | None]
    rank_label: str
    has_value: bool = False
