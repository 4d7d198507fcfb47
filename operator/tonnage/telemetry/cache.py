"""The KV cache size that vLLM measured at its start, from its metrics or from a Prometheus that
scrapes them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tonnage.telemetry.pods import select_pods
from tonnage.telemetry.series import Query, Series

CACHE_METRIC: Final = "vllm:cache_config_info"
"""Its value is 1, its labels have the facts (vLLM 0.32.0, v1/metrics/loggers.py, log_metrics_info).

Label kv_cache_size_tokens is the tokens of one engine; for hybrid models num_gpu_blocks x
block_size differs from it.
"""

_OLDEST_SAMPLE_SECONDS: Final = 150.0
"""Somewhat more than twice the usual scrape interval of a minute: older samples are stale."""
_POSITIVE_INT: Final = re.compile(r"[1-9][0-9]{0,14}")
_NONE: Final = "None"


@dataclass(frozen=True, slots=True)
class MeasuredCache:
    """The measured size of the KV cache of one replica, or of one of its engines, in tokens: a
    server with data parallelism has several engines.

    `blocks` of `block_tokens` each are how vLLM divides it, None if unknown. If the number of
    blocks was `overridden`, it says nothing about the free GPU memory.
    """

    kv_cache_tokens: int
    blocks: int | None = None
    block_tokens: int | None = None
    overridden: bool = False


def read_engine(labels: Mapping[str, str]) -> MeasuredCache | None:
    """Read the metric's labels; None if they are invalid, or while vLLM has not sized the cache."""
    tokens = _read_count(labels, "kv_cache_size_tokens")
    if tokens is None:
        return None
    return MeasuredCache(
        tokens,
        _read_count(labels, "num_gpu_blocks"),
        _read_count(labels, "block_size"),
        overridden=labels.get("num_gpu_blocks_override", _NONE) != _NONE,
    )


def add_engines(engines: Iterable[MeasuredCache]) -> MeasuredCache:
    """Add the engines of one replica up."""
    caches = tuple(engines)
    blocks = [cache.blocks for cache in caches if cache.blocks is not None]
    return MeasuredCache(
        sum(cache.kv_cache_tokens for cache in caches),
        sum(blocks) if len(blocks) == len(caches) else None,
        caches[0].block_tokens,
        any(cache.overridden for cache in caches),
    )


def smallest_cache_by_placement(
    caches: Mapping[str, MeasuredCache], placements: Mapping[str, str]
) -> Mapping[str, MeasuredCache]:
    """The smallest cache of each placement. Both arguments are by pod; pods without a known
    placement do not count."""
    smallest: dict[str, MeasuredCache] = {}
    for pod, placement in placements.items():
        if pod in caches:
            cache = caches[pod]
            smallest[placement] = min(smallest.get(placement, cache), cache, key=_tokens)
    return smallest


async def measure_caches(
    ask: Query, namespace: str, pods: Iterable[str]
) -> Mapping[str, MeasuredCache]:
    """Query the KV cache of these pods; by pod, without those that Prometheus does not know."""
    selector = select_pods(namespace, pods)
    if selector is None:
        return {}
    # timestamp() keeps the labels and gives the age of the sample, which a plain query hides.
    return _read_caches(await ask(f"timestamp({CACHE_METRIC}{{{selector}}})") or ())


def _read_caches(answer: Iterable[Series]) -> Mapping[str, MeasuredCache]:
    """The cache of each pod, the sum of its engines."""
    newest: dict[tuple[str, str], tuple[float, MeasuredCache]] = {}
    for pod, engine, sampled, cache in _fresh_series(answer):
        # The old series of a restarted container stays for a while.
        current = newest.get((pod, engine))
        if current is None or (current[0], _tokens(current[1])) < (sampled, _tokens(cache)):
            newest[pod, engine] = sampled, cache
    by_pod: dict[str, list[MeasuredCache]] = defaultdict(list)
    for (pod, _), (_, cache) in newest.items():
        by_pod[pod].append(cache)
    return {pod: add_engines(engines) for pod, engines in by_pod.items()}


def _fresh_series(answer: Iterable[Series]) -> Iterable[tuple[str, str, float, MeasuredCache]]:
    """Pod, engine, sample time and cache of each valid series that is not stale."""
    for series in answer:
        pod, cache, age = series.labels.get("pod"), read_engine(series.labels), series.age_seconds
        if pod is None or cache is None or age is None:
            continue
        if 0 <= age <= _OLDEST_SAMPLE_SECONDS:
            yield pod, series.labels.get("engine", ""), series.evaluated - age, cache


def _tokens(cache: MeasuredCache) -> int:
    return cache.kv_cache_tokens


def _read_count(labels: Mapping[str, str], name: str) -> int | None:
    text = labels.get(name, _NONE)
    return int(text) if _POSITIVE_INT.fullmatch(text) else None
