"""vLLM's metrics.

Names, types and labels as vLLM 0.32.0 exports them (v1/metrics/loggers.py).
"""

import re
from collections.abc import Mapping
from typing import Final

from tonnage.engines.metrics import CacheMetric, LoadMetrics, MeasuredCache

_ENGINE: Final = "engine"
_POSITIVE_INT: Final = re.compile(r"[1-9][0-9]{0,14}")
_NONE: Final = "None"

LOAD_METRICS: Final = LoadMetrics(
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:time_to_first_token_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:inter_token_latency_seconds",
    rank_label=_ENGINE,
)


def _read_cache(labels: Mapping[str, str], _value: float) -> MeasuredCache | None:
    tokens = _read_count(labels, "kv_cache_size_tokens")
    if tokens is None:
        return None
    return MeasuredCache(
        tokens,
        _read_count(labels, "num_gpu_blocks"),
        _read_count(labels, "block_size"),
        overridden=labels.get("num_gpu_blocks_override", _NONE) != _NONE,
    )


def _read_count(labels: Mapping[str, str], name: str) -> int | None:
    text = labels.get(name, _NONE)
    return int(text) if _POSITIVE_INT.fullmatch(text) else None


CACHE_METRIC: Final = CacheMetric("vllm:cache_config_info", _read_cache, _ENGINE)
"""Its value is 1, its labels have the facts (log_metrics_info).

Label kv_cache_size_tokens is the tokens of one engine; for hybrid models num_gpu_blocks x
block_size differs from it.
"""
