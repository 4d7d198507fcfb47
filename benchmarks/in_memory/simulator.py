"""Twenty-four hours of fleet and load events against the operator's own code, in seconds.

    python -m benchmarks.in_memory.simulator [--seed N] [SCENARIO ...]

tests/simulator/scenarios.py describes the scenarios. Exits with 1 where a promise is
broken: a GPU booked twice, a move too early or during another, a bound on cost passed, a write
without a reason.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from rich.console import Console
from rich.table import Table

from tests.simulator.account import Account
from tests.simulator.day import play
from tests.simulator.scenarios import SCENARIOS

Result = tuple[str, Account, float]
"""A scenario's name, what came of it, and the seconds of the processor that it took."""


def run(name: str, seed: int) -> Result:
    """Play the day of this name."""
    began = time.process_time()
    account = asyncio.run(play(SCENARIOS[name](seed)))
    return name, account, time.process_time() - began


def tell(results: Iterable[Result], console: Console) -> bool:
    """Print a row for each day, then each broken promise; whether there is none."""
    table = Table("24 hours", "GPU-hours", "US$", "moves", "starts", "restarts", box=None)
    for title in ("unanswered, min", "short, replica-h", "scalings", "late", "broken", "CPU s"):
        table.add_column(title, justify="right")
    broken = []
    for name, account, seconds in results:
        violations = [f"{name}: {what}" for what in account.broken]
        broken += violations
        table.add_row(
            name,
            f"{sum(account.gpu_hours.values()):.0f}",
            f"{account.dollars:.0f}",
            ", ".join(f"{count} {reason}" for reason, count in sorted(account.moves.items()))
            or "-",
            str(account.starts),
            str(account.restarts),
            f"{sum(account.unanswered_minutes.values()):.0f}",
            f"{account.short_replica_hours:.1f}",
            str(account.scalings),
            f"{account.late_requests / account.requests:.1%}" if account.requests else "-",
            str(len(violations)),
            f"{seconds:.0f}",
        )
    console.print(table)
    for line in broken:
        console.print(line)
    return not broken


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Days of a fleet against the pure planner.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("scenarios", nargs="*", choices=[[], *SCENARIOS], metavar="SCENARIO")
    options = parser.parse_args(arguments)
    names = options.scenarios or list(SCENARIOS)
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        results = workers.map(partial(run, seed=options.seed), names)
        return int(not tell(results, Console(soft_wrap=True)))


if __name__ == "__main__":
    sys.exit(main())
