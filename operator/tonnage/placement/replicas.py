"""How many replicas of one split hold the workload, and how fast one of them then is.

Algorithm. A replica holds at once as many typical requests as its KV cache has room for, and no
more than vLLM schedules (max_num_seqs). With latency targets it may hold only as many as are
estimated to keep to them; both latencies grow with the batch, so that the largest batch that does
is found by bisection. Without `spec.replicas` there are as many replicas as then hold all requests,
between `scaling.minReplicas` and `scaling.maxReplicas`; with it, each has its share of them,
whatever the targets say.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tonnage.fit.bisection import largest
from tonnage.placement.latency import keeps_to
from tonnage.placement.load import Load
from tonnage.throughput.model import ThroughputEstimate

Estimate = Callable[[int], ThroughputEstimate | None]
"""The estimate of one replica that so many requests at once fall to, None where figures lack."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """So many replicas; `estimate` is that of one with its share of the requests, `note` says that
    they do not hold all requests at once, where that is so."""

    count: int
    estimate: ThroughputEstimate | None
    note: str | None


def count_replicas(load: Load, most_at_once: int, estimate: Estimate) -> Replicas:
    """The replicas that a load needs or is given, each holding `most_at_once` requests at most."""
    if load.replicas is not None:
        count, bound = load.replicas, f"spec.replicas is {load.replicas}"
    else:
        needed = load.share(_largest_batch(load, most_at_once, estimate))
        scaling = load.scaling
        count = max(scaling.min_replicas, min(scaling.max_replicas, needed))
        bound = f"spec.scaling.maxReplicas is {scaling.max_replicas}"
    note = _tell_queueing(load, count, most_at_once, bound)
    return Replicas(count, estimate(load.share(count)), note)


def _largest_batch(load: Load, most: int, estimate: Estimate) -> int:
    """Requests that one replica may hold at once, at least 1 even where that is too slow."""
    targets = load.workload.latency_targets

    def keeps(batch: int) -> bool:
        found = estimate(batch)
        return found is None or keeps_to(targets, found)

    most = min(most, load.workload.concurrency)
    return max(1, largest(keeps, most)) if targets.are_set else most


def _tell_queueing(load: Load, count: int, most_at_once: int, bound: str) -> str | None:
    held, wanted = count * most_at_once, load.workload.concurrency
    if count == 0 or held >= wanted:
        return None
    return (
        f"holds {held} of {wanted} requests at once, {most_at_once} a replica; the others queue"
        f" ({bound})"
    )
