"""/healthz, /readyz and /metrics on one port."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from tonnage.controller.health import Health
from tonnage.controller.metrics_access import METRICS_PATH, MetricsAccess


def build_app(
    health: Health, registry: CollectorRegistry, access: MetricsAccess | None = None
) -> web.Application:
    """Build the application with its three pages. `access` decides who may read /metrics; without
    it, every caller may."""

    async def healthz(_: web.Request) -> web.Response:
        return _respond(health.problems())

    async def readyz(_: web.Request) -> web.Response:
        return _respond([f"waiting for {what}" for what in health.missing()])

    async def metrics(request: web.Request) -> web.Response:
        if access is not None:
            refusal = await access.refuse(request.headers.get("Authorization", ""))
            if refusal is not None:
                return web.Response(status=refusal.status, text=f"{refusal.message}\n")
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(registry), headers=headers)

    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get(METRICS_PATH, metrics),
        ]
    )
    return app


@asynccontextmanager
async def serve(
    app: web.Application, host: str, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve while the block runs, with TLS if there is a context; yields the port, which the system
    chooses if `port` is 0."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, reuse_address=True, ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _respond(problems: list[str]) -> web.Response:
    if problems:
        return web.Response(status=503, text="\n".join(problems) + "\n")
    return web.Response(text="ok\n")
