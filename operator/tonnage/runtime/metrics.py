"""All metrics of the operator; names and labels are controller-runtime's where it has them."""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tonnage.kube.transport import Request

CONTROLLER: Final = "inferencedeployment"

_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class QueueMetrics:
    """What the work queue does; implements QueueObserver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._depth = Gauge("workqueue_depth", "Keys that are ready.", ["name"], registry=registry)
        self._adds = Counter(
            "workqueue_adds", "Keys that became wanted.", ["name"], registry=registry
        ).labels(CONTROLLER)
        self._retries = Counter(
            "workqueue_retries", "Keys that failed and come back.", ["name"], registry=registry
        ).labels(CONTROLLER)
        self._queued = Histogram(
            "workqueue_queue_duration_seconds",
            "Time that a ready key waited for a worker.",
            ["name"],
            buckets=_SECONDS,
            registry=registry,
        ).labels(CONTROLLER)

    def watch_depth(self, depth: Callable[[], int]) -> None:
        """Read the queue's depth whenever metrics are read."""
        self._depth.labels(CONTROLLER).set_function(depth)

    def key_added(self) -> None:
        """Implement QueueObserver."""
        self._adds.inc()

    def key_retried(self) -> None:
        """Implement QueueObserver."""
        self._retries.inc()

    def key_waited(self, seconds: float) -> None:
        """Implement QueueObserver."""
        self._queued.observe(seconds)


class ReconcileMetrics:
    """What the workers do, and whether they may; implements ReconcileObserver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reconciles = Counter(
            "controller_runtime_reconcile",
            "Reconciles by result.",
            ["controller", "result"],
            registry=registry,
        )
        self._time = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciles.",
            ["controller"],
            buckets=_SECONDS,
            registry=registry,
        ).labels(CONTROLLER)
        self._bugs = Counter(
            "controller_runtime_reconcile_panics",
            "Reconciles that ended in an error nobody foresaw.",
            ["controller"],
            registry=registry,
        ).labels(CONTROLLER)
        self._leader = Gauge(
            "leader_election_master_status",
            "1 while this process leads.",
            ["name"],
            registry=registry,
        )

    def watch_leadership(self, is_leading: Callable[[], bool]) -> None:
        """Read who leads whenever metrics are read."""
        self._leader.labels("tonnage").set_function(is_leading)

    def reconciled(self, result: str, seconds: float) -> None:
        """Implement ReconcileObserver."""
        self._reconciles.labels(CONTROLLER, result).inc()
        self._time.observe(seconds)

    def found_bug(self) -> None:
        """Implement ReconcileObserver."""
        self._bugs.inc()


class ApiMetrics:
    """What is asked of the API server and told by it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "rest_client_requests",
            "Requests to the API server.",
            ["method", "code"],
            registry=registry,
        )
        self._request_time = Histogram(
            "tonnage_api_request_duration_seconds",
            "Duration of requests to the API server.",
            ["verb", "kind", "code"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._events = Counter(
            "tonnage_watch_events", "Events seen by kind.", ["kind"], registry=registry
        )
        self._last_event = Gauge(
            "tonnage_watch_last_event_timestamp_seconds",
            "When the last event of a kind was seen.",
            ["kind"],
            registry=registry,
        )

    def requested(self, request: Request, code: str, seconds: float) -> None:
        """Observer of the transport."""
        self._requests.labels(request.method, code).inc()
        self._request_time.labels(request.verb, request.kind.plural, code).observe(seconds)

    def event_seen(self, plural: str) -> None:
        """An event of a kind came from the watch."""
        self._events.labels(plural).inc()
        self._last_event.labels(plural).set_to_current_time()
