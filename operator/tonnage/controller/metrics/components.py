"""Metrics of single components: memory, fleet file, Prometheus queries, permissions,
corrections."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tonnage.controller.correction_store import CorrectionStore
from tonnage.telemetry.prometheus import QueryOutcome


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
        "1 while the fleet file is valid, 0 while the operator uses the last valid one instead.",
        registry=registry,
    ).set_function(is_valid)


class PrometheusMetrics:
    """Counts the queries by outcome."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._queries = Counter(
            "tonnage_prometheus_questions",
            "Queries to Prometheus, by outcome; held_back were not sent after others had failed.",
            ["outcome"],
            registry=registry,
        )

    def asked(self, outcome: QueryOutcome) -> None:
        """Record the outcome of a query."""
        self._queries.labels(outcome).inc()


class RightsCollector(Collector):
    """Reads the missing permissions at each scrape; a permission granted again is 0."""

    def __init__(self, missing: Callable[[], Mapping[tuple[str, str], bool]]) -> None:
        self._missing = missing

    def collect(self) -> Iterator[Metric]:
        """Implement Collector."""
        family = GaugeMetricFamily(
            "tonnage_permission_missing",
            "1 from the denial of a verb on a resource until it is allowed again.",
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
        known = GaugeMetricFamily(
            "tonnage_corrections", "Corrections of the memory calculation that are in force."
        )
        invalid = GaugeMetricFamily(
            "tonnage_corrections_invalid",
            "Entries of ConfigMap tonnage-corrections that cannot be used.",
        )
        if self._corrections.has_read:
            known.add_metric((), len(self._corrections.known().entries))
            invalid.add_metric((), self._corrections.invalid)
        yield known
        yield invalid
