"""How many replicas of one split hold the workload, and how fast one of them then is.

Algorithm. A replica holds at once as many typical requests as its KV cache has room for, and no
more than vLLM schedules (max_num_seqs). With latency targets it may hold only as many as are
estimated to keep to them; both latencies grow with the batch, so that the largest batch that does
is found by bisection. Without `spec.replicas` there are as many replicas as then hold all requests,
between `scaling.minReplicas` and `scaling.maxReplicas`; with it, each has its share of them,
whatever the targets say.

Once the load is measured (`scaling.targets`), it says how many replicas there are on the pool where
it was measured. On another there are as many as generate the same at their fullest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Final

from tonnage.fit.bisection import largest
from tonnage.placement.latency import keeps_to
from tonnage.placement.load import Demanded, FullReplica, Load
from tonnage.throughput.model import ThroughputEstimate

Estimate = Callable[[int], ThroughputEstimate | None]
"""The estimate of one replica that so many requests at once fall to, None where figures lack."""

_PARTS: Final = 100
"""Parts of a replica that are told apart: less than one may come of tokens a second being rounded
in between."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """So many replicas; `estimate` is that of one with its share of the requests, `note` says that
    they do not hold all requests at once, where that is so. `needed` is how many the measured load
    needs, not rounded; None where it is not followed."""

    count: int
    estimate: ThroughputEstimate | None
    note: str | None
    needed: Fraction | None = None


def fill_replica(
    load: Load, most_at_once: int, max_num_seqs: int, estimate: Estimate
) -> FullReplica | None:
    """A replica at its fullest, by which replicas of another pool are counted; None where the load
    is not to be followed."""
    if not load.follows_load:
        return None
    batch = _largest_batch(load, most_at_once, estimate)
    full, alone = estimate(batch), estimate(1)
    if full is None or alone is None:
        return FullReplica(batch, max_num_seqs, None)
    slower = full.time_per_output_token_seconds / alone.time_per_output_token_seconds - 1
    growth = max(0.0, slower) / (batch - 1) if batch > 1 else None
    return FullReplica(batch, max_num_seqs, full.tokens_per_second, growth)


def count_replicas(
    load: Load, most_at_once: int, estimate: Estimate, full: FullReplica | None = None
) -> Replicas:
    """The replicas that a load needs or is given, each holding `most_at_once` requests at most."""
    if load.replicas is not None:
        count, bound = load.replicas, f"spec.replicas is {load.replicas}"
        note = _tell_queueing(load, count, most_at_once, bound)
        return Replicas(count, estimate(load.share(count)), note)
    most = min(most_at_once, load.workload.concurrency)
    needed = load.share(_largest_batch(load, most, estimate))
    if load.demanded is not None:
        alike = _count_alike(load.demanded, full)
        if alike > 0:
            alike = max(Fraction(load.min_replicas), min(Fraction(load.max_replicas), alike))
        # Whether it keeps to the targets must not depend on how many there are at the moment.
        return Replicas(ceil(alike), estimate(load.share(needed)), None, alike)
    count = max(load.min_replicas, min(load.max_replicas, needed))
    bound = f"spec.scaling.maxReplicas is {load.max_replicas}"
    note = _tell_queueing(load, count, most_at_once, bound)
    return Replicas(count, estimate(load.share(count)), note)


def _count_alike(demanded: Demanded, full: FullReplica | None) -> Fraction:
    """Replicas that generate what those generate that the load asks for, in parts of one."""
    here = full.tokens_per_second if full else None
    if here is None or demanded.tokens_per_second is None:
        return Fraction(demanded.replicas)
    alike = demanded.replicas * demanded.tokens_per_second / here
    return Fraction(floor(alike * _PARTS), _PARTS)


def _largest_batch(load: Load, most: int, estimate: Estimate) -> int:
    """Requests that one replica may hold at once, at least 1 even where that is too slow."""
    targets = load.workload.latency_targets

    def keeps(batch: int) -> bool:
        found = estimate(batch)
        return found is None or keeps_to(targets, found)

    return max(1, largest(keeps, most)) if targets.are_set else most


def _tell_queueing(load: Load, count: int, most_at_once: int, bound: str) -> str | None:
    held, wanted = count * most_at_once, load.workload.concurrency
    if count == 0 or held >= wanted:
        return None
    return (
        f"holds {held} of {wanted} requests at once, {most_at_once} a replica; the others queue"
        f" ({bound})"
    )
