"""What a scrape of the operator's metrics costs, and what recording a status costs.

    python -m benchmarks.in_memory.scrape

A fleet of 10,000 nodes in 200 pools, and 5,000 objects whose statuses list all 200. A scrape is
made in the event loop, so nothing else is done for as long as it takes. Times are those of the
processor, so that others on the machine count little. Exits with 1 where a scrape holds up the loop
for too long.
"""

import statistics
import sys
import time
from collections.abc import Callable

from prometheus_client import generate_latest

from benchmarks.in_memory.fleet import Bench
from tests.support.load.exposition import read_series
from tests.support.specs.statuses import conditions, placement, status
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.controller.metrics.registry import Metrics
from tonnage.controller.metrics.statuses import StatusMetrics
from tonnage.kube.rights import PermissionTracker
from tonnage.placement.reasons import RejectedReason
from tonnage.reconcile.key import Key

NODES, POOLS, OBJECTS, EVENTS = 10_000, 200, 5_000, 200
MOST_SECONDS = 0.25


def statuses(accelerators: list[str]) -> list[InferenceDeploymentStatus]:
    """Some statuses, each of an object that waits and of one that runs."""
    reasons = list(map(str, RejectedReason))
    rejected = [
        {
            "pool": f"p-{n}",
            "verdict": "Rejected",
            "reason": reasons[n % len(reasons)],
            "message": "",
        }
        for n in range(POOLS)
    ]
    return [
        status(
            conditions=conditions(Placed="False/InsufficientGPUs", Ready="False/NotPlaced"),
            placements=[placement(accelerator, measuredKvCacheTokens=900 + number)],
            candidates=rejected,
        )
        for number, accelerator in enumerate(accelerators)
    ]


def seconds_of(work: Callable[[], object]) -> float:
    """How long it keeps the processor busy."""
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> int:
    """Print the figures."""
    bench = Bench(NODES, POOLS)
    accelerators = sorted(bench.world.catalog.accelerators)
    book = StatusMetrics(frozenset(accelerators))
    metrics = Metrics(book, bench.state.view, PermissionTracker())
    reported = statuses(accelerators)

    def learn() -> None:
        for number in range(OBJECTS):
            book.record(Key("team", f"model-{number}"), reported[number % len(reported)])

    def scrape() -> bytes:
        return generate_latest(metrics.registry)

    learning = seconds_of(learn) / OBJECTS
    book.complete()
    series = len(read_series(scrape().decode()))
    at_rest = statistics.median(seconds_of(scrape) for _ in range(20))
    changed = []
    for _ in range(10):
        for _ in range(EVENTS):
            bench.cordon()
        changed.append(seconds_of(scrape))
    print(f"{NODES:,} nodes in {POOLS} pools, {OBJECTS:,} objects: {series:,} series")
    print(f"a status of {POOLS} candidates recorded {learning * 1e6:8.0f} us")
    print(f"a scrape                       {at_rest * 1e3:8.1f} ms")
    print(f"a scrape after {EVENTS} node events {statistics.median(changed) * 1e3:8.1f} ms")
    return 1 if max(at_rest, *changed) > MOST_SECONDS else 0


if __name__ == "__main__":
    sys.exit(main())
