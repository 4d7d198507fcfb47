"""The KV cache as vLLM measured it at its start: what its metrics say of it, and how a Prometheus
that scrapes them is asked."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tonnage.telemetry.pods import select_pods
from tonnage.telemetry.series import Ask, Series

CACHE_METRIC: Final = "vllm:cache_config_info"
"""Value 1, the facts in its labels (vLLM 0.32.0, v1/metrics/loggers.py, log_metrics_info).

Label kv_cache_size_tokens has the tokens of one engine; num_gpu_blocks x block_size is another
number for hybrid models.
"""

_OLDEST_SAMPLE_SECONDS: Final = 150.0
"""Twice the usual scrape interval of a minute, and some: older samples speak of the past."""
_COUNT: Final = re.compile(r"[1-9][0-9]{0,14}")
_NONE: Final = "None"


@dataclass(frozen=True, slots=True)
class MeasuredCache:
    """Tokens of context that one replica's KV cache really holds.

    `blocks` of `block_tokens` are what vLLM made of it, None where it does not say. Where the
    number of blocks was `overridden`, it tells nothing of the memory that was left.
    """

    kv_cache_tokens: int
    blocks: int | None = None
    block_tokens: int | None = None
    overridden: bool = False


@dataclass(frozen=True, slots=True)
class EngineCache:
    """The cache of one engine; a server with data parallelism has several."""

    tokens: int
    blocks: int | None
    block_tokens: int | None
    overridden: bool


def read_engine(labels: Mapping[str, str]) -> EngineCache | None:
    """What the labels of the metric say; None while the cache is not sized, or for nonsense."""
    tokens = _read_count(labels, "kv_cache_size_tokens")
    if tokens is None:
        return None
    return EngineCache(
        tokens,
        _read_count(labels, "num_gpu_blocks"),
        _read_count(labels, "block_size"),
        overridden=labels.get("num_gpu_blocks_override", _NONE) != _NONE,
    )


def add_engines(engines: Iterable[EngineCache]) -> MeasuredCache:
    """The cache of one replica: all of its engines."""
    listed = tuple(engines)
    blocks = [engine.blocks for engine in listed if engine.blocks is not None]
    return MeasuredCache(
        sum(engine.tokens for engine in listed),
        sum(blocks) if len(blocks) == len(listed) else None,
        listed[0].block_tokens,
        any(engine.overridden for engine in listed),
    )


def least_of_each(
    caches: Mapping[str, MeasuredCache], placements: Mapping[str, str]
) -> Mapping[str, MeasuredCache]:
    """By placement the replica that holds the least; both arguments are by pod, and pods of no
    placement that is known do not count."""
    found: dict[str, MeasuredCache] = {}
    for pod, placement in placements.items():
        if pod in caches:
            least = min(found.get(placement, caches[pod]), caches[pod], key=_tokens)
            found[placement] = least
    return found


async def measure_caches(
    ask: Ask, namespace: str, pods: Iterable[str]
) -> Mapping[str, MeasuredCache]:
    """The KV cache of each of these pods as vLLM sized it, by pod, as far as Prometheus knows."""
    selector = select_pods(namespace, pods)
    if selector is None:
        return {}
    # timestamp() keeps the labels and has the age of the sample, which a plain query hides.
    return _read_caches(await ask(f"timestamp({CACHE_METRIC}{{{selector}}})") or ())


def _read_caches(answer: Iterable[Series]) -> Mapping[str, MeasuredCache]:
    """By pod, each with all of its engines."""
    newest: dict[tuple[str, str], tuple[float, EngineCache]] = {}
    for pod, engine, sampled, cache in _fresh_series(answer):
        # A container that was restarted leaves its old series behind for a while.
        known = newest.get((pod, engine))
        if known is None or (known[0], known[1].tokens) < (sampled, cache.tokens):
            newest[pod, engine] = sampled, cache
    by_pod: dict[str, list[EngineCache]] = defaultdict(list)
    for (pod, _), (_, cache) in newest.items():
        by_pod[pod].append(cache)
    return {pod: add_engines(engines) for pod, engines in by_pod.items()}


def _fresh_series(answer: Iterable[Series]) -> Iterable[tuple[str, str, float, EngineCache]]:
    """Pod, engine, sample time and cache of each series that is known and not stale."""
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
    return int(text) if _COUNT.fullmatch(text) else None
