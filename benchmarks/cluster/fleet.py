"""A large fleet: how soon the operator has reconciled it, what it costs, and what a lost node does.

    python -m benchmarks.cluster.fleet --figures fleet.json

On a real control plane; nodes and pods are as heavy as real ones. The children of the objects are
the operator's own work, in a first run that is not measured. With several `--shares` the fleet
grows from one to the next, and each is measured. Each figure of the largest stands next to its bar;
nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.cluster.api_client import open_client
from benchmarks.cluster.etcd_store import open_etcd
from benchmarks.cluster.fleet_cluster import FleetCluster, FleetSize, fleet_control_plane, owner_key
from benchmarks.cluster.fleet_objects import GPUS_PER_NODE
from benchmarks.cluster.heartbeats import node_heartbeats
from benchmarks.cluster.operator_metrics import OperatorCounters, parse_counters
from benchmarks.cluster.reconcile_log import ReconcileLog
from benchmarks.cluster.resource_cost import describe_request, requests_of, writes_of
from benchmarks.cluster.usage import cpu_seconds, peak_rss_bytes, watch_cpu
from benchmarks.pages.figures import SUBJECT, Report, describe_run
from benchmarks.pages.fleet_figures import FleetSample, fleet_figures, fleet_table
from benchmarks.pages.tables import open_console, print_report
from e2e.harness.admin import Admin
from e2e.harness.audit_log import AuditLog
from e2e.harness.failure import HarnessError, run_cli
from e2e.harness.operator_process import USER, OperatorProcess
from e2e.harness.stack import Stack

_SMALLER_IDLE_SECONDS: Final = 60.0
"""For sizes but the largest: enough for what the operator uses between two resyncs, which is what
one compares with other sizes."""

_QUIET_SECONDS: Final = 10.0
_TIMEOUT: Final = 1800.0
_EFFECT_SECONDS: Final = 15.0
"""Every effect of a lost node shows within this time."""

_LOST_NODE_ATTEMPTS: Final = 3


@dataclass(slots=True)
class FleetBench:
    """A cluster with a fleet and an operator; each method measures one thing."""

    cluster: FleetCluster
    operator: OperatorProcess
    reconcile_log: ReconcileLog
    audit_log: AuditLog
    announce: Callable[[str], None]

    async def measure(self, size: FleetSize, idle_seconds: float) -> FleetSample:
        """Grow the fleet to a size and measure everything."""
        sample = FleetSample(size.nodes, size.pods, size.objects)
        await self._grow(size)
        self.announce("start of the operator")
        await self._measure_start(sample)
        self.announce(f"idle for {idle_seconds:g} s")
        await self._measure_idle(sample, idle_seconds)
        self.announce("a node is lost")
        await self._measure_lost_node(sample)
        self.operator.stop()
        self.reconcile_log.skip()
        sample.load_average = os.getloadavg()[0]
        self.announce(json.dumps(asdict(sample)))
        return sample

    async def _grow(self, size: FleetSize) -> None:
        self.announce(f"growing to {size.nodes:,} nodes, {size.pods:,} pods, {size.objects:,}")
        await self.cluster.grow(size)
        self.announce("the operator creates the children")
        self.operator.launch()
        # Objects without pods are looked at every two minutes: with so many there is no quiet.
        await self._settle(self.cluster.keys, quiet_seconds=0)
        self.announce("the pods start")
        self.reconcile_log.skip()
        await self._settle(await self.cluster.run_pods())
        self.operator.stop()
        self.reconcile_log.skip()
        # Statuses tell of a fleet that has grown meanwhile: the next start writes them anew.
        self.announce("the operator brings the statuses up to date")
        self.operator.launch()
        await self._settle(self.cluster.keys)
        self.operator.stop()
        self.reconcile_log.skip()

    async def _measure_start(self, sample: FleetSample) -> None:
        """From the start of the process until it has reconciled all objects. Nothing has changed
        since the process before it ended."""
        mark, started = self.audit_log.mark(), time.time()
        self.operator.launch()
        await self._settle(self.cluster.keys)
        sample.start_seconds = self.reconcile_log.last - started
        sample.start_reconciles = self.reconcile_log.reconciles.total()
        sample.start_cpu_seconds = cpu_seconds(self.operator.pid)
        sample.start_writes = self._writes(mark).total()
        sample.start_peak_rss_mib = peak_rss_bytes(self.operator.pid) / 2**20

    async def _measure_idle(self, sample: FleetSample, seconds: float) -> None:
        """Nothing changes but the nodes' heartbeats."""
        before = await self._counters()
        self.reconcile_log.skip()
        pid, nodes = self.operator.pid, list(self.cluster.capacity.nodes)
        async with node_heartbeats(self.cluster.client, nodes) as heartbeats:
            await asyncio.sleep(_QUIET_SECONDS)
            mark, sent = self.audit_log.mark(), heartbeats.sent
            use = await watch_cpu(pid, seconds)
            sample.idle_heartbeats = heartbeats.sent - sent
        sample.idle_seconds, sample.idle_cpu_percent = use.seconds, use.percent
        sample.idle_median_cpu_percent = use.median_percent
        sample.idle_fleet_lists = self._count_lists(mark, "nodes")
        writes = self._writes(mark)
        sample.idle_writes = writes.total()
        if writes:
            self.announce(f"writes while idle: {dict(writes)}")
        self.reconcile_log.refresh()
        sample.idle_reconciles = self.reconcile_log.reconciles.total()
        sample.peak_rss_mib = peak_rss_bytes(pid) / 2**20
        added = (await self._counters()).since(before)
        sample.idle_resynced = added.last_resync is not None

    async def _measure_lost_node(self, sample: FleetSample) -> None:
        """A node becomes unreachable. A resync reconciles other objects as well, so the node is
        lost once more where one fell into the time."""
        for _ in range(_LOST_NODE_ATTEMPTS):
            await self._settle(())
            before = await self._counters()
            await self._lose_node(sample)
            if (await self._counters()).since(before).last_resync is None:
                return
            self.announce("a resync fell into the time: losing the node once more")

    async def _lose_node(self, sample: FleetSample) -> None:
        node = self.cluster.busiest_node()
        affected = {owner_key(pod) for pod in self.cluster.pods[node]}
        self.reconcile_log.skip()
        lost_at = time.time()
        self.cluster.set_node_ready(node, ready=False)
        await asyncio.sleep(_EFFECT_SECONDS)
        self.reconcile_log.refresh()
        first = self.reconcile_log.first
        sample.lost_objects = len(affected)
        sample.lost_not_reconciled = len(affected - first.keys())
        sample.lost_others_reconciled = len(first.keys() - affected)
        sample.lost_seconds = max(
            (first[key] - lost_at for key in affected & first.keys()), default=0.0
        )
        self.cluster.set_node_ready(node, ready=True)
        await asyncio.sleep(_EFFECT_SECONDS)

    async def _settle(self, keys: Collection[str], quiet_seconds: float = _QUIET_SECONDS) -> None:
        """Wait until the operator has reconciled these objects, and then nothing for a while."""
        await self.reconcile_log.until_quiet(keys, quiet_seconds, _TIMEOUT)
        if not self.operator.running:
            raise HarnessError(f"operator ended with {self.operator.exit_code}: {self.operator}")

    async def _counters(self) -> OperatorCounters:
        return parse_counters(await asyncio.to_thread(self.operator.metrics))

    def _count_lists(self, mark: int, resource: str) -> int:
        """How often the operator has listed a kind in the whole cluster since, by first pages."""
        return sum(
            event["verb"] == "list"
            and event["objectRef"]["resource"] == resource
            and "namespace" not in event["objectRef"]
            and "continue=" not in event["requestURI"]
            for event in requests_of(USER, self.audit_log.events(mark))
        )

    def _writes(self, mark: int) -> Counter[str]:
        """What the operator has written since, without its Lease."""
        return Counter(map(describe_request, writes_of(USER, self.audit_log.events(mark))))


async def measure(
    stack: Stack,
    admin: Admin,
    operator: OperatorProcess,
    sizes: Sequence[FleetSize],
    idle_seconds: float,
    announce: Callable[[str], None],
    *,
    dra: bool,
) -> list[FleetSample]:
    """Each size in turn, the smallest first."""
    samples = []
    async with open_client(stack.access) as client, open_etcd(stack) as etcd:
        bench = FleetBench(
            FleetCluster(admin, client, etcd, dra),
            operator,
            ReconcileLog(operator.log),
            AuditLog(stack.audit_log),
            announce,
        )
        for size in sizes:
            is_largest = size == sizes[-1]
            seconds = idle_seconds if is_largest else min(idle_seconds, _SMALLER_IDLE_SECONDS)
            samples.append(await bench.measure(size, seconds))
    return samples


def main() -> int:
    """Measure, print, and write the figures."""
    arguments = _parser().parse_args()
    full = FleetSize(arguments.nodes, arguments.pods, arguments.objects)
    idle_seconds = arguments.idle_seconds
    if arguments.short:
        full, idle_seconds = full.part(0.1), idle_seconds / 10
    sizes = [full.part(share) for share in sorted(arguments.shares)]
    console = open_console()

    def announce(line: str) -> None:
        console.print(f"{time.strftime('%H:%M:%S')} {line}", highlight=False)

    load = asdict(full)
    if arguments.dra:
        load |= {"devices_in_slices": full.nodes * GPUS_PER_NODE, "claims": full.pods}
    run = describe_run(load, is_short=arguments.short)
    with fleet_control_plane() as (stack, admin, operator):
        samples = asyncio.run(
            measure(stack, admin, operator, sizes, idle_seconds, announce, dra=arguments.dra)
        )
    report = Report(
        "fleet-dra" if arguments.dra else "fleet",
        run,
        [SUBJECT],
        fleet_figures(samples[-1]),
        [fleet_table(samples)],
        [asdict(sample) for sample in samples],
    )
    print_report(console, report)
    if arguments.figures is not None:
        report.write(arguments.figures)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster.fleet",
        description="Start, memory, idle cost and a lost node with a large fleet. Each figure is"
        " printed next to its bar.",
    )
    parser.add_argument("--nodes", type=int, default=10_000, help="with 8 GPUs each (10000)")
    parser.add_argument("--pods", type=int, default=40_000, help="that hold GPUs (40000)")
    parser.add_argument("--objects", type=int, default=5_000, help="one pod of these each (5000)")
    parser.add_argument(
        "--shares",
        type=float,
        nargs="+",
        default=[1.0],
        help="sizes to measure one after the other, as shares of the above (1.0)",
    )
    parser.add_argument(
        "--dra",
        action="store_true",
        help="ResourceSlices list the GPUs, and each pod holds them by a ResourceClaim",
    )
    parser.add_argument(
        "--idle-seconds",
        type=float,
        default=720.0,
        help="how long the largest size stays idle (720, the longest time between two resyncs);"
        " smaller ones stay so for a minute",
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help="a tenth of the fleet and of the idle time, to try the benchmark: some five minutes",
    )
    parser.add_argument("--figures", type=Path, metavar="FILE", help="write the figures as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(run_cli(main))
