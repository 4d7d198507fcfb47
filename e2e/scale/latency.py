"""How soon a child follows its parent, beside the controllers of others: `make bench-cluster`.

    python -m e2e.scale.latency --present 1000 --rate 20 --seconds 15 --rounds 3

One control plane, one client and one clock for all: first a burst of objects for each controller,
then, with those present, creates at a steady rate for one controller after the other, several times
over, so that all of them see the same minutes of the machine. Ratios are what counts; nothing is
asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console

from e2e.admin import Admin
from e2e.audit_log import AuditLog
from e2e.failure import run_cli
from e2e.fleet import apply_fleet
from e2e.operator_process import OperatorProcess
from e2e.scale.baselines import CONTENDERS, Contender
from e2e.scale.bench_cluster import own_control_plane
from e2e.scale.latency_probe import Births, Client, open_client
from e2e.scale.lws import LeaderWorkerSetController
from e2e.scale.resource_cost import Toll, cores_table, requests_table
from e2e.scale.tables import Outcome, burst_table, latency_table, report_table
from e2e.scale.usage import cpu_seconds, peak_rss_bytes
from e2e.stack import Stack

_GPUS_PER_NODE: Final = 8
_PARALLEL_CREATES: Final = 16
_BURST_TIMEOUT: Final = 600.0
_LATE_TIMEOUT: Final = 120.0
_QUIET_SECONDS: Final = 5.0
"""A cluster in which no child has changed for so long has settled."""

_SETTLE_TIMEOUT: Final = 300.0


@dataclass(frozen=True, slots=True)
class Load:
    """Objects present, creates a second, seconds of them in each round, rounds, and the replicas of
    each object."""

    present: int
    rate: float
    seconds: float
    rounds: int
    replicas: int

    @property
    def gpus(self) -> int:
        """What all objects of one controller take: one each."""
        return self.present + int(self.rate * self.seconds * self.rounds)


@dataclass(slots=True)
class Bench:
    """A cluster with controllers in it, and what was found of each."""

    admin: Admin
    client: Client
    load: Load
    pids: dict[str, int]
    audit_log: AuditLog
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    tolls: dict[str, Toll] = field(default_factory=dict)

    async def burst(self, contender: Contender) -> None:
        """Create those that are to be present as fast as the API server takes them, and wait until
        all children are there."""
        names = [f"present-{number:05}" for number in range(self.load.present)]
        outcome = self.outcomes.setdefault(contender.name, Outcome())
        async with self._watched(contender) as births:
            before, started = cpu_seconds(self.pids[contender.process]), time.monotonic()
            gate = asyncio.Semaphore(_PARALLEL_CREATES)
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(self._create(contender, name, gate))
            outcome.posted_seconds = time.monotonic() - started
            await births.all_born(names, _BURST_TIMEOUT)
            outcome.burst_seconds = max(births.children[name] for name in names) - started
            await self._settle(contender)
            outcome.burst_cpu_seconds = cpu_seconds(self.pids[contender.process]) - before

    async def steady(self, contender: Contender, number: int) -> None:
        """Create at the rate, and learn how long each child takes."""
        load = self.load
        names = [f"round-{number}-{one:05}" for one in range(int(load.rate * load.seconds))]
        outcome = self.outcomes.setdefault(contender.name, Outcome())
        toll = self.tolls.setdefault(contender.name, Toll())
        pid = self.pids[contender.process]
        with toll.requests_for(len(names), self.audit_log):
            async with self._watched(contender) as births:
                before = cpu_seconds(pid)
                with toll.creates(self.pids):
                    await self._create_steadily(contender, names)
                await births.all_born(names, _LATE_TIMEOUT)
                outcome.latencies += births.latencies(names)
                await self._settle(contender)
                outcome.reported_after += births.reported_after(names)
                outcome.steady_cpu_seconds += cpu_seconds(pid) - before

    async def _create_steadily(self, contender: Contender, names: Sequence[str]) -> None:
        started, gate = time.monotonic(), asyncio.Semaphore(_PARALLEL_CREATES)
        async with asyncio.TaskGroup() as group:
            for one, name in enumerate(names):
                await asyncio.sleep(started + one / self.load.rate - time.monotonic())
                group.create_task(self._create(contender, name, gate))

    async def _create(self, contender: Contender, name: str, gate: asyncio.Semaphore) -> None:
        async with gate:
            await self.client.create(
                contender.parents(self.admin), contender.make(name, self.load.replicas)
            )

    @asynccontextmanager
    async def _watched(self, contender: Contender) -> AsyncIterator[Births]:
        births = Births()
        watches = [
            await self.client.watch(contender.parents(self.admin), births.parent_told),
            await self.client.watch(contender.children(self.admin), births.child_told),
        ]
        try:
            yield births
        finally:
            for watch in watches:
                watch.cancel()
                with suppress(asyncio.CancelledError):
                    await watch

    async def _settle(self, contender: Contender) -> None:
        """Wait until nothing of the controller's objects changes any more."""
        changed = asyncio.Event()
        paths = (contender.parents(self.admin), contender.children(self.admin))
        watches = [await self.client.watch(path, lambda *_: changed.set()) for path in paths]
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_TIMEOUT):
                await _until_quiet(changed)
        for watch in watches:
            watch.cancel()


async def _until_quiet(changed: asyncio.Event) -> None:
    """Return when the event has not been set for a while."""
    with suppress(TimeoutError):
        while True:
            changed.clear()
            await asyncio.wait_for(changed.wait(), _QUIET_SECONDS)


async def measure(
    bench: Bench, contenders: Sequence[Contender], announce: Callable[[str], None]
) -> None:
    """All bursts, then all rounds of steady creates."""
    load = bench.load
    for contender in contenders:
        announce(f"{load.present:,} objects at once: {contender.name}")
        await bench.burst(contender)
    for number in range(load.rounds):
        for contender in contenders:
            announce(f"round {number + 1} of {load.rounds}, {load.rate:g}/s: {contender.name}")
            await bench.steady(contender, number)
    for contender in contenders:
        bench.outcomes[contender.name].peak_rss_bytes = peak_rss_bytes(
            bench.pids[contender.process]
        )


@contextmanager
def cluster(
    load: Load, announce: Callable[[str], None]
) -> Iterator[tuple[Stack, Admin, dict[str, int]]]:
    """A control plane with nodes enough, and all controllers; ended with the block."""
    namespaces = [contender.namespace for contender in CONTENDERS]
    with own_control_plane("scale", namespaces) as (stack, admin, root), ExitStack() as running:
        nodes = -(-load.gpus // _GPUS_PER_NODE)
        announce(f"{nodes} nodes with {_GPUS_PER_NODE} GPUs each")
        group = {"name": "pool", "accelerator": "mi300x", "count": nodes}
        apply_fleet(stack.access, {"groups": [group]})
        lws = running.enter_context(closing(LeaderWorkerSetController(admin, root / "lws")))
        lws.start()
        operator = running.enter_context(closing(OperatorProcess(stack, root / "operator")))
        operator.start()
        admin.until("the operator to lead", lambda: operator.leads)
        pids = {name: process.pid for name, process in stack.processes.items()}
        pids |= {"tonnage": operator.pid, "lws-controller": lws.pid, "client": os.getpid()}
        yield stack, admin, pids


async def _run(
    stack: Stack,
    admin: Admin,
    pids: dict[str, int],
    contenders: Sequence[Contender],
    load: Load,
    announce: Callable[[str], None],
) -> Bench:
    async with open_client(stack.access) as client:
        bench = Bench(admin, client, load, pids, AuditLog(stack.audit_log))
        await measure(bench, contenders, announce)
        return bench


def main() -> int:
    """Measure and print."""
    arguments = _parser().parse_args()
    load = Load(
        arguments.present, arguments.rate, arguments.seconds, arguments.rounds, arguments.replicas
    )
    chosen = [one for one in CONTENDERS if not arguments.only or one.name in arguments.only]
    console = Console()

    def announce(line: str) -> None:
        console.print(f"{time.strftime('%H:%M:%S')} {line}", highlight=False)

    with cluster(load, announce) as (stack, admin, pids):
        bench = asyncio.run(_run(stack, admin, pids, chosen, load, announce))
    console.print(latency_table(bench.outcomes, load.present, load.rate))
    console.print(report_table(bench.outcomes, load.rate))
    console.print(burst_table(bench.outcomes, load.present))
    console.print(cores_table(bench.tolls, load.rate))
    console.print(requests_table(bench.tolls))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scale.latency",
        description="Time from a parent to its child: Tonnage, LeaderWorkerSet and Deployments.",
    )
    parser.add_argument("--present", type=int, default=1000, help="objects of each (1000)")
    parser.add_argument("--rate", type=float, default=20.0, help="creates a second (20)")
    parser.add_argument("--seconds", type=float, default=15.0, help="of creates a round (15)")
    parser.add_argument("--rounds", type=int, default=3, help="for each controller (3)")
    parser.add_argument(
        "--replicas",
        type=int,
        default=0,
        help="of each object (0: no pods, or what is measured is how fast one machine plays them)",
    )
    parser.add_argument("--only", nargs="*", choices=[one.name for one in CONTENDERS], default=[])
    return parser


if __name__ == "__main__":
    sys.exit(run_cli(main))
