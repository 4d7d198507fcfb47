"""The KV cache size that an engine measured, from the pods themselves if there is no Prometheus.

A pod runs a user's image, so an invalid answer counts as no answer.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tonnage import delays
from tonnage.engines.metrics import MeasuredCache
from tonnage.engines.registry import engine_named
from tonnage.telemetry.cache import add_ranks
from tonnage.telemetry.pod_http import fetch_page, open_session
from tonnage.telemetry.pods import ServingPod

MAX_BYTES: Final = 1024 * 1024
"""The largest page read. A real one has about 50 KB per engine (tests/data/vllm-metrics)."""

LONGEST_LINE_BYTES: Final = 16 * 1024
"""A real line has 1 KB. For a line of 400 KB the parser blocks the event loop for ten seconds."""

_MAX_CONCURRENT_PAGES: Final = 8
"""For all objects together; bounds the memory that large pages take."""

TASK_NAME: Final = "tonnage-pod-metrics"

_MAX_PODS: Final = 16
"""The pods queried per call; later calls query the others."""

_MAX_RANKS: Final = 64
_MAX_ANSWERS: Final = 4096
"""Container starts in the cache; the least recently queried one is evicted first."""


@dataclass(frozen=True, slots=True)
class _PodAnswer:
    """The answer of one container start. While `cache` is None, the pod is queried again at
    `retry_at`."""

    cache: MeasuredCache | None
    retry_at: float


class PodMetrics:
    """Queries each container start once: an engine sizes its cache only at the start.

    No caller waits for an answer; `wake` is called once there is one.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answers: OrderedDict[str, _PodAnswer] = OrderedDict()
        self._queries: set[asyncio.Task[None]] = set()
        self._pages = asyncio.Semaphore(_MAX_CONCURRENT_PAGES)

    async def measure_caches(
        self, pods: Iterable[ServingPod], wake: Callable[[], None]
    ) -> Mapping[str, MeasuredCache]:
        """The cache sizes of the pods that have answered, by pod; query the others."""
        pods = tuple(pods)
        due = [pod for pod in pods if pod.address is not None and self._is_due(pod)]
        if due:
            self._start_query(due[:_MAX_PODS], wake)
        answers = ((pod.name, self._answers.get(pod.start)) for pod in pods)
        return {
            name: answer.cache
            for name, answer in answers
            if answer is not None and answer.cache is not None
        }

    def _is_due(self, pod: ServingPod) -> bool:
        answer = self._answers.get(pod.start)
        return answer is None or (answer.cache is None and answer.retry_at <= self._clock())

    def _start_query(self, pods: list[ServingPod], wake: Callable[[], None]) -> None:
        retry_at = self._clock() + delays.POD_METRICS_RETRY
        for pod in pods:
            self._remember(pod, _PodAnswer(None, retry_at))
        task = asyncio.create_task(self._query(pods, wake), name=TASK_NAME)
        self._queries.add(task)
        task.add_done_callback(self._queries.discard)

    async def _query(self, pods: list[ServingPod], wake: Callable[[], None]) -> None:
        async with open_session() as session:
            caches = await asyncio.gather(*(self._read(session, pod) for pod in pods))
        sized = [(pod, cache) for pod, cache in zip(pods, caches, strict=True) if cache is not None]
        for pod, cache in sized:
            self._remember(pod, _PodAnswer(cache, 0.0))
        if sized:
            wake()

    async def _read(self, session: aiohttp.ClientSession, pod: ServingPod) -> MeasuredCache | None:
        async with self._pages:
            return read_page(await _fetch(session, pod.address), pod.engine)

    def _remember(self, pod: ServingPod, answer: _PodAnswer) -> None:
        self._answers[pod.start] = answer
        self._answers.move_to_end(pod.start)
        while len(self._answers) > _MAX_ANSWERS:
            self._answers.popitem(last=False)


async def _fetch(session: aiohttp.ClientSession, address: str | None) -> bytes:
    """Fetch the page; empty on any error, or if the page is too large."""
    url = f"http://{address}/metrics"
    page = await fetch_page(session, url, "text/plain", delays.POD_METRICS, MAX_BYTES)
    return page.body or b"" if page else b""


def read_page(page: bytes, engine: str = "") -> MeasuredCache | None:
    """Read the cache size from a page of an engine's metrics; None if the page has no valid one.

    Of a hundred metrics it parses only the lines of one.
    """
    metric = engine_named(engine).cache_metric
    prefix = metric.name.encode() + b"{"
    lines = [line for line in page.splitlines() if line.startswith(prefix)]
    if not 0 < len(lines) <= _MAX_RANKS or max(map(len, lines)) > LONGEST_LINE_BYTES:
        return None
    text = b"\n".join(lines).decode(errors="replace") + "\n"
    try:
        families = tuple(text_string_to_metric_families(text))
    except (ValueError, LookupError):  # the parser expects characters that may be missing
        return None
    samples = (sample for family in families for sample in family.samples)
    by_rank: dict[str, MeasuredCache] = {}
    for sample in samples:
        if sample.name != metric.name:
            continue
        cache = metric.read(sample.labels, sample.value)
        if cache is None:
            return None
        # A server may show the cache of a rank once for each of its GPUs.
        rank = sample.labels.get(metric.rank_label, "")
        by_rank[rank] = min(by_rank.get(rank, cache), cache, key=lambda one: one.kv_cache_tokens)
    return add_ranks(by_rank.values()) if by_rank else None
