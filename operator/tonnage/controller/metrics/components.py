"""Metrics of single components: memory, fleet file, Prometheus queries, starts, permissions,
corrections."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tonnage.controller.correction_store import CorrectionStore
from tonnage.reconcile.observation.pods.starts import FinishedStart
from tonnage.telemetry.prometheus import QueryOutcome

_START_BUCKETS: Final = (15, 60, 300, 900, 3600)
"""Seconds: from the import of vLLM to the download of a large model. Each bucket is a series for
each phase, pool and medium."""


class MemoryMetrics:
    """Counts asyncio tasks, and the objects in the stores."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._tasks = Gauge(
            "tonnage_event_loop_tasks", "Tasks of the event loop.", registry=registry
        )
        self._objects = Gauge(
            "tonnage_known_objects",
            "Objects in the stores, by kind.",
            ["kind"],
            registry=registry,
        )

    def watch(self, tasks: Callable[[], int], objects: Mapping[str, Callable[[], int]]) -> None:
        """Count at each scrape; `objects` has the counts by the plural of the kind."""
        self._tasks.set_function(tasks)
        for plural, count in objects.items():
            self._objects.labels(plural).set_function(count)


def register_fleet_file_metric(registry: CollectorRegistry, is_valid: Callable[[], bool]) -> None:
    """Export whether the fleet file is valid; `is_valid` is called at each scrape."""
    Gauge(
        "tonnage_fleet_file_valid",
        "1 while the fleet file is valid, else 0.",
        registry=registry,
    ).set_function(is_valid)


class PrometheusMetrics:
    """Counts the queries by outcome."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._queries = Counter(
            "tonnage_prometheus_questions",
            "Queries to Prometheus, by outcome.",
            ["outcome"],
            registry=registry,
        )

    def asked(self, outcome: QueryOutcome) -> None:
        """Record the outcome of a query."""
        self._queries.labels(outcome).inc()


class StartMetrics:
    """Measures the phases of the starts that have ended."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "tonnage_startup_seconds",
            "Duration of a phase of a start, in seconds.",
            ["phase", "pool", "medium"],
            buckets=_START_BUCKETS,
            registry=registry,
        )

    def record(self, start: FinishedStart) -> None:
        """Record the phases of one start."""
        for phase, seconds in start.seconds.items():
            self._seconds.labels(phase, start.pool, start.medium).observe(seconds)


class RightsCollector(Collector):
    """Reads the missing permissions at each scrape; a permission granted again is 0."""

    def __init__(self, missing: Callable[[], Mapping[tuple[str, str], bool]]) -> None:
        self._missing = missing

    def collect(self) -> Iterator[Metric]:
        """Implement Collector."""
        family = GaugeMetricFamily(
            "tonnage_permission_missing",
            "1 while a verb on a resource is denied.",
            labels=["verb", "resource"],
        )
        for (verb, resource), is_missing in self._missing().items():
            family.add_metric([verb, resource], is_missing)
        yield family


class CorrectionsCollector(Collector):
    """Exports no series before the ConfigMap was read, which only the leader does."""

    def __init__(self, corrections: CorrectionStore) -> None:
        self._corrections = corrections

    def collect(self) -> Iterator[Metric]:
        """Implement Collector."""
        known = GaugeMetricFamily("tonnage_corrections", "Memory corrections in force.")
        invalid = GaugeMetricFamily(
            "tonnage_corrections_invalid",
            "Invalid entries of ConfigMap tonnage-corrections.",
        )
        if self._corrections.has_read:
            known.add_metric((), len(self._corrections.known().entries))
            invalid.add_metric((), self._corrections.invalid)
        yield known
        yield invalid
