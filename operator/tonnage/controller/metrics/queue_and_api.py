"""Metrics of queue, workers and API requests. Names and labels follow controller-runtime."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from tonnage import __version__
from tonnage.controller.workers import Result
from tonnage.kube.transport import Request

CONTROLLER: Final = "inferencedeployment"
_QUEUE: Final = ("name", "controller")

_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class QueueMetrics:
    """Metrics of the work queue; implements QueueObserver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._depth = Gauge("workqueue_depth", "Ready keys.", _QUEUE, registry=registry)
        self._adds = Counter(
            "workqueue_adds", "Keys added to the queue.", _QUEUE, registry=registry
        ).labels(CONTROLLER, CONTROLLER)
        self._retries = Counter(
            "workqueue_retries", "Keys requeued after a failure.", _QUEUE, registry=registry
        ).labels(CONTROLLER, CONTROLLER)
        self._queued = Histogram(
            "workqueue_queue_duration_seconds",
            "Time a ready key waits for a worker.",
            _QUEUE,
            buckets=_SECONDS,
            registry=registry,
        ).labels(CONTROLLER, CONTROLLER)

    def watch_depth(self, depth: Callable[[], int]) -> None:
        """Read the queue's depth at each scrape."""
        self._depth.labels(CONTROLLER, CONTROLLER).set_function(depth)

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
    """Metrics of the reconciles; implements ReconcileObserver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, documentation: str) -> Counter:
            return Counter(name, documentation, ["controller"], registry=registry).labels(
                CONTROLLER
            )

        self._reconciles = Counter(
            "controller_runtime_reconcile",
            "Reconciles by result.",
            ["controller", "result"],
            registry=registry,
        )
        for result in Result:
            self._reconciles.labels(CONTROLLER, result)
        self._time = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciles.",
            ["controller"],
            buckets=_SECONDS,
            registry=registry,
        ).labels(CONTROLLER)
        self._worked = Histogram(
            "workqueue_work_duration_seconds",
            "Time a worker processes a key.",
            _QUEUE,
            buckets=_SECONDS,
            registry=registry,
        ).labels(CONTROLLER, CONTROLLER)
        self._errors = counter(
            "controller_runtime_reconcile_errors", "Reconciles that ended in an error."
        )
        self._given_up = counter(
            "controller_runtime_terminal_reconcile_errors",
            "Reconciles that ended in an error that is not retried.",
        )
        self._bugs = counter(
            "controller_runtime_reconcile_panics",
            "Reconciles that ended in an unexpected exception.",
        )

    def reconciled(self, result: Result, seconds: float) -> None:
        """Implement ReconcileObserver."""
        self._reconciles.labels(CONTROLLER, result).inc()
        self._time.observe(seconds)
        self._worked.observe(seconds)
        if result is Result.ERROR:
            self._errors.inc()

    def observe_terminal_error(self) -> None:
        """Implement ReconcileObserver."""
        self._given_up.inc()

    def observe_panic(self) -> None:
        """Implement ReconcileObserver."""
        self._bugs.inc()


class WorkerMetrics:
    """Metrics of the workers at the time of the scrape, and whether this process leads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, documentation: str, labels: Sequence[str]) -> Gauge:
            return Gauge(name, documentation, labels, registry=registry)

        self._leader = gauge(
            "leader_election_master_status", "1 while this process leads, else 0.", ["name"]
        )
        self._workers = gauge(
            "controller_runtime_max_concurrent_reconciles", "All workers.", ["controller"]
        )
        self._active = gauge(
            "controller_runtime_active_workers", "Workers that process a key.", ["controller"]
        )
        self._unfinished = gauge(
            "workqueue_unfinished_work_seconds",
            "Seconds that all workers have spent on their keys.",
            _QUEUE,
        )
        self._longest = gauge(
            "workqueue_longest_running_processor_seconds",
            "Seconds that the longest-running worker has spent on its key.",
            _QUEUE,
        )

    def watch(
        self, workers: int, in_flight: Callable[[], Sequence[float]], is_leading: Callable[[], bool]
    ) -> None:
        """Read these at each scrape; `in_flight` gives the age of each running reconcile, in
        seconds."""
        self._workers.labels(CONTROLLER).set(workers)
        self._active.labels(CONTROLLER).set_function(lambda: len(in_flight()))
        self._unfinished.labels(CONTROLLER, CONTROLLER).set_function(lambda: sum(in_flight()))
        self._longest.labels(CONTROLLER, CONTROLLER).set_function(
            lambda: max(in_flight(), default=0.0)
        )
        self._leader.labels("tonnage").set_function(is_leading)


class ApiMetrics:
    """Metrics of the requests to the API server, and of its watch events."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "rest_client_requests",
            "Requests to the API server, except watches.",
            ["method", "code"],
            registry=registry,
        )
        self._request_time = Histogram(
            "tonnage_api_request_duration_seconds",
            "Duration of requests to the API server, in seconds.",
            ["verb", "kind", "code"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._events = Counter(
            "tonnage_watch_events", "Watch events, by kind.", ["kind"], registry=registry
        )
        self._last_event = Gauge(
            "tonnage_watch_last_event_timestamp_seconds",
            "Last watch event of a kind, Unix time.",
            ["kind"],
            registry=registry,
        )
        # Looking the series up takes longer than incrementing them.
        self._series_of_kind = cache(
            lambda plural: (self._events.labels(plural), self._last_event.labels(plural))
        )
        self._missed = Counter(
            "tonnage_watch_missed_changes",
            "Changes that the watch has not delivered.",
            ["kind"],
            registry=registry,
        )

    def requested(self, request: Request, code: str, seconds: float) -> None:
        """Record a request; the transport's observer."""
        self._requests.labels(request.method, code).inc()
        self._request_time.labels(request.verb, request.kind.plural, code).observe(seconds)

    def on_event(self, plural: str) -> None:
        """Record a watch event of this kind."""
        events, last_event = self._series_of_kind(plural)
        events.inc()
        last_event.set_to_current_time()

    def changes_missed(self, plural: str, count: int) -> None:
        """Record how many changes of this kind a list shows that the watch has not delivered."""
        self._missed.labels(plural).inc(count)


def register_build_info(registry: CollectorRegistry) -> None:
    """Export the operator's version."""
    Info("tonnage_build", "The operator's version.", registry=registry).info(
        {"version": __version__}
    )
