"""The three pages: /healthz, /readyz and /metrics."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from prometheus_client import CollectorRegistry

from tests.support.faults.fake_clock import FakeClock
from tonnage.controller.health import Health
from tonnage.controller.metrics.queue_and_api import ApiMetrics
from tonnage.controller.server import build_app, serve


class Bench:
    """Health on a fake clock, with a reconcile of any age."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.oldest = 0.0
        self.registry = CollectorRegistry()
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


async def test_blocked_event_loop_fails_liveness() -> None:
    bench = Bench()
    bench.clock.advance(11)
    async with bench.serving() as url:
        assert await fetch(url + "/healthz") == (503, "the event loop is 11 s late\n")


async def test_reconcile_beyond_its_deadline_fails_liveness() -> None:
    bench = Bench()
    bench.oldest = 241
    async with bench.serving() as url:
        assert await fetch(url + "/healthz") == (503, "a reconcile has been running for 241 s\n")


async def test_metrics_are_served_as_text() -> None:
    bench = Bench()
    bench.api_metrics.on_event("pods")
    async with bench.serving() as url:
        status, text = await fetch(url + "/metrics")
    assert status == 200
    assert 'tonnage_watch_events_total{kind="pods"} 1.0' in text
