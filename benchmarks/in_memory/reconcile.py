"""What one reconcile asks of the API server, and what it takes of a processor.

    python -m benchmarks.in_memory.reconcile [--objects N] [--nodes N] [--dra] [--profile]

On the API in memory, so that neither the network nor a server is in the figures: a new object, the
same after the events of what the operator wrote itself, one that has converged, and the first
reconcile of each after a start of the operator. With `--nodes`, the fleet is a part of that of
`benchmarks.cluster.fleet`, where pods of other workloads use GPUs; with `--dra`, ResourceSlices
list them. Times are those of the processor, the API in memory included.
"""

import argparse
import asyncio
import cProfile
import gc
import pstats
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import _lru_cache_wrapper

from rich.console import Console
from rich.table import Table

from benchmarks.cluster.fleet_objects import (
    FreeCapacity,
    available_deployment,
    fleet_device_classes,
    fleet_nodes,
    fleet_slices,
)
from tests.support.api_server.api_calls import WRITES
from tests.support.in_memory.cluster import NAMESPACE, Cluster, spec_of
from tonnage.engines.inputs import RenderSettings
from tonnage.kube.kinds import (
    DEPLOYMENTS,
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tonnage.reconcile.key import Key
from tonnage.reconcile.scheduling.context import Dependencies

_OTHER_PODS_PER_NODE = 3


class Bench:
    """Objects of one GPU each, on nodes with capacity for all of them."""

    def __init__(
        self, objects: int, nodes: int, profiler: cProfile.Profile | None, *, dra: bool
    ) -> None:
        self.keys = [Key(NAMESPACE, f"object-{number}") for number in range(objects)]
        self.cluster = Cluster()
        self.capacity = FreeCapacity()
        self.profiler = profiler
        self._add_fleet(nodes, dra=dra)
        for key in self.keys:
            self.cluster.apply(key.name, spec_of())
        self.table = Table("reconcile", "reads", "writes", "CPU ms p50", "CPU ms p99")

    def _add_fleet(self, count: int, *, dra: bool) -> None:
        api, nodes = self.cluster.api, fleet_nodes(count, dra=dra)
        self.capacity.add_nodes(nodes)
        if dra:
            slices = list(fleet_slices(nodes))
            self.capacity.add_slices(slices)
            for body in fleet_device_classes(slices):
                api.restore(DEVICE_CLASSES, body)
            for body in slices:
                api.restore(RESOURCE_SLICES, body)
        for body in nodes:
            api.restore(NODES, body)
        for pod in self.capacity.other_pods(count * _OTHER_PODS_PER_NODE, nodes):
            api.restore(PODS, pod)
        self._put_claims()
        self.cluster.watch()

    def _put_claims(self) -> None:
        claims, self.capacity.claims = self.capacity.claims, []
        for body in claims:
            self.cluster.api.restore(RESOURCE_CLAIMS, body)

    def run_pods(self) -> None:
        """Do what controllers, the scheduler and kubelets would do for the new Deployments."""
        api = self.cluster.api
        for deployment in api.objects(DEPLOYMENTS):
            api.restore(PODS, self.capacity.pod_of(deployment))
            api.put(DEPLOYMENTS, available_deployment(deployment))
        self._put_claims()

    def restart(self) -> None:
        """Start the operator anew: it has listed all objects, and nothing is cached."""
        for cached in gc.get_objects():
            if isinstance(cached, _lru_cache_wrapper):
                cached.cache_clear()
        self.cluster.world = Dependencies(self.cluster.world.catalog, RenderSettings())
        self.cluster.start_operator()
        gc.collect()
        gc.freeze()

    async def measure(self, what: str, prepare: Callable[[Key], object]) -> None:
        """Reconcile every object once; `prepare` is not counted."""
        taken, calls = [], Counter[bool]()
        for key in self.keys:
            prepare(key)
            known, started = len(self.cluster.api.calls), time.thread_time()
            if self.profiler is not None:
                self.profiler.enable()
            await self.cluster.reconciler.reconcile(key)
            if self.profiler is not None:
                self.profiler.disable()
            taken.append((time.thread_time() - started) * 1e3)
            calls.update(call.verb in WRITES for call in self.cluster.api.calls[known:])
        shown = (statistics.median(taken), statistics.quantiles(taken, n=100)[98])
        mean = (f"{calls[is_write] / len(self.keys):.2f}" for is_write in (False, True))
        self.table.add_row(what, *mean, *(f"{each:.2f}" for each in shown))

    async def run(self) -> None:
        """All of it, in the order in which an object lives through it."""
        self.cluster.watch()
        await self.measure("of a new object", lambda _: None)
        await self.measure("after its own writes", lambda _: self.cluster.watch())
        self.run_pods()
        self.cluster.watch()
        for key in self.keys:
            await self.cluster.reconciler.reconcile(key)
        self.cluster.watch()
        await self.measure("converged", lambda _: None)
        self.restart()
        await self.measure("first after a start", lambda _: None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Reads, writes and CPU time of a reconcile.")
    parser.add_argument("--objects", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--dra", action="store_true", help="GPUs by Dynamic Resource Allocation")
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    options = parser.parse_args(arguments)
    profiler = cProfile.Profile() if options.profile else None
    bench = Bench(options.objects, options.nodes, profiler, dra=options.dra)
    asyncio.run(bench.run())
    Console().print(bench.table)
    if profiler is not None:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    return 0


if __name__ == "__main__":
    sys.exit(main())
