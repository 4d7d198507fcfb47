"""The KV cache size that an engine measured at its start, from a Prometheus that scrapes its
metrics."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from tonnage.engines.metrics import CacheMetric, MeasuredCache
from tonnage.engines.registry import engine_named
from tonnage.telemetry.pods import ServingPod, select_pods
from tonnage.telemetry.series import Query, Series

_Labels = frozenset[tuple[str, str]]

_OLDEST_SAMPLE_SECONDS: Final = 150.0
"""Somewhat more than twice the usual scrape interval of a minute: older samples are stale."""


def add_ranks(ranks: Iterable[MeasuredCache]) -> MeasuredCache:
    """Add the data-parallel ranks of one replica up."""
    caches = tuple(ranks)
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
    ask: Query, namespace: str, pods: Iterable[ServingPod]
) -> Mapping[str, MeasuredCache]:
    """Query the KV cache of these pods; by pod, without those that Prometheus does not know."""
    by_engine: dict[str, list[str]] = defaultdict(list)
    for pod in pods:
        by_engine[engine_named(pod.engine).name].append(pod.name)
    measured: dict[str, MeasuredCache] = {}
    for engine, names in by_engine.items():
        metric, selector = engine_named(engine).cache_metric, select_pods(namespace, names)
        if selector is not None:
            series = f"{metric.name}{{{selector}}}"
            values = await ask(series) if metric.has_value else None
            # timestamp() keeps the labels and gives the age of the sample, which a plain query
            # hides.
            answer = await ask(f"timestamp({series})")
            measured |= _read_caches(answer or (), values or (), metric)
    return measured


def _read_caches(
    answer: Iterable[Series], values: Iterable[Series], metric: CacheMetric
) -> Mapping[str, MeasuredCache]:
    """The cache of each pod, the sum of its data-parallel ranks."""
    newest: dict[tuple[str, str], tuple[float, MeasuredCache]] = {}
    by_labels = {_labels_of(series): series.value for series in values}
    for pod, rank, sampled, cache in _fresh_series(answer, by_labels, metric):
        # The old series of a restarted container stays for a while.
        current = newest.get((pod, rank))
        if current is None or (current[0], _tokens(current[1])) < (sampled, _tokens(cache)):
            newest[pod, rank] = sampled, cache
    by_pod: dict[str, list[MeasuredCache]] = defaultdict(list)
    for (pod, _), (_, cache) in newest.items():
        by_pod[pod].append(cache)
    return {pod: add_ranks(ranks) for pod, ranks in by_pod.items()}


def _fresh_series(
    answer: Iterable[Series], values: Mapping[_Labels, float | None], metric: CacheMetric
) -> Iterable[tuple[str, str, float, MeasuredCache]]:
    """Pod, rank, sample time and cache of each valid series that is not stale."""
    for series in answer:
        value = values.get(_labels_of(series))
        cache = metric.read(series.labels, math.nan if value is None else value)
        pod, age = series.labels.get("pod"), series.age_seconds
        if pod is None or cache is None or age is None:
            continue
        if 0 <= age <= _OLDEST_SAMPLE_SECONDS:
            rank = series.labels.get(metric.rank_label, "")
            yield pod, rank, series.evaluated - age, cache


def _labels_of(series: Series) -> _Labels:
    """The labels without the name, which timestamp() drops."""
    return frozenset(label for label in series.labels.items() if label[0] != "__name__")


def _tokens(cache: MeasuredCache) -> int:
    return cache.kv_cache_tokens
