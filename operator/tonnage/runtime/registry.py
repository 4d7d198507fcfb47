"""Every metric of the operator on one registry; docs/metrics.md is held to it."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from tonnage.fleet.fleet import Fleet
from tonnage.kube.rights import RightsBook
from tonnage.runtime.corrections_metric import CorrectionsCollector
from tonnage.runtime.memory_metrics import MemoryMetrics
from tonnage.runtime.metrics import (
    ApiMetrics,
    QueueMetrics,
    ReconcileMetrics,
    WorkerMetrics,
    tell_build,
)
from tonnage.runtime.prometheus_metric import PrometheusMetrics
from tonnage.runtime.rights_metric import RightsCollector
from tonnage.runtime.state_metrics import PoolCollector, StatusCollector, SyncMetrics
from tonnage.runtime.status_book import StatusBook


class Metrics:
    """The metrics, each to be given to the part that it watches."""

    def __init__(self, book: StatusBook, view: Callable[[], Fleet], rights: RightsBook) -> None:
        # Without it each counter has a second series, which nobody reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives it no type
        self.registry = registry = CollectorRegistry()
        for collector in (GCCollector, PlatformCollector, ProcessCollector):
            collector(registry=registry)
        tell_build(registry)
        self.queue = QueueMetrics(registry)
        self.reconciles = ReconcileMetrics(registry)
        self.workers = WorkerMetrics(registry)
        self.api = ApiMetrics(registry)
        self.memory = MemoryMetrics(registry)
        self.syncs = SyncMetrics(registry)
        self.prometheus = PrometheusMetrics(registry)
        registry.register(PoolCollector(view, lambda: book.kept))
        self.corrections = CorrectionsCollector()
        registry.register(self.corrections)
        registry.register(StatusCollector(book))
        registry.register(RightsCollector(rights.missing))
