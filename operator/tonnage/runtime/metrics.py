"""All metrics of the operator; names and labels are controller-runtime's where it has them."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from tonnage import __version__
from tonnage.kube.transport import Request
from tonnage.runtime.controller import Result

CONTROLLER: Final = "inferencedeployment"
_QUEUE: Final = ("name", "controller")

_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class QueueMetrics:
    """What the work queue does; implements QueueObserver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._depth = Gauge("workqueue_depth", "Keys that are ready.", _QUEUE, registry=registry)
        self._adds = Counter(
            "workqueue_adds", "Keys that became wanted.", _QUEUE, registry=registry
        ).labels(CONTROLLER, CONTROLLER)
        self._retries = Counter(
            "workqueue_retries", "Keys that failed and come back.", _QUEUE, registry=registry
        ).labels(CONTROLLER, CONTROLLER)
        self._queued = Histogram(
            "workqueue_queue_duration_seconds",
            "Time that a ready key waited for a worker, in seconds.",
            _QUEUE,
            buckets=_SECONDS,
            registry=registry,
        ).labels(CONTROLLER, CONTROLLER)

    def watch_depth(self, depth: Callable[[], int]) -> None:
        """Read the queue's depth whenever metrics are read."""
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
    """What the workers do, and whether they may; implements ReconcileObserver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, told: str) -> Counter:
            return Counter(name, told, ["controller"], registry=registry).labels(CONTROLLER)

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
            "Duration of reconciles, in seconds.",
            ["controller"],
            buckets=_SECONDS,
            registry=registry,
        ).labels(CONTROLLER)
        self._worked = Histogram(
            "workqueue_work_duration_seconds",
            "Time that a key was with a worker, in seconds.",
            _QUEUE,
            buckets=_SECONDS,
            registry=registry,
        ).labels(CONTROLLER, CONTROLLER)
        self._errors = counter(
            "controller_runtime_reconcile_errors", "Reconciles that ended in an error."
        )
        self._given_up = counter(
            "controller_runtime_terminal_reconcile_errors",
            "Reconciles that ended in an error which no retry can mend.",
        )
        self._bugs = counter(
            "controller_runtime_reconcile_panics",
            "Reconciles that ended in an error nobody foresaw.",
        )

    def reconciled(self, result: Result, seconds: float) -> None:
        """Implement ReconcileObserver."""
        self._reconciles.labels(CONTROLLER, result).inc()
        self._time.observe(seconds)
        self._worked.observe(seconds)
        if result is Result.ERROR:
            self._errors.inc()

    def gave_up(self) -> None:
        """Implement ReconcileObserver."""
        self._given_up.inc()

    def found_bug(self) -> None:
        """Implement ReconcileObserver."""
        self._bugs.inc()


class WorkerMetrics:
    """What is with the workers at the moment of reading, and whether they may work at all."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, told: str, labels: Sequence[str]) -> Gauge:
            return Gauge(name, told, labels, registry=registry)

        self._leader = gauge(
            "leader_election_master_status", "1 while this process leads, else 0.", ["name"]
        )
        self._workers = gauge(
            "controller_runtime_max_concurrent_reconciles", "Workers in all.", ["controller"]
        )
        self._active = gauge(
            "controller_runtime_active_workers", "Workers with a key.", ["controller"]
        )
        self._unfinished = gauge(
            "workqueue_unfinished_work_seconds",
            "Seconds that the keys now with workers have been there, added up.",
            _QUEUE,
        )
        self._longest = gauge(
            "workqueue_longest_running_processor_seconds",
            "Seconds that the oldest key now with a worker has been there.",
            _QUEUE,
        )

    def watch(
        self, workers: int, in_flight: Callable[[], Sequence[float]], is_leading: Callable[[], bool]
    ) -> None:
        """Read these whenever metrics are read; `in_flight` are the ages of keys in seconds."""
        self._workers.labels(CONTROLLER).set(workers)
        self._active.labels(CONTROLLER).set_function(lambda: len(in_flight()))
        self._unfinished.labels(CONTROLLER, CONTROLLER).set_function(lambda: sum(in_flight()))
        self._longest.labels(CONTROLLER, CONTROLLER).set_function(
            lambda: max(in_flight(), default=0.0)
        )
        self._leader.labels("tonnage").set_function(is_leading)


class ApiMetrics:
    """What is asked of the API server and told by it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "rest_client_requests",
            "Requests to the API server, but for the watches.",
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
            "tonnage_watch_events", "Events seen by kind.", ["kind"], registry=registry
        )
        self._last_event = Gauge(
            "tonnage_watch_last_event_timestamp_seconds",
            "When the last event of a kind was seen, Unix time.",
            ["kind"],
            registry=registry,
        )
        # To find them anew takes longer than to count.
        self._of_kind = cache(
            lambda plural: (self._events.labels(plural), self._last_event.labels(plural))
        )
        self._missed = Counter(
            "tonnage_watch_missed_changes",
            "Changes that a list found and that no event had told: a watch that is silent.",
            ["kind"],
            registry=registry,
        )

    def requested(self, request: Request, code: str, seconds: float) -> None:
        """Observer of the transport."""
        self._requests.labels(request.method, code).inc()
        self._request_time.labels(request.verb, request.kind.plural, code).observe(seconds)

    def event_seen(self, plural: str) -> None:
        """An event of a kind came from the watch."""
        events, last_event = self._of_kind(plural)
        events.inc()
        last_event.set_to_current_time()

    def changes_missed(self, plural: str, count: int) -> None:
        """A list found so many changes of a kind that no event had told."""
        self._missed.labels(plural).inc(count)


def tell_build(registry: CollectorRegistry) -> None:
    """Which version this is."""
    Info("tonnage_build", "The version that runs.", registry=registry).info(
        {"version": __version__}
    )
