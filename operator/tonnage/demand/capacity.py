"""Requests that a replica holds at once, from what it really held.

    capacity = the smallest of: what vLLM schedules (max_num_seqs),
               requests that run / share of the KV cache that they take,
               requests that run, where others wait

A replica that nothing runs on tells nothing of it. Where none does, it is what the memory
calculation reckons with.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from tonnage.demand.curve import ServingCurve
from tonnage.demand.signals import PodLoad

_LEAST_RUNNING = 1.0
"""Of fewer requests, on the average of a minute, the share of the cache says little."""


@dataclass(frozen=True, slots=True)
class ReckonedCapacity:
    """Typical requests that a replica holds at once by the calculation, and the most that vLLM
    schedules whatever their size.

    By the estimate, None where figures lack: requests that it answers in a second at its fullest,
    and by how much each request slows down the others (see ServingCurve).
    """

    requests_at_once: int
    max_num_seqs: int
    requests_per_second: float | None = None
    growth: float | None = None


def measure_capacity(
    loads: Iterable[PodLoad], reckoned: ReckonedCapacity | None, shortest_queue: float
) -> float | None:
    """Requests that one replica holds at once, at least 1; None where nobody can tell."""
    held = [
        _held(load, reckoned, shortest_queue) for load in loads if load.running >= _LEAST_RUNNING
    ]
    known = [found for found in held if found is not None]
    if known:
        return max(1.0, fmean(known))
    return None if reckoned is None else float(max(1, reckoned.requests_at_once))


def serving_curve(
    reckoned: ReckonedCapacity | None, capacity: float, usual_slowdown: float
) -> ServingCurve:
    """How requests slow down each other: by the estimate, else as they usually do."""
    if reckoned is not None and reckoned.growth is not None:
        return ServingCurve(reckoned.growth)
    return ServingCurve((usual_slowdown - 1) / max(1.0, capacity - 1))


def _held(load: PodLoad, reckoned: ReckonedCapacity | None, shortest_queue: float) -> float | None:
    running, waiting, usage = load.running, load.waiting, load.kv_usage
    bounds = [float(reckoned.max_num_seqs)] if reckoned is not None else []
    if usage > 0:
        bounds.append(running / usage)
    if waiting >= shortest_queue:
        bounds.append(running)
    return max(running, min(bounds)) if bounds else None
