"""The load on replicas, from a Prometheus that scrapes engines, in one query, so that all samples
are of one moment.

The numbers of running and waiting requests dip between two batches, so the query averages them over
some scrapes. A pod scraped by two jobs counts once; the data-parallel ranks of one replica are
summed, and so are the latencies of its classes of requests.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tonnage.api.inference import DEFAULT_ENGINE
from tonnage.api.scaling import QueuedRequests, ScalingTargets
from tonnage.demand.signals import Mean, MeasuredLoad, PodLoad, QueueSample
from tonnage.engines.metrics import LoadMetrics
from tonnage.engines.registry import engine_named
from tonnage.telemetry.series import Query, Series

_MEAN_INTERVALS: Final = 4
"""Intervals over which a gauge is averaged."""
_RATE_INTERVALS: Final = 8
"""Intervals of a rate: it needs at least two samples, and few requests end within one interval."""

_DEPLOYMENT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

_GAUGES: Final = ("running", "waiting", "kv_usage")
"""Signals that every pod has."""

_Values = Mapping[str, float]
"""Values by the name of their signal."""


@dataclass(frozen=True, slots=True)
class LoadQuery:
    """The Deployments whose replicas to measure, and the targets to measure them for. `engines` are
    the names of the replicas' engines."""

    namespace: str
    deployments: tuple[str, ...]
    targets: ScalingTargets
    queued: QueuedRequests | None
    engines: tuple[str, ...] = (DEFAULT_ENGINE,)

    @property
    def metrics(self) -> tuple[LoadMetrics, ...]:
        """The metrics of each engine."""
        return tuple(engine_named(name).load_metrics for name in self.engines)

    def histograms(self, metrics: LoadMetrics) -> Mapping[str, str]:
        """Histograms of an engine to query, by signal: those of `latencies`, and with scale to zero
        the one that counts the requests, since a gauge misses a request between two scrapes."""
        counted = {} if self.queued is None else {"first_token": metrics.first_token}
        return {**counted, **self.latencies(metrics)}

    def latencies(self, metrics: LoadMetrics) -> Mapping[str, str]:
        """Histograms of an engine that the targets need, by signal."""
        first = {"first_token": metrics.first_token}
        if metrics.prefill is not None:
            first["prefill"] = metrics.prefill
        return {
            **(first if self.targets.time_to_first_token is not None else {}),
            **(
                {"per_token": metrics.per_token}
                if self.targets.time_per_output_token is not None
                else {}
            ),
        }


async def measure_load(
    ask: Query, interval_seconds: float, question: LoadQuery
) -> MeasuredLoad | None:
    """Query the load; None if Prometheus gives no valid answer.

    `interval_seconds` is the time between two queries; Prometheus must scrape at least as often.
    """
    expressions = list(_expressions(question, interval_seconds))
    if not expressions:
        return MeasuredLoad({})
    answer = await ask(" or ".join(expressions))
    return None if answer is None else _read(answer, question)


def _expressions(question: LoadQuery, interval_seconds: float) -> Iterator[str]:
    """One expression per signal, which label `signal` names."""
    mean, rate = (
        _format_range(interval_seconds * _MEAN_INTERVALS),
        _format_range(interval_seconds * _RATE_INTERVALS),
    )
    selector = _select_deployments(question)
    if selector is not None:
        for metrics in question.metrics:
            yield from _of_engine(question, metrics, selector, mean, rate)
    if question.queued is not None:
        labels = ",".join(
            f'{name}="{_escape(value)}"' for name, value in question.queued.match_labels.items()
        )
        queue = f"{question.queued.metric}{{{labels}}}"
        yield _label_signal("queued", f"sum({queue})")
        yield _label_signal("queue_sampled", f"min(timestamp({queue}))")


def _of_engine(
    question: LoadQuery, metrics: LoadMetrics, selector: str, mean: str, rate: str
) -> Iterator[str]:
    """The expressions for the pods with one engine; pods with another one have no such series."""
    rank = metrics.rank_label
    for signal, metric in (
        ("running", metrics.running),
        ("waiting", metrics.waiting),
        ("kv_usage", metrics.kv_usage),
    ):
        aggregation = "avg" if signal == "kv_usage" else "sum"
        expression = f"avg_over_time({metric}{{{selector}}}{mean})"
        yield _join(signal, expression, aggregation, rank)
    parts = rank if metrics.class_label is None else f"{rank}, {metrics.class_label}"
    for signal, metric in question.histograms(metrics).items():
        for end in ("sum", "count"):
            series = f"{metric}_{end}{{{selector}}}"
            yield _join(f"{signal}_{end}", f"rate({series}{rate})", "sum", parts)
    sampled = f"min by (pod) (timestamp({metrics.running}{{{selector}}}))"
    yield _label_signal("sampled", sampled)


def _select_deployments(question: LoadQuery) -> str | None:
    """Matchers of all pods of the Deployments; None without a Deployment.

    They may match other pods with the same name prefix: the names of some hundred pods would make
    the query too long.
    """
    names = [
        name.replace(".", r"\\.")
        for name in question.deployments
        if _DEPLOYMENT_NAME.fullmatch(name)
    ]
    if not names:
        return None
    return f'namespace="{question.namespace}",pod=~"(?:{"|".join(names)})-.*"'


def _join(name: str, expression: str, aggregation: str, parts: str) -> str:
    """One series for each pod, of those that the labels `parts` tell apart."""
    return _label_signal(name, f"{aggregation} by (pod) (max by (pod, {parts}) ({expression}))")


def _label_signal(name: str, expression: str) -> str:
    return f'label_replace({expression}, "signal", "{name}", "", "")'


def _format_range(seconds: float) -> str:
    return f"[{round(seconds * 1000)}ms]"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _read(answer: Iterable[Series], question: LoadQuery) -> MeasuredLoad:
    by_pod: dict[str, dict[str, float]] = defaultdict(dict)
    for series in answer:
        signal = series.labels.get("signal", "")
        value = series.age_seconds if signal.endswith("sampled") else series.value
        by_pod[series.labels.get("pod", "")][signal] = math.nan if value is None else value
    queue = by_pod.pop("", {})
    loads = {pod: _read_pod(values, question) for pod, values in by_pod.items()}
    return MeasuredLoad(
        pods={pod: load for pod, load in loads.items() if load is not None},
        queue=_read_queue(queue),
    )


def _read_pod(values: _Values, question: LoadQuery) -> PodLoad | None:
    """The load of a pod; None if a signal is missing that every engine has from its start on, as
    after the first scrape of a pod."""
    latencies = [
        question.latencies(metrics).keys() if metrics.has_idle_histograms else ()
        for metrics in question.metrics
    ]
    needed = set[str].intersection(*map(set, latencies))
    queried = [question.histograms(metrics).keys() for metrics in question.metrics]
    means = {signal: _read_mean(values, signal) for each in queried for signal in each}
    missing = {*_GAUGES, "sampled"} - values.keys()
    if missing or any(means[signal] is None for signal in needed):
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


def _read_queue(values: _Values) -> QueueSample | None:
    requests, age = values.get("queued"), values.get("queue_sampled")
    return None if requests is None or age is None else QueueSample(requests, age)
