"""Counts the replicas of one parallelism that hold the workload, and estimates their speed.

Algorithm. A replica holds as many concurrent typical requests as fit in its KV cache, and no more
than the engine schedules (max_num_seqs). With latency targets it may hold only as many as are
estimated to meet them; both latencies grow with the batch, so bisection finds the largest batch
that does.
Without `spec.replicas` there are as many replicas as hold all requests that way, between
`scaling.minReplicas` and `scaling.maxReplicas`; with it, each holds its part of them, whatever the
targets are.

Once the load is measured (`scaling.targets`), it determines the replicas on the pool where it was
measured. On another pool there are as many as generate the same number of tokens when full.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Final

from tonnage.fit.bisection import largest
from tonnage.placement.filters.latency import meets_targets
from tonnage.placement.load import Demanded, FullReplica, Load
from tonnage.throughput.model import ThroughputEstimate

Estimate = Callable[[int], ThroughputEstimate | None]
"""Estimates one replica with this many concurrent requests, None where data is missing."""

_PARTS: Final = 100
"""Fractions of a replica count in hundredths; less may result from rounded tokens per second."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """A number of replicas. `estimate` is that of one with its part of the requests; `note` says
    where they cannot hold all requests at once. `needed` is how many the measured load needs, not
    rounded; None where the number does not follow it."""

    count: int
    estimate: ThroughputEstimate | None
    note: str | None
    needed: Fraction | None = None


def fill_replica(
    load: Load, most_at_once: int, max_num_seqs: int, estimate: Estimate
) -> FullReplica | None:
    """Return a full replica, to which replicas of other pools are compared; None where their number
    does not follow the load."""
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
    """Count the replicas that a load needs or is given, each holding `most_at_once` requests at
    most."""
    if load.replicas is not None:
        count, bound = load.replicas, f"spec.replicas is {load.replicas}"
        note = _format_queueing(load, count, most_at_once, bound)
        return Replicas(count, estimate(load.share(count)), note)
    most = min(most_at_once, load.workload.concurrency)
    needed = load.share(_largest_batch(load, most, estimate))
    if load.demanded is not None:
        count_here = _count_equivalent(load.demanded, full)
        # Also where it rounds to zero: only the load scales to zero.
        if load.demanded.replicas > 0:
            bounded = min(Fraction(load.max_replicas), count_here)
            count_here = max(Fraction(load.min_replicas), bounded)
        # Whether a replica meets the targets must not depend on the current number of replicas.
        return Replicas(ceil(count_here), estimate(load.share(needed)), None, count_here)
    count = max(load.min_replicas, min(load.max_replicas, needed))
    bound = f"spec.scaling.maxReplicas is {load.max_replicas}"
    note = _format_queueing(load, count, most_at_once, bound)
    return Replicas(count, estimate(load.share(count)), note)


def _count_equivalent(demanded: Demanded, full: FullReplica | None) -> Fraction:
    """Count the replicas here that generate as many tokens as the demanded ones, in hundredths."""
    tokens_per_second = full.tokens_per_second if full else None
    if tokens_per_second is None or demanded.tokens_per_second is None:
        return Fraction(demanded.replicas)
    equivalent = demanded.replicas * demanded.tokens_per_second / tokens_per_second
    return Fraction(floor(equivalent * _PARTS), _PARTS)


def _largest_batch(load: Load, most: int, estimate: Estimate) -> int:
    """Return the concurrent requests that one replica may hold, at least 1 even if too slow."""
    targets = load.workload.latency_targets

    def is_fast_enough(batch: int) -> bool:
        of_batch = estimate(batch)
        return of_batch is None or meets_targets(targets, of_batch)

    return max(1, largest(is_fast_enough, most)) if targets.are_set else most


def _format_queueing(load: Load, count: int, most_at_once: int, bound: str) -> str | None:
    held, wanted = count * most_at_once, load.workload.concurrency
    if count == 0 or held >= wanted:
        return None
    return (
        f"holds {held} of {wanted} requests at once, {most_at_once} a replica; the others queue"
        f" ({bound})"
    )
