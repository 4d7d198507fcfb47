"""What an event costs, and how many a second the operator takes in.

    python -m benchmarks.in_memory.events [--nodes 2000 --pods 8000 --objects 500]

The process is the operator's own but for its loop, which does nothing: watches, stores, triggers,
fleet and queue. Its API server is another process, and speaks HTTP on loopback. Objects have the
sizes that they have in a GPU cluster. Each kind comes by itself at first, then all together at
2,000 a second, then as fast as they are taken in. CPU is that of the operator's process, with
the gauge in it; the first row is of a time without events.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import yaml
from rich.console import Console
from rich.table import Table

from tonnage.controller.settings import Settings
from tonnage.kube.connection import connect
from tonnage.manager.components import Components, assemble
from tonnage.manager.process import Operator
from tonnage.manager.scope import Scope
from tonnage.manager.work import LoopDependencies, Work
from tonnage.reconcile.key import Key, Requeue

ROOT: Final = Path(__file__).parents[2]

MIX: Final = {"nodes": 0.55, "pods": 0.35, "deployments": 0.06, "inferencedeployments": 0.04}
"""Of a cluster in which all kubelets report at once, while some models roll out."""

RATE, ALONE_RATE = 2_000, 400
SECONDS, ALONE_SECONDS = 10.0, 4.0
COLUMNS: Final = (
    "events",
    "sent",
    "per s",
    "CPU us",
    "CPU %",
    "lag p50",
    "p99",
    "max ms",
    "queue",
    "MiB",
)
DROP_SECONDS: Final = 12.0
"""Until all watches are open, and kopf has dropped what it listed."""

SAMPLE_SECONDS: Final = 0.002

LOOK_SECONDS: Final = 0.1
"""Between two looks at the number of events."""

QUIET_SECONDS: Final = 1.0
"""Without an event after the last one was sent: no more will come."""


def no_work(_: LoopDependencies) -> Work:
    """What the loop does is measured by others."""

    async def reconcile(_: Key) -> Requeue:
        return Requeue()

    async def nothing() -> None:
        """No state to rebuild, no observer."""

    return Work(reconcile, nothing, nothing)


@dataclass(slots=True)
class Figures:
    """Of one stretch of time."""

    events: int
    seconds: float
    cpu_seconds: float
    lags: list[float]
    deepest: int

    def lag_ms(self, part: float) -> float:
        """By how much the loop was late at least, in this part of the cases."""
        ordered = sorted(self.lags)
        return 1e3 * ordered[min(int(part * len(ordered)), len(ordered) - 1)]


class Gauge:
    """Looks at the running operator."""

    def __init__(self, components: Components) -> None:
        self._components = components

    def events(self, plurals: Mapping[str, float]) -> int:
        """How many watches have brought so far."""
        sample_value = self._components.metrics.registry.get_sample_value
        return sum(
            int(sample_value("tonnage_watch_events_total", {"kind": each}) or 0) for each in plurals
        )

    async def watch(self, plurals: Mapping[str, float], until: asyncio.Future[object]) -> Figures:
        """From now until the future is done and no event has come for a while: how many there will
        be is not known, since kopf hands over only the last of several events of one object."""
        before, cpu, began = self.events(plurals), time.process_time(), time.monotonic()
        lags, deepest, seen, spent = [], 0, before, 0.0
        looked_at = changed_at = began
        while not until.done() or time.monotonic() - changed_at < QUIET_SECONDS:
            asked = time.monotonic()
            await asyncio.sleep(SAMPLE_SECONDS)
            lags.append(time.monotonic() - asked - SAMPLE_SECONDS)
            deepest = max(deepest, self._components.loop.queue.depth)
            if asked - looked_at >= LOOK_SECONDS:  # it costs as much as a scrape
                looked_at, known = asked, seen
                seen = self.events(plurals)
                if seen != known or not until.done():
                    changed_at, spent = time.monotonic(), time.process_time() - cpu
        return Figures(seen - before, changed_at - began, spent, lags, deepest)


async def main(sizes: argparse.Namespace) -> None:
    """Print the figures."""
    console = Console()
    console.print(f"load average {os.getloadavg()[0]:.1f}")
    async with (
        busy_server(sizes) as url,
        operator(url) as components,
        aiohttp.ClientSession() as session,
    ):
        began = time.monotonic()
        nodes = components.informers.stores.nodes
        while len(nodes) < sizes.nodes or components.health.missing():  # noqa: ASYNC110 - as probes
            await asyncio.sleep(0.05)
        console.print(f"{sizes.nodes:,} nodes, {sizes.pods:,} pods, {sizes.objects:,} objects")
        seconds, cpu = time.monotonic() - began, time.process_time()
        console.print(f"known after {seconds:.1f} s, {cpu:.1f} s of CPU since the start of Python")
        await asyncio.sleep(DROP_SECONDS)
        console.print(f"resident {resident_mib():.0f} MiB")
        gauge = Gauge(components)
        rest = await gauge.watch(MIX, asyncio.ensure_future(asyncio.sleep(ALONE_SECONDS)))

        async def play(rates: Mapping[str, float], seconds: float) -> Figures:
            async def ask() -> object:
                asked = {"seconds": seconds, "rates": rates}
                async with session.post(f"{url}/play", json=asked) as answer:
                    return await answer.json()

            return await gauge.watch(rates, asyncio.ensure_future(ask()))

        table = Table(*COLUMNS)
        tell(table, "nothing", rest)
        for plural in MIX:
            tell(table, plural, await play({plural: ALONE_RATE}, ALONE_SECONDS))
        mixed = {plural: RATE * part for plural, part in MIX.items()}
        tell(table, f"all, {RATE:,}/s", await play(mixed, SECONDS))
        tell(table, "nodes, all at once", await play({"nodes": 0}, ALONE_SECONDS))
        console.print(table)
    console.print(f"load average {os.getloadavg()[0]:.1f}")


def tell(table: Table, name: str, figures: Figures) -> None:
    """One row."""
    table.add_row(
        name,
        f"{figures.events:,}",
        f"{figures.events / figures.seconds:,.0f}",
        f"{1e6 * figures.cpu_seconds / figures.events:,.0f}" if figures.events else "",
        f"{100 * figures.cpu_seconds / figures.seconds:.0f}",
        *(f"{figures.lag_ms(part):.1f}" for part in (0.5, 0.99, 1.0)),
        f"{figures.deepest}",
        f"{resident_mib():.0f}",
    )


@asynccontextmanager
async def busy_server(sizes: argparse.Namespace) -> AsyncIterator[str]:
    """Its address."""
    flags = [f"--{name}={value}" for name, value in vars(sizes).items()]
    command = [sys.executable, "-m", "tests.support.api_server.busy_api_server", *flags]
    search = os.pathsep.join((str(ROOT / "operator"), str(ROOT)))
    server = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": search}
    )
    assert server.stdout is not None
    try:
        yield (await server.stdout.readline()).decode().strip()
    finally:
        server.terminate()
        await server.wait()


@asynccontextmanager
async def operator(url: str) -> AsyncIterator[Components]:
    """The operator, running in this process."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config_of(url)))
        settings = Settings(kubeconfig=str(kubeconfig), listen="127.0.0.1:0")
        async with connect(settings.kubeconfig) as connection:
            components = assemble(settings, connection, no_work, Scope())
            process = Operator(components)
            running = asyncio.create_task(process.run())
            try:
                yield components
            finally:
                process._stop_on_signal()
                await running


def config_of(url: str) -> dict[str, object]:
    """A kubeconfig of this server, which authenticates no client."""
    return {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }


def resident_mib() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    logging.disable(logging.INFO)
    parser = argparse.ArgumentParser()
    for name, value in {"nodes": 2_000, "pods": 8_000, "objects": 500}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    asyncio.run(main(parser.parse_args()))
