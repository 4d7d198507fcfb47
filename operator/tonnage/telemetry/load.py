"""The load on replicas, asked of a Prometheus that scrapes vLLM: one question, so that all of the
answer is of one moment.

What runs and waits dips between two batches, so it is averaged over some scrapes. Two jobs that
scrape the same pod count once, the engines of one replica (data parallelism has several) are added
up.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tonnage.api.scaling import QueuedRequests, ScalingTargets
from tonnage.demand.signals import Mean, MeasuredLoad, PodLoad, Queue
from tonnage.telemetry.series import Ask, Series

_MEAN: Final = 4
"""Intervals that a gauge is averaged over."""
_RATE: Final = 8
"""Intervals of a rate: it takes two samples at least, and few requests end in one."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

_GAUGES: Final = {
    "running": ("sum", "vllm:num_requests_running"),
    "waiting": ("sum", "vllm:num_requests_waiting"),
    "kv_usage": ("avg", "vllm:kv_cache_usage_perc"),
}
_FIRST_TOKEN: Final = {
    "first_token": "vllm:time_to_first_token_seconds",
    "prefill": "vllm:request_prefill_time_seconds",
}
_PER_TOKEN: Final = {"per_token": "vllm:inter_token_latency_seconds"}
"""Names and types as vLLM 0.32.0 exports them (v1/metrics/loggers.py)."""

_Values = Mapping[str, float]
"""By the name of a signal."""


@dataclass(frozen=True, slots=True)
class LoadQuestion:
    """The replicas to be measured, by the Deployments that have them, and what is asked of them."""

    namespace: str
    deployments: tuple[str, ...]
    targets: ScalingTargets
    queued: QueuedRequests | None

    @property
    def latencies(self) -> Mapping[str, str]:
        """Histograms that the targets ask for, by signal."""
        first = _FIRST_TOKEN if self.targets.time_to_first_token is not None else {}
        per_token = _PER_TOKEN if self.targets.time_per_output_token is not None else {}
        return {**first, **per_token}


async def measure_load(
    ask: Ask, interval_seconds: float, question: LoadQuestion
) -> MeasuredLoad | None:
    """What Prometheus has of it; None when it does not answer, or not to be understood.

    `interval_seconds` is that between two questions; pods are to be scraped as often at least.
    """
    parts = list(_parts(question, interval_seconds))
    if not parts:
        return MeasuredLoad({})
    answer = await ask(" or ".join(parts))
    return None if answer is None else _read(answer, question)


def _parts(question: LoadQuestion, interval_seconds: float) -> Iterator[str]:
    """One expression a signal, told apart by a label."""
    mean, rate = _window(interval_seconds * _MEAN), _window(interval_seconds * _RATE)
    selector = _select(question)
    if selector is not None:
        for signal, (over_engines, metric) in _GAUGES.items():
            yield _signal(signal, f"avg_over_time({metric}{{{selector}}}{mean})", over_engines)
        for signal, metric in question.latencies.items():
            for end in ("sum", "count"):
                series = f"{metric}_{end}{{{selector}}}"
                yield _signal(f"{signal}_{end}", f"rate({series}{rate})", "sum")
        sampled = f"min by (pod) (timestamp({_GAUGES['running'][1]}{{{selector}}}))"
        yield _named("sampled", sampled)
    if question.queued is not None:
        labels = ",".join(
            f'{name}="{_escape(value)}"' for name, value in question.queued.match_labels.items()
        )
        queue = f"{question.queued.metric}{{{labels}}}"
        yield _named("queued", f"sum({queue})")
        yield _named("queue_sampled", f"min(timestamp({queue}))")


def _select(question: LoadQuestion) -> str | None:
    """Matchers of all pods of the Deployments, and maybe of others, whose names begin alike: the
    names of some hundred pods would be too long a question."""
    names = [name.replace(".", r"\\.") for name in question.deployments if _NAME.fullmatch(name)]
    if not names:
        return None
    return f'namespace="{question.namespace}",pod=~"(?:{"|".join(names)})-.*"'


def _signal(name: str, expression: str, over_engines: str) -> str:
    return _named(name, f"{over_engines} by (pod) (max by (pod, engine) ({expression}))")


def _named(name: str, expression: str) -> str:
    return f'label_replace({expression}, "signal", "{name}", "", "")'


def _window(seconds: float) -> str:
    return f"[{round(seconds * 1000)}ms]"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _read(answer: Iterable[Series], question: LoadQuestion) -> MeasuredLoad:
    by_pod: dict[str, dict[str, float]] = defaultdict(dict)
    for series in answer:
        signal = series.labels.get("signal", "")
        value = series.age_seconds if signal.endswith("sampled") else series.value
        by_pod[series.labels.get("pod", "")][signal] = math.nan if value is None else value
    front = by_pod.pop("", {})
    loads = {pod: _read_pod(values, question) for pod, values in by_pod.items()}
    return MeasuredLoad(
        pods={pod: load for pod, load in loads.items() if load is not None},
        queue=_read_queue(front),
    )


def _read_pod(values: _Values, question: LoadQuestion) -> PodLoad | None:
    """None where a signal is missing, as it is of a pod that was scraped once so far."""
    means = {signal: _read_mean(values, signal) for signal in question.latencies}
    missing = {*_GAUGES, "sampled"} - values.keys()
    if missing or None in means.values():
        return None
    return PodLoad(
        running=values["running"],
        waiting=values["waiting"],
        kv_usage=values["kv_usage"],
        age_seconds=values["sampled"],
        first_token=means.get("first_token"),
        prefill=means.get("prefill"),
        per_token=means.get("per_token"),
    )


def _read_mean(values: _Values, signal: str) -> Mean | None:
    seconds, observations = values.get(f"{signal}_sum"), values.get(f"{signal}_count")
    return None if seconds is None or observations is None else Mean(seconds, observations)


def _read_queue(values: _Values) -> Queue | None:
    requests, age = values.get("queued"), values.get("queue_sampled")
    return None if requests is None or age is None else Queue(requests, age)
