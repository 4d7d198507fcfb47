"""/healthz, /readyz and /metrics on one port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from tonnage.controller.health import Health


def build_app(health: Health, registry: CollectorRegistry) -> web.Application:
    """Build the application with its three pages."""

    async def healthz(_: web.Request) -> web.Response:
        return _respond(health.problems())

    async def readyz(_: web.Request) -> web.Response:
        return _respond([f"waiting for {what}" for what in health.missing()])

    async def metrics(_: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(registry), headers=headers)

    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/metrics", metrics),
        ]
    )
    return app


@asynccontextmanager
async def serve(app: web.Application, host: str, port: int) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port, which the system chooses if `port` is 0."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, reuse_address=True).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _respond(problems: list[str]) -> web.Response:
    if problems:
        return web.Response(status=503, text="\n".join(problems) + "\n")
    return web.Response(text="ok\n")
