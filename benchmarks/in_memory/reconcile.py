"""What one reconcile asks of the API server, and what it takes of a processor.

    python -m benchmarks.in_memory.reconcile [--objects N] [--profile]

On the API in memory, so that neither the network nor a server is in the figures: a new object, the
same after the events of what the operator wrote itself, and one that has converged.
Times are those of the processor, the API in memory included.
"""

import argparse
import asyncio
import cProfile
import pstats
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from tests.support.api_calls import WRITES
from tests.support.cluster import MI300X, NAMESPACE, Cluster, spec_of
from tonnage.reconcile.key import Key


class Bench:
    """Objects of one GPU each, on nodes with capacity for all of them."""

    def __init__(self, objects: int, profiler: cProfile.Profile | None) -> None:
        self.keys = [Key(NAMESPACE, f"object-{number}") for number in range(objects)]
        self.cluster = Cluster({**MI300X, "count": -(-objects // 8)})
        self.profiler = profiler
        for key in self.keys:
            self.cluster.apply(key.name, spec_of())
        self.table = Table("reconcile", "reads", "writes", "CPU ms p50", "CPU ms p99")

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
        await self.cluster.settle()
        await self.measure("converged", lambda _: None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Reads, writes and CPU time of a reconcile.")
    parser.add_argument("--objects", type=int, default=50)
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    options = parser.parse_args(arguments)
    profiler = cProfile.Profile() if options.profile else None
    bench = Bench(options.objects, profiler)
    asyncio.run(bench.run())
    Console().print(bench.table)
    if profiler is not None:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    return 0


if __name__ == "__main__":
    sys.exit(main())
