"""What a batch placed object by object costs against the best assignment there is.

    python -m benchmarks.in_memory.optimum [--fleets N] [--objects N] [--seed S]

For each random fleet the objects are placed one after another by the operator's own code. Those
that get GPUs for all their replicas are compared with the least that any assignment of the very
same objects to the whole fleet costs: the bound of an integer program (exact node-level packing, as
tensor-parallel sizes divide one another), so a gap printed is never smaller than the true one. An
object that was given only part of its replicas counts as not placed. Then `plan --optimize` is
asked, and what the same code makes of its answer is compared in the same way.

Exits with 1 where the gap is more than 2 % in the median or 10 % at worst after --optimize, or
where --optimize places fewer objects or costs more than the sequence did.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from benchmarks.in_memory.batches import RandomBatch, random_batch
from tests.support.fleets.placing import CATALOG
from tonnage.fleet.fleet import build_pools
from tonnage.placement.batches.assignment import Batch, assign
from tonnage.placement.batches.best_options import find_best_options
from tonnage.placement.cache import PlacementCache

MEDIAN_BAR, WORST_BAR = 0.02, 0.10


@dataclass(frozen=True, slots=True)
class Compared:
    """One fleet: objects placed and the relative cost above the optimum of these same objects.

    `load` is the share of the free GPUs that the optimum takes.
    """

    seed: int
    objects: int
    placed: int
    placeable: int
    gap: float
    placed_after: int
    gap_after: float
    load: float
    pins: int
    seconds: float


def compare(seed: int, objects: int) -> Compared:
    started = time.monotonic()
    batch = random_batch(seed, objects)
    assignment, memory = assign(batch.requests, batch.fleet, CATALOG), PlacementCache()
    pools = build_pools(batch.fleet, CATALOG)
    best = find_best_options(batch.requests, pools, CATALOG, {}, memory)
    taken = sum(option.gpus for option in best.taken.values())
    return Compared(
        seed=seed,
        objects=objects,
        placed=len(assignment.before.fully_placed),
        placeable=len(best.taken),
        gap=_gap(assignment.before, batch, memory),
        placed_after=len(assignment.after.fully_placed),
        gap_after=_gap(assignment.after, batch, memory),
        load=taken / sum(pool.free for pool in pools),
        pins=len(assignment.pins),
        seconds=time.monotonic() - started,
    )


def _gap(placed: Batch, batch: RandomBatch, memory: PlacementCache) -> float:
    """How much more the objects placed whole cost than they would at best, as a share."""
    whole = placed.fully_placed
    same = [request for request in batch.requests if request.owner in whole]
    best = find_best_options(same, build_pools(batch.fleet, CATALOG), CATALOG, {}, memory)
    return float(placed.cost_per_hour) / best.cost_bound - 1 if best.cost_bound else 0.0


def report(fleets: Sequence[Compared]) -> int:
    """Print the figures; 1 when a bar is missed."""
    roomy = [one for one in fleets if one.placeable == one.objects]
    print(f"fleets                            {len(fleets)}, {fleets[0].objects} objects each")
    print(f"  with capacity for all           {len(roomy)}")
    print(f"  all placed in sequence          {sum(one.placed == one.objects for one in fleets)}")
    _tell("cost above the optimum, in sequence", [one.gap for one in fleets])
    _tell("  fleets with capacity for all    ", [one.gap for one in roomy])
    for least, most in pairwise((0.0, 0.25, 0.5, 0.75, 1.01)):
        gaps = [one.gap for one in fleets if least <= one.load < most]
        _tell(
            f"  {len(gaps):3} where the optimum takes {least:.0%} to"
            f" {min(most, 1):.0%} of the GPUs",
            gaps,
        )
    _tell("cost above the optimum, optimized  ", [one.gap_after for one in fleets])
    lacking = sum(one.placeable - one.placed for one in fleets)
    left = sum(one.placeable - one.placed_after for one in fleets)
    print(f"objects that would have a place and have none: {lacking} in sequence, {left} optimized")
    moved = [one.pins for one in fleets if one.pins]
    print(f"fleets where --optimize offers a better assignment: {len(moved)}", end="")
    print(f", placements to set: median {statistics.median(moved):g}" if moved else "")
    print(f"seconds a fleet                   median {_median(one.seconds for one in fleets):.2f}")
    worst = sorted(fleets, key=lambda one: -one.gap)[:5]
    print("worst in sequence:", *(f"seed {one.seed}: {one.gap:.1%}" for one in worst), sep="\n  ")
    return int(_missed(fleets))


def _missed(fleets: Sequence[Compared]) -> bool:
    after = [one.gap_after for one in fleets]
    worse = [one for one in fleets if one.placed_after < one.placed]
    return bool(worse) or statistics.median(after) > MEDIAN_BAR or max(after) > WORST_BAR


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _tell(what: str, gaps: Sequence[float]) -> None:
    if not gaps:
        return
    ninth = sorted(gaps)[max(0, len(gaps) * 9 // 10 - 1)]
    middle = statistics.median(gaps)
    print(f"{what} median {middle:.2%}, p90 {ninth:.2%}, worst {max(gaps):.2%}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Sequential placement against the optimum.")
    parser.add_argument("--fleets", type=int, default=200)
    parser.add_argument("--objects", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the first fleet")
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + options.fleets)
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        return report(list(workers.map(partial(compare, objects=options.objects), seeds)))


if __name__ == "__main__":
    sys.exit(main())
