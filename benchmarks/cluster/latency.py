"""How fast the operator is next to Go controllers on one control plane: `make bench-cluster`.

    python -m benchmarks.cluster.latency --figures cluster.json

One control plane, one client and one clock for all. With objects present, each controller gets
creates at steady rates, spec changes and a burst, in turns, so that all of them meet the same
minutes of the machine. Each figure stands next to its bar; nothing is asserted. A full run takes
about 25 minutes, `--short` about five.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.cluster.api_client import open_client
from benchmarks.cluster.baselines import CONTROLLERS, TONNAGE, MeasuredController
from benchmarks.cluster.bench_cluster import bench_cluster
from benchmarks.cluster.rounds import ClusterBench, ClusterResults, LoadPlan
from benchmarks.cluster.usage import peak_rss_bytes
from benchmarks.pages.cluster_figures import cluster_figures, cluster_tables
from benchmarks.pages.figures import Report, describe_run
from benchmarks.pages.tables import open_console, print_report
from e2e.harness.admin import Admin
from e2e.harness.audit_log import AuditLog
from e2e.harness.failure import run_cli
from e2e.harness.leader_worker_set import LeaderWorkerSetController
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.stack import Stack
from e2e.nodes.fleet import apply_fleet

_GPUS_PER_NODE: Final = 8


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """A cluster in which all measured controllers run; `pids` are those of all its processes and
    of this one, by name."""

    stack: Stack
    admin: Admin
    operator: OperatorProcess
    pids: dict[str, int]


@contextmanager
def running_cluster(plan: LoadPlan, announce: Callable[[str], None]) -> Iterator[RunningCluster]:
    """A control plane with nodes enough, and all controllers; it ends with the block."""
    namespaces = [controller.namespace for controller in CONTROLLERS]
    with bench_cluster("scale", namespaces) as (stack, admin, root), ExitStack() as running:
        nodes = -(-plan.most_objects // _GPUS_PER_NODE)
        announce(f"{nodes} nodes with {_GPUS_PER_NODE} GPUs each")
        group = {"name": "pool", "accelerator": "mi300x", "count": nodes}
        apply_fleet(stack.access, {"groups": [group]})
        lws = running.enter_context(closing(LeaderWorkerSetController(admin, root / "lws")))
        lws.start()
        operator = running.enter_context(closing(OperatorProcess(stack, root / "operator")))
        operator.start()
        admin.until("the operator to lead", lambda: operator.leads)
        pids = {name: process.pid for name, process in stack.processes.items()}
        pids |= {TONNAGE.process: operator.pid, "lws-controller": lws.pid, "client": os.getpid()}
        yield RunningCluster(stack, admin, operator, pids)


async def measure(bench: ClusterBench, controllers: Sequence[MeasuredController]) -> None:
    """All rounds, each of them for one controller after the other."""
    plan, announce = bench.plan, bench.announce
    for controller in controllers:
        announce(f"{controller.name}: creating the {plan.present:,} objects that are present")
        await bench.fill(controller)
    if TONNAGE in controllers:
        announce(f"Tonnage: idle for {plan.idle_seconds:g} s")
        await bench.idle()
    for rate, seconds in plan.steady:
        for controller in controllers:
            announce(f"{controller.name}: {rate:g} objects a second for {seconds:g} s")
            await bench.steady(controller, rate, seconds)
    for controller in controllers:
        announce(f"{controller.name}: {plan.changes_per_second:g} spec changes a second")
        await bench.change_specs(controller)
    if TONNAGE in controllers:
        announce(f"Tonnage: touching {plan.present:,} unchanged objects")
        await bench.touch()
    for controller in controllers:
        announce(f"{controller.name}: a burst of {plan.burst:,} objects")
        await bench.burst(controller)
        rss = peak_rss_bytes(bench.pids[controller.process])
        bench.results.peak_rss_bytes[controller.name] = rss


async def _run(
    cluster: RunningCluster,
    plan: LoadPlan,
    controllers: Sequence[MeasuredController],
    announce: Callable[[str], None],
) -> ClusterResults:
    async with open_client(cluster.stack.access) as client:
        bench = ClusterBench(
            cluster.admin,
            client,
            plan,
            cluster.pids,
            AuditLog(cluster.stack.audit_log),
            cluster.operator,
            announce,
        )
        await measure(bench, controllers)
        return bench.results


def main() -> int:
    """Measure, print, and write the figures."""
    arguments = _parser().parse_args()
    plan = replace(LoadPlan(), replicas=arguments.replicas)
    if arguments.short:
        plan = plan.shortened()
    controllers = [
        controller
        for controller in CONTROLLERS
        if not arguments.only or controller.name in arguments.only
    ]
    console, started = open_console(), time.monotonic()

    def announce(line: str) -> None:
        console.print(f"{time.strftime('%H:%M:%S')} {line}", highlight=False)

    run = describe_run(plan.describe(), is_short=arguments.short)
    with running_cluster(plan, announce) as cluster:
        results = asyncio.run(_run(cluster, plan, controllers, announce))
    report = Report(
        "cluster",
        run | {"other_cores": results.other_cores},
        [controller.name for controller in controllers],
        cluster_figures(results, plan),
        cluster_tables(results, plan),
    )
    print_report(console, report)
    if arguments.figures is not None:
        report.write(arguments.figures)
    announce(f"done after {(time.monotonic() - started) / 60:.1f} minutes")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster.latency",
        description="Latency and cost of Tonnage next to LeaderWorkerSet and the Deployment"
        " controller, on one control plane. Each figure is printed next to its bar.",
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help="a tenth of the objects and durations, to try the benchmark: some five minutes",
    )
    parser.add_argument("--figures", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument(
        "--replicas",
        type=int,
        default=0,
        help="of each object (0: with pods, the machine that plays them would be measured)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="CONTROLLER",
        choices=[controller.name for controller in CONTROLLERS],
        default=[],
        help="measure these controllers only: Deployment, LWS, Tonnage",
    )
    return parser


if __name__ == "__main__":
    sys.exit(run_cli(main))
