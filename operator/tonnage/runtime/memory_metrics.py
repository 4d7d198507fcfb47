"""What the process keeps in memory, as metrics, so that a leak shows long before it hurts."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Gauge


class MemoryMetrics:
    """Tasks, and what is remembered of the cluster."""

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
        """Count them whenever metrics are read; `objects` by the plural of their kind."""
        self._tasks.set_function(tasks)
        for plural, count in objects.items():
            self._objects.labels(plural).set_function(count)
