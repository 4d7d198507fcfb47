"""SGLang's metrics.

Names, types and labels as SGLang 0.5.23 exports them (srt/observability/metrics_collector.py).
"""

import math
from collections.abc import Mapping
from typing import Final

from tonnage.engines.metrics import CacheMetric, LoadMetrics, MeasuredCache

_RANK: Final = "dp_rank"
_MOST_TOKENS: Final = 1e15

LOAD_METRICS: Final = LoadMetrics(
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:token_usage",
    "sglang:time_to_first_token_seconds",
    None,
    "sglang:inter_token_latency_seconds",
    rank_label=_RANK,
    class_label="priority",
    has_idle_histograms=False,
)
"""With --enable-priority-scheduling, requests of each priority have histograms of their own; gauges
are those of all requests, and of each priority as well. A server sets its gauges while it is idle,
and its histograms begin with the first request."""


def _read_cache(labels: Mapping[str, str], value: float) -> MeasuredCache | None:
    if not math.isfinite(value) or not 1 <= value < _MOST_TOKENS:
        return None
    return MeasuredCache(int(value))


CACHE_METRIC: Final = CacheMetric("sglang:max_total_num_tokens", _read_cache, _RANK, has_value=True)
"""Its value is the number of tokens in the pool."""
