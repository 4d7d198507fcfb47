"""Estimates how many concurrent requests a replica can hold, from what replicas did hold.

    capacity = the smallest of: max_num_seqs of the engine,
               running requests / share of the KV cache that they take,
               running requests, if other requests wait

A replica without running requests gives no estimate. If no replica gives one, the capacity is that
of the memory calculation.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from tonnage.demand.curve import ServingCurve
from tonnage.demand.signals import PodLoad

_MIN_RUNNING = 1.0
"""Below this average over a minute, the KV cache usage is no basis for an estimate."""


@dataclass(frozen=True, slots=True)
class EstimatedCapacity:
    """Typical requests that a replica holds at once by the memory calculation, and `max_num_seqs`,
    the engine's limit for requests of any size.

    The throughput estimate adds two figures, None if it has no data: the requests that a full
    replica answers per second, and `growth` (see ServingCurve).
    """

    requests_at_once: int
    max_num_seqs: int
    requests_per_second: float | None = None
    growth: float | None = None


def measure_capacity(
    loads: Iterable[PodLoad], reckoned: EstimatedCapacity | None, shortest_queue: float
) -> float | None:
    """Concurrent requests of one replica, at least 1; None without measurement and calculation."""
    capacities = [
        _measure_replica(load, reckoned, shortest_queue)
        for load in loads
        if load.running >= _MIN_RUNNING
    ]
    measured = [capacity for capacity in capacities if capacity is not None]
    if measured:
        return max(1.0, fmean(measured))
    return None if reckoned is None else float(max(1, reckoned.requests_at_once))


def make_serving_curve(
    reckoned: EstimatedCapacity | None, capacity: float, usual_slowdown: float
) -> ServingCurve:
    """The curve of the throughput estimate, or without one the curve of the usual slowdown."""
    if reckoned is not None and reckoned.growth is not None:
        return ServingCurve(reckoned.growth)
    return ServingCurve((usual_slowdown - 1) / max(1.0, capacity - 1))


def _measure_replica(
    load: PodLoad, reckoned: EstimatedCapacity | None, shortest_queue: float
) -> float | None:
    running, waiting, usage = load.running, load.waiting, load.kv_usage
    bounds = [float(reckoned.max_num_seqs)] if reckoned is not None else []
    if usage > 0:
        bounds.append(running / usage)
    if waiting >= shortest_queue:
        bounds.append(running)
    return max(running, min(bounds)) if bounds else None
