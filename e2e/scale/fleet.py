"""A large fleet: how soon an operator knows it, what it takes, and who hears of a lost node.

    python -m e2e.scale.fleet --nodes 10000 --pods 40000 --objects 5000 --shares 1

On the real control plane. Nodes and pods are written by the benchmark, with all that is in real
ones; scheduler, controller-manager and KWOK are stopped meanwhile, and what they would do is done
here. The objects' children are the operator's own work, in a first run that is not measured. With
several `--shares` the fleet grows from one to the next, and each is measured. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console

from e2e.admin import Admin
from e2e.audit_log import AuditLog
from e2e.failure import run_cli
from e2e.models import inference
from e2e.operator_process import USER, OperatorProcess
from e2e.rest import Json
from e2e.scale.api_client import ApiClient, open_client
from e2e.scale.bench_cluster import bench_cluster
from e2e.scale.etcd_store import EtcdStore, open_etcd
from e2e.scale.fleet_figures import Figures, figures_table
from e2e.scale.fleet_objects import NEIGHBOURS, Room, conditions_of, nodes_of, served
from e2e.scale.heartbeats import beating
from e2e.scale.reconcile_log import ReconcileLog
from e2e.scale.usage import cpu_seconds, peak_rss_bytes, watch_cpu
from e2e.stack import Stack
from tonnage.api.names import LABEL_OWNER

_PLAYED: Final = ("kube-controller-manager", "kube-scheduler", "kwok")
"""Servers that are stopped: what they do, the benchmark does."""

_OBJECTS_IN_A_NAMESPACE: Final = 100
_PARALLEL: Final = 16
_SHORT_REST_SECONDS: Final = 60.0
"""Long enough for what it takes between lists, which is what is compared with other sizes."""

_QUIET_SECONDS: Final = 10.0
_TIMEOUT: Final = 1800.0
_MODEL: Final = "llama-3.1-8b"  # fits on one GPU
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_LONGEST_ECHO_SECONDS: Final = 15.0
"""What follows of a lost node, follows within this time."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a fleet."""

    nodes: int
    pods: int
    objects: int

    def share(self, share: float) -> Size:
        """A part of it."""
        return Size(
            round(self.nodes * share), round(self.pods * share), round(self.objects * share)
        )


@dataclass(slots=True)
class Bench:
    """A cluster, and how far it is filled."""

    admin: Admin
    client: ApiClient
    etcd: EtcdStore
    operator: OperatorProcess
    journal: ReconcileLog
    audit: AuditLog
    announce: Callable[[str], None]
    size: Size = Size(0, 0, 0)
    room: Room = field(default_factory=Room)
    objects: list[tuple[str, str]] = field(default_factory=list)
    pods: dict[str, list[Json]] = field(default_factory=dict)
    """Those of our objects, by node."""

    @property
    def keys(self) -> list[str]:
        """The objects as the operator's log names them."""
        return [f"{namespace}/{name}" for namespace, name in self.objects]

    async def grow(self, size: Size) -> None:
        """Add what is missing to a size, and let the operator make the children of it."""
        before, self.size = self.size, size
        nodes = nodes_of(size.nodes, before.nodes)
        self.room.join(nodes)
        neighbours = (size.pods - size.objects) - (before.pods - before.objects)
        self.announce(f"{len(nodes):,} nodes and {neighbours:,} pods of others")
        await self.etcd.put(nodes)
        await self.etcd.put(self.room.neighbours(neighbours, nodes))
        await self._declare(size.objects)
        self.announce("the operator makes the children")
        known = len(self.pods)
        self.operator.launch()
        await self._rest(self.keys)
        self.announce("all children are there; their pods run")
        self.journal.skip()
        await self._rest(await self._play())
        self.operator.stop()
        self.journal.skip()
        self.announce(f"settled; pods of ours on {len(self.pods) - known:,} more nodes")

    async def cold_start(self, found: Figures) -> None:
        """From the start of the process to all objects looked at and nothing wanted."""
        mark, started = self.audit.mark(), time.time()
        self.operator.launch()
        await self._rest(self.keys)
        found.cold_start_seconds = self.journal.last - started
        found.cold_start_reconciles = self.journal.reconciles.total()
        found.cold_start_cpu_seconds = cpu_seconds(self.operator.pid)
        found.cold_start_writes = sum(self._writes(mark).values())
        found.peak_rss_mib = peak_rss_bytes(self.operator.pid) / 2**20

    async def stay(self, found: Figures, seconds: float) -> None:
        """Nothing changes but the nodes' heartbeats."""
        self.journal.skip()
        mark, pid = self.audit.mark(), self.operator.pid
        async with beating(self.client, list(self.room.nodes)) as beats:
            await asyncio.sleep(_QUIET_SECONDS)
            listed, sent = self.audit.mark(), beats.sent
            rest = await watch_cpu(pid, seconds)
            found.rest_heartbeats = beats.sent - sent
        found.rest_seconds, found.rest_cpu_percent = rest.seconds, rest.percent
        found.rest_between_lists_percent = rest.median_percent
        lists = self._lists(listed)
        found.rest_resyncs, found.rest_fleet_lists = lists["inferencedeployments"], lists["nodes"]
        self.journal.refresh()
        writes = self._writes(mark)
        found.rest_writes = sum(writes.values())
        found.rest_reconciles = self.journal.reconciles.total()
        if writes:
            self.announce(f"written at rest: {dict(writes)}")
        found.rest_peak_rss_mib = peak_rss_bytes(pid) / 2**20

    async def lose_node(self, found: Figures) -> None:
        """A node goes silent, and the node controller says so, and that its pods are not ready."""
        await self._between_resyncs()
        node = max(self.pods, key=lambda name: len(self.pods[name]))
        concerned = {_owner(pod) for pod in self.pods[node]}
        self.journal.skip()
        lost = time.time()
        self._mark(node, ready=False)
        await asyncio.sleep(_LONGEST_ECHO_SECONDS)
        self.journal.refresh()
        late = concerned - self.journal.first.keys()
        found.lost_concerned = len(concerned)
        found.lost_not_seen = len(late)
        found.lost_others = len(self.journal.first.keys() - concerned)
        found.lost_seconds = max(
            (self.journal.first[key] - lost for key in concerned - late), default=0.0
        )
        self._mark(node, ready=True)
        await asyncio.sleep(_LONGEST_ECHO_SECONDS)

    async def _between_resyncs(self) -> None:
        """Wait until no resync is under way: it looks at others too. Raises HarnessError."""
        while True:
            mark = self.audit.mark()
            await asyncio.sleep(_QUIET_SECONDS)
            await self._rest(())
            if not self._lists(mark):
                return

    def _mark(self, node: str, *, ready: bool) -> None:
        taints = [] if ready else [{"key": _UNREACHABLE, "effect": "NoSchedule"}]
        told = conditions_of(ready=ready, heartbeat="2026-11-22T08:00:00Z")
        self.admin.patch("nodes", node, {"status": {"conditions": told}}, subresource="status")
        self.admin.patch("nodes", node, {"spec": {"taints": taints}})
        for pod in self.pods[node]:
            metadata, conditions = pod["metadata"], pod["status"]["conditions"]
            marked = [
                {**one, "status": str(ready)} if one["type"] == "Ready" else one
                for one in conditions
            ]
            self.admin.patch(
                "pods",
                metadata["name"],
                {"status": {"conditions": marked}},
                metadata["namespace"],
                subresource="status",
            )

    async def _rest(self, keys: Collection[str]) -> None:
        """Wait until these objects, of which there is news, have been looked at, and then none."""
        await self.journal.until_quiet(keys, _QUIET_SECONDS, _TIMEOUT)

    async def _declare(self, count: int) -> None:
        resource, gate = self.admin.resource("inferencedeployments"), asyncio.Semaphore(_PARALLEL)

        async def declare(namespace: str, name: str) -> None:
            async with gate:
                body = inference(name, _MODEL, max_model_len=8192)
                await self.client.create(resource.path(namespace), body)

        added = [_place(number) for number in range(len(self.objects), count)]
        for namespace in sorted(
            {namespace for namespace, _ in added} - {namespace for namespace, _ in self.objects}
        ):
            self.admin.rest.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        async with asyncio.TaskGroup() as group:
            for namespace, name in added:
                group.create_task(declare(namespace, name))
        self.objects += added

    async def _play(self) -> set[str]:
        """What the Deployment controller, the scheduler and kubelets would do, for the objects that
        are given back."""
        placed = {_owner(pod) for pods in self.pods.values() for pod in pods}
        deployments = [
            found
            for found in self.admin.items("deployments", everywhere=True)
            if _owner(found) not in placed
        ]
        pods = [self.room.pod_of(found) for found in deployments]
        for pod in pods:
            self.pods.setdefault(pod["spec"]["nodeName"], []).append(pod)
        await self.etcd.put(pods)
        await self.etcd.put(map(served, deployments))
        return {_owner(found) for found in deployments}

    def _lists(self, mark: int) -> Counter[str]:
        """The kinds that the operator listed whole since, each as often as it did: by the first of
        the pages."""
        return Counter(
            event["objectRef"]["resource"]
            for event in self.audit.events(mark)
            if event["user"]["username"] == USER
            and event["verb"] == "list"
            and "namespace" not in event["objectRef"]
            and "continue=" not in event["requestURI"]
        )

    def _writes(self, mark: int) -> Counter[str]:
        """What the operator wrote since, but for its lease."""
        return Counter(
            f"{event['verb']} {event['objectRef']['resource']}"
            for event in self.audit.events(mark)
            if event["user"]["username"] == USER
            and event["verb"] not in ("get", "list", "watch")
            and event["objectRef"]["resource"] != "leases"
        )


def _place(number: int) -> tuple[str, str]:
    return f"team-{number // _OBJECTS_IN_A_NAMESPACE:03}", f"model-{number:05}"


def _owner(body: Json) -> str:
    metadata = body["metadata"]
    return f"{metadata['namespace']}/{metadata['labels'][LABEL_OWNER]}"


@contextmanager
def cluster() -> Iterator[tuple[Stack, Admin, OperatorProcess]]:
    """A control plane of which only etcd and the API server run."""
    with bench_cluster("fleet", [NEIGHBOURS]) as (stack, admin, root):
        for name in _PLAYED:
            stack.processes[name].send(signal.SIGSTOP)
        try:
            with closing(OperatorProcess(stack, root / "operator")) as operator:
                yield stack, admin, operator
        finally:
            for name in _PLAYED:
                stack.processes[name].send(signal.SIGCONT)


async def measure(
    stack: Stack,
    admin: Admin,
    operator: OperatorProcess,
    sizes: list[Size],
    rest_seconds: float,
    announce: Callable[[str], None],
) -> list[Figures]:
    """Each size in turn, the smallest first."""
    found = []
    async with open_client(stack.access) as client, open_etcd(stack) as etcd:
        journal, audit = ReconcileLog(operator.log), AuditLog(stack.audit_log)
        bench = Bench(admin, client, etcd, operator, journal, audit, announce)
        for size in sizes:
            await bench.grow(size)
            figures = Figures(size.nodes, size.pods, size.objects)
            announce(f"cold start with {size.nodes:,} nodes")
            await bench.cold_start(figures)
            seconds = rest_seconds if size == sizes[-1] else min(rest_seconds, _SHORT_REST_SECONDS)
            announce(f"at rest for {seconds:g} s")
            await bench.stay(figures, seconds)
            announce("a node is lost")
            await bench.lose_node(figures)
            operator.stop()
            journal.skip()
            figures.load_average = os.getloadavg()[0]
            announce(json.dumps(asdict(figures)))
            found.append(figures)
    return found


def main() -> int:
    """Measure and print."""
    arguments = _parser().parse_args()
    whole = Size(arguments.nodes, arguments.pods, arguments.objects)
    sizes = [whole.share(share) for share in sorted(arguments.shares)]
    console = Console()

    def announce(line: str) -> None:
        console.print(f"{time.strftime('%H:%M:%S')} {line}", highlight=False)

    with cluster() as (stack, admin, operator):
        found = asyncio.run(
            measure(stack, admin, operator, sizes, arguments.rest_seconds, announce)
        )
    console.print(figures_table(found))
    if arguments.figures is not None:
        lines = ",\n".join(json.dumps(asdict(each)) for each in found)
        arguments.figures.write_text(f"[\n{lines}\n]\n", "utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scale.fleet",
        description="Cold start, rest and a lost node with a large fleet.",
    )
    parser.add_argument("--nodes", type=int, default=10_000, help="with 8 GPUs each (10000)")
    parser.add_argument("--pods", type=int, default=40_000, help="that hold GPUs (40000)")
    parser.add_argument("--objects", type=int, default=5_000, help="one pod of these each (5000)")
    parser.add_argument(
        "--shares", type=float, nargs="+", default=[1.0], help="of all that, one after the other"
    )
    parser.add_argument(
        "--rest-seconds",
        type=float,
        default=600.0,
        help="of watching the largest rest (600); a minute is enough for the others",
    )
    parser.add_argument("--figures", type=Path, help="file for the figures, as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(run_cli(main))
