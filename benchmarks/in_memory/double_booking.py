"""How often a GPU is promised twice in random histories.

    python -m benchmarks.in_memory.double_booking [--histories N] [--seed S]
    python -m benchmarks.in_memory.double_booking --real [--histories N] [--seed S]

tests/support/fleets/histories.py describes what happens in a history and what counts as a double
booking for the control plane in memory, and in e2e/histories.py for the real one. Exits with 1
where there is any, or where operator and controllers never came to rest.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.support.faults.promise_book import Verdict
from tests.support.fleets.histories import run_history


def run_one(seed: int) -> tuple[int, Verdict]:
    return seed, asyncio.run(run_history(seed))


def report(verdicts: Iterable[tuple[int, Verdict]], where: str) -> int:
    """Print the figures; 1 when a GPU was booked twice or something never came to rest."""
    started, histories, total = time.monotonic(), 0, Verdict()
    for seed, verdict in verdicts:
        histories += 1
        total.add(verdict)
        for booking in verdict.double_bookings:
            print(f"seed {seed}: {booking}")
    print(f"histories {where}: {histories}")
    print(f"steps: {total.steps}")
    print(f"promises checked: {total.promises}")
    print(f"replicas that wait for a block because the free GPUs are scattered: {total.scattered}")
    print(f"times that the cluster did not come to rest: {total.restless}")
    print(f"double bookings: {len(total.double_bookings)}")
    print(f"seconds: {time.monotonic() - started:.0f}")
    return int(bool(total.double_bookings) or total.restless > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="GPUs promised twice in random histories.")
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first history")
    parser.add_argument("--real", action="store_true", help="on a control plane started for it")
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + options.histories)
    if options.real:
        from e2e.histories import run_histories  # needs the binaries of a control plane

        return report(run_histories(seeds), "on a real control plane")
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        return report(workers.map(run_one, seeds, chunksize=5), "in memory")


if __name__ == "__main__":
    sys.exit(main())
