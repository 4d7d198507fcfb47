"""The KV cache as vLLM measured it, asked of the pods themselves where no Prometheus is known.

A pod runs an image of a user, so what it answers is read like anything hostile: within a deadline
and a size, without following it anywhere, and what is not understood is no opinion.
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
from tonnage.telemetry.cache import CACHE_METRIC, MeasuredCache, add_engines, read_engine
from tonnage.telemetry.pods import ServingPod

MAX_BYTES: Final = 1024 * 1024
"""Largest page read. A real one has about 50 KB for each engine (tests/data/vllm-metrics)."""

LONGEST_LINE_BYTES: Final = 16 * 1024
"""A real line has 1 KB. The parser takes ten seconds for one of 400 KB, and all stands still."""

_PAGES_AT_ONCE: Final = 8
"""Of all objects together, so that pods which answer with large pages take a bounded memory."""

TASK_NAME: Final = "tonnage-pod-metrics"

_MOST_PODS: Final = 16
"""Pods asked for one question; the others have their turn in the next ones."""

_MOST_ENGINES: Final = 64
_REMEMBERED: Final = 4096
"""Starts of containers; the one asked of least recently is forgotten first."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What a start of a container told; None is nothing yet, and it is asked again at `again`."""

    cache: MeasuredCache | None
    again: float


class PodMetrics:
    """Asks each start of a container once: vLLM sizes its cache at the start and never again.

    Nobody waits for an answer: who asked is woken when there is one.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: OrderedDict[str, _Told] = OrderedDict()
        self._asking: set[asyncio.Task[None]] = set()
        self._pages = asyncio.Semaphore(_PAGES_AT_ONCE)

    async def measure_caches(
        self, pods: Iterable[ServingPod], wake: Callable[[], None]
    ) -> Mapping[str, MeasuredCache]:
        """By pod, of those that have told so far."""
        listed = tuple(pods)
        due = [pod for pod in listed if pod.address is not None and self._is_due(pod)]
        if due:
            self._begin(due[:_MOST_PODS], wake)
        told = ((pod.name, self._told.get(pod.start)) for pod in listed)
        return {name: one.cache for name, one in told if one is not None and one.cache is not None}

    def _is_due(self, pod: ServingPod) -> bool:
        told = self._told.get(pod.start)
        return told is None or (told.cache is None and told.again <= self._clock())

    def _begin(self, pods: list[ServingPod], wake: Callable[[], None]) -> None:
        again = self._clock() + delays.POD_METRICS_RETRY
        for pod in pods:
            self._remember(pod, _Told(None, again))
        task = asyncio.create_task(self._ask(pods, wake), name=TASK_NAME)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask(self, pods: list[ServingPod], wake: Callable[[], None]) -> None:
        options = aiohttp.ClientTimeout(total=delays.POD_METRICS)
        async with aiohttp.ClientSession(timeout=options, auto_decompress=False) as session:
            caches = await asyncio.gather(*(self._read(session, pod) for pod in pods))
        told = [(pod, cache) for pod, cache in zip(pods, caches, strict=True) if cache is not None]
        for pod, cache in told:
            self._remember(pod, _Told(cache, 0.0))
        if told:
            wake()

    async def _read(self, session: aiohttp.ClientSession, pod: ServingPod) -> MeasuredCache | None:
        async with self._pages:
            return read_page(await _fetch(session, pod.address))

    def _remember(self, pod: ServingPod, told: _Told) -> None:
        self._told[pod.start] = told
        self._told.move_to_end(pod.start)
        while len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)


async def _fetch(session: aiohttp.ClientSession, address: str | None) -> bytes:
    """The page; empty where there is none, or none that is read."""
    try:
        async with session.get(
            f"http://{address}/metrics",
            allow_redirects=False,
            headers={"Accept": "text/plain", "Accept-Encoding": "identity"},
        ) as response:
            if response.status != 200:
                return b""
            page = await response.content.read(MAX_BYTES + 1)
            while len(page) <= MAX_BYTES and (more := await response.content.read(MAX_BYTES)):
                page += more
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return b""
    return page if len(page) <= MAX_BYTES else b""


def read_page(page: bytes) -> MeasuredCache | None:
    """The cache by a page of vLLM's metrics: of a hundred metrics only the lines of one are parsed.

    None where the page has none, or none that can be.
    """
    prefix = CACHE_METRIC.encode() + b"{"
    lines = [line for line in page.splitlines() if line.startswith(prefix)]
    if not 0 < len(lines) <= _MOST_ENGINES or max(map(len, lines)) > LONGEST_LINE_BYTES:
        return None
    text = b"\n".join(lines).decode(errors="replace") + "\n"
    try:
        families = tuple(text_string_to_metric_families(text))
    except (ValueError, LookupError):  # the parser cuts lines at characters that may be missing
        return None
    samples = (sample for family in families for sample in family.samples)
    engines = [read_engine(sample.labels) for sample in samples if sample.name == CACHE_METRIC]
    known = [engine for engine in engines if engine is not None]
    return add_engines(known) if known and len(known) == len(engines) else None
