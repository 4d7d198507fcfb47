"""The three pages: alive, ready, and the numbers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from prometheus_client import CollectorRegistry

from tests.support.fake_clock import FakeClock
from tonnage.kube.kinds import PODS
from tonnage.kube.transport import Request
from tonnage.runtime.health import Health
from tonnage.runtime.metrics import ApiMetrics, QueueMetrics, ReconcileMetrics
from tonnage.runtime.server import build_app, serve


class Bench:
    """Health on a fake clock, with a reconcile of any age."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.oldest = 0.0
        self.registry = CollectorRegistry()
        self.queue_metrics = QueueMetrics(self.registry)
        self.reconcile_metrics = ReconcileMetrics(self.registry)
        self.api_metrics = ApiMetrics(self.registry)
        self.health = Health(
            oldest_in_flight=lambda: self.oldest,
            max_in_flight_seconds=240,
            clock=self.clock.monotonic,
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async with serve(build_app(self.health, self.registry), "127.0.0.1", 0) as port:
            yield f"http://127.0.0.1:{port}"


async def fetch(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_process_is_ready_when_nothing_is_waited_for() -> None:
    bench = Bench()
    bench.health.wait_for("nodes")
    bench.health.wait_for("kinds")
    async with bench.serving() as url:
        assert await fetch(url + "/readyz") == (503, "waiting for kinds\nwaiting for nodes\n")
        bench.health.reached("nodes")
        bench.health.reached("kinds")
        assert await fetch(url + "/readyz") == (200, "ok\n")
        assert await fetch(url + "/healthz") == (200, "ok\n")


async def test_blocked_event_loop_is_no_life() -> None:
    bench = Bench()
    bench.clock.advance(11)
    async with bench.serving() as url:
        assert await fetch(url + "/healthz") == (503, "the event loop is 11 s late\n")


async def test_reconcile_beyond_its_deadline_is_no_life() -> None:
    bench = Bench()
    bench.oldest = 241
    async with bench.serving() as url:
        assert await fetch(url + "/healthz") == (503, "a reconcile has been running for 241 s\n")


async def test_metrics_bear_the_names_that_dashboards_know() -> None:
    bench = Bench()
    bench.queue_metrics.watch_depth(lambda: 3)
    bench.reconcile_metrics.watch_leadership(lambda: True)
    bench.queue_metrics.key_added()
    bench.queue_metrics.key_retried()
    bench.queue_metrics.key_waited(0.1)
    bench.reconcile_metrics.reconciled("success", 0.2)
    bench.api_metrics.requested(Request("list", "GET", PODS, None, None), "200", 0.1)
    bench.api_metrics.event_seen("pods")
    async with bench.serving() as url:
        status, text = await fetch(url + "/metrics")
    assert status == 200
    for want in (
        'workqueue_depth{name="inferencedeployment"} 3.0',
        'workqueue_adds_total{name="inferencedeployment"} 1.0',
        'workqueue_retries_total{name="inferencedeployment"} 1.0',
        'workqueue_queue_duration_seconds_count{name="inferencedeployment"} 1.0',
        'controller_runtime_reconcile_total{controller="inferencedeployment",result="success"} 1.0',
        'controller_runtime_reconcile_time_seconds_count{controller="inferencedeployment"} 1.0',
        'leader_election_master_status{name="tonnage"} 1.0',
        'rest_client_requests_total{code="200",method="GET"} 1.0',
        'tonnage_watch_events_total{kind="pods"} 1.0',
    ):
        assert want in text
