"""The registry of all metrics of the operator. A test compares it with docs/metrics.md."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from tonnage.controller.metrics.components import (
    MemoryMetrics,
    PrometheusMetrics,
    RightsCollector,
    StartMetrics,
)
from tonnage.controller.metrics.queue_and_api import (
    ApiMetrics,
    QueueMetrics,
    ReconcileMetrics,
    WorkerMetrics,
    register_build_info,
)
from tonnage.controller.metrics.state import PoolCollector, StatusCollector, SyncMetrics
from tonnage.controller.metrics.statuses import StatusMetrics
from tonnage.fleet.fleet import Fleet
from tonnage.kube.rights import PermissionTracker


class Metrics:
    """The metrics; each component gets those that it updates."""

    def __init__(
        self, status_metrics: StatusMetrics, view: Callable[[], Fleet], rights: PermissionTracker
    ) -> None:
        # Otherwise each counter has a second series, which no dashboard uses.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives it no type
        self.registry = registry = CollectorRegistry()
        for collector in (GCCollector, PlatformCollector, ProcessCollector):
            collector(registry=registry)
        register_build_info(registry)
        self.queue = QueueMetrics(registry)
        self.reconciles = ReconcileMetrics(registry)
        self.workers = WorkerMetrics(registry)
        self.api = ApiMetrics(registry)
        self.memory = MemoryMetrics(registry)
        self.syncs = SyncMetrics(registry)
        self.prometheus = PrometheusMetrics(registry)
        self.starts = StartMetrics(registry)
        registry.register(PoolCollector(view, lambda: status_metrics.kept))
        registry.register(StatusCollector(status_metrics))
        registry.register(RightsCollector(rights.missing))
