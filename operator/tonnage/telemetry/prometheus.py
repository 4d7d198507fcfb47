"""What vLLM measured at its start, asked of a Prometheus that scrapes it.

Prometheus is a neighbour that may be absent, slow or wrong. So every question has a deadline, and
an answer that is missing, stale or not understood is no opinion (None): it never stands for zero,
and nothing that runs depends on it.
"""

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests import RequestException
from urllib3 import Retry

_METRIC: Final = "vllm:cache_config_info"
"""Value 1, the facts in its labels (vLLM 0.32.0, v1/metrics/loggers.py, log_metrics_info).

Label kv_cache_size_tokens has the tokens of one engine; num_gpu_blocks x block_size is another
number for hybrid models.
"""

_REQUEST_TIMEOUT_SECONDS: Final = 3
_DEADLINE_SECONDS: Final = 5.0
_THREADS: Final = 2
"""The client blocks. A server that hangs holds up other questions to it, and nothing else."""
_OLDEST_SAMPLE_SECONDS: Final = 150.0
"""Twice the usual scrape interval of a minute, and some: older samples speak of the past."""
_POD_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_TOKENS: Final = re.compile(r"[1-9][0-9]{0,14}")


@dataclass(frozen=True, slots=True)
class MeasuredCache:
    """Tokens of context that one replica's KV cache really holds: the least of all replicas."""

    kv_cache_tokens: int


class PrometheusSource:
    """Asks one Prometheus; `url` is its address, for example http://prometheus.monitoring:9090."""

    def __init__(self, url: str) -> None:
        self._client = PrometheusConnect(
            url=url.rstrip("/"), timeout=_REQUEST_TIMEOUT_SECONDS, retry=Retry(0)
        )
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tonnage-prometheus")

    async def measure_cache(self, namespace: str, pods: Iterable[str]) -> MeasuredCache | None:
        """The KV cache of these pods as vLLM sized it; None when Prometheus does not know."""
        names = [name.replace(".", r"\\.") for name in pods if _POD_NAME.fullmatch(name)]
        if not names:
            return None
        selector = f'namespace="{namespace}",pod=~"{"|".join(names)}"'
        # timestamp() keeps the labels and has the age of the sample, which a plain query hides.
        return _read_cache(await self._ask(f"timestamp({_METRIC}{{{selector}}})"))

    async def _ask(self, query: str) -> Any:
        """The raw result of an instant query; None when there is none in time."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                return await loop.run_in_executor(self._threads, self._client.custom_query, query)
        except (
            TimeoutError,
            RequestException,
            PrometheusApiClientException,
            # An answer that is not Prometheus' JSON ends in one of these inside the client.
            ValueError,
            KeyError,
            TypeError,
            RecursionError,
        ):
            return None

    def close(self) -> None:
        """Give up what is still being asked."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()


def _read_cache(result: Any) -> MeasuredCache | None:
    """The least of all pods, each with the sum of its engines (data parallelism has several)."""
    newest: dict[tuple[str, str], tuple[float, int]] = {}
    for pod, engine, sampled, tokens in _fresh_series(result):
        # A container that was restarted leaves its old series behind for a while.
        newest[pod, engine] = max(newest.get((pod, engine), (0.0, 0)), (sampled, tokens))
    by_pod: dict[str, int] = defaultdict(int)
    for (pod, _), (_, tokens) in newest.items():
        by_pod[pod] += tokens
    return MeasuredCache(min(by_pod.values())) if by_pod else None


def _fresh_series(result: Any) -> Iterable[tuple[str, str, float, int]]:
    """Pod, engine, sample time and tokens of each series that can be read and is not stale."""
    for series in result if isinstance(result, list) else ():
        match series:
            case {
                "metric": {"pod": str(pod), "kv_cache_size_tokens": str(tokens), **labels},
                "value": [int() | float() as now, str(sampled)],
            } if _TOKENS.fullmatch(tokens) and _age(now, sampled) <= _OLDEST_SAMPLE_SECONDS:
                yield pod, str(labels.get("engine")), float(sampled), int(tokens)


def _age(now: float, sampled: str) -> float:
    """Seconds since the sample was taken; infinite where the time cannot be read."""
    try:
        age = now - float(sampled)
    except (ValueError, OverflowError):
        return math.inf
    return age if math.isfinite(age) else math.inf
