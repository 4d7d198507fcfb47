"""Computes the replicas that the load needs, or says why it cannot.

One value out of range (NaN, negative, infinite) makes the whole sample unusable: a source that is
wrong once may be wrong elsewhere. A replica without a fresh sample only makes the result a lower
bound: it may add replicas, but never removes any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tonnage.demand.capacity import EstimatedCapacity, make_serving_curve, measure_capacity
from tonnage.demand.conventions import Conventions
from tonnage.demand.curve import ServingCurve
from tonnage.demand.needs import Need, PlacementLoad, TotalLoad, compute_needs
from tonnage.demand.signals import MeasuredLoad, PodLoad, QueueSample, is_amount
from tonnage.demand.terms import ScalingTerms

_MOST_USAGE: Final = 1.0 + 1e-6
"""An average of ones can exceed 1 by a rounding error."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The placement name of each replica's pod; the ready pods, which should have a sample; the
    placement to scale; and the estimated capacity of a replica by placement, the others
    included."""

    placements: Mapping[str, str]
    ready: frozenset[str]
    next_placement: str
    reckoned: Mapping[str, EstimatedCapacity]


@dataclass(frozen=True, slots=True)
class LoadEstimate:
    """The largest need of all targets, unrounded; `is_lower_bound`: a lower bound. `is_idle`: no
    request runs, waits or queues, and none was answered lately. One replica holds `capacity`
    requests; the same throughput on any other placement holds at least `smallest_capacity`."""

    need: Need
    in_flight: float
    capacity: float
    smallest_capacity: float
    is_lower_bound: bool
    is_idle: bool


@dataclass(frozen=True, slots=True)
class NoOpinion:
    """No result, and a short reason that stays the same while the cause does."""

    why: str


def judge_load(
    measured: MeasuredLoad | None, serving: Serving, terms: ScalingTerms, oldest_seconds: float
) -> LoadEstimate | NoOpinion:
    """Compute the need of the load; samples older than `oldest_seconds` are ignored."""
    if measured is None:
        return NoOpinion("Prometheus gives no answer that can be used")
    own = {pod: load for pod, load in measured.pods.items() if pod in serving.placements}
    invalid = _find_invalid(measured, own)
    if invalid is not None:
        return NoOpinion(invalid)
    fresh = {pod: load for pod, load in own.items() if _is_fresh(load, oldest_seconds)}
    queue = measured.queue if _is_fresh(measured.queue, oldest_seconds) else None
    queue_unknown = terms.zero_after is not None and queue is None
    missing = _find_missing(fresh, serving, terms, queue_unknown=queue_unknown)
    if missing is not None:
        return NoOpinion(missing)
    load = _measure(fresh, queue.requests if queue else 0.0, serving, terms)
    if load is None:
        return NoOpinion("no replica runs a request, and the capacity of a replica is unknown yet")
    needs = compute_needs(load, terms)
    if not all(is_amount(need.replicas) for need in needs):
        return NoOpinion("the measured load gives no valid number of replicas")
    partial = queue_unknown or not serving.ready <= fresh.keys()
    return LoadEstimate(
        need=max(needs, key=lambda need: need.replicas),
        in_flight=load.in_flight,
        capacity=load.own.capacity,
        smallest_capacity=load.smallest_capacity,
        is_lower_bound=partial,
        is_idle=not partial
        and load.in_flight <= 0
        and not any(one.has_answered for one in fresh.values()),
    )


def _find_invalid(measured: MeasuredLoad, own: Mapping[str, PodLoad]) -> str | None:
    """The first value out of range."""
    queue = measured.queue
    if queue is not None and not (is_amount(queue.requests) and is_amount(queue.age_seconds)):
        return "the metric of spec.scaling.scaleToZero.queuedRequests is not a count"
    for pod, load in sorted(own.items()):
        counts = (load.running, load.waiting, load.kv_usage, load.age_seconds)
        means = (load.first_token, load.prefill, load.per_token)
        sound = all(map(is_amount, counts)) and all(mean.is_sound for mean in means if mean)
        if not sound or load.kv_usage > _MOST_USAGE:
            return f"the metrics of pod {pod} are out of range"
    return None


def _find_missing(
    fresh: Mapping[str, PodLoad], serving: Serving, terms: ScalingTerms, *, queue_unknown: bool
) -> str | None:
    """Which sample is missing, if there is no basis for a result."""
    if fresh:
        return None
    if serving.ready:
        return f"no fresh sample of any of {len(serving.ready)} ready replicas"
    if queue_unknown:
        return "no fresh sample of spec.scaling.scaleToZero.queuedRequests"
    return "no replica is ready" if terms.zero_after is None else None


def _is_fresh(sample: PodLoad | QueueSample | None, oldest_seconds: float) -> bool:
    return sample is not None and sample.age_seconds <= oldest_seconds


def _measure(
    fresh: Mapping[str, PodLoad], queued: float, serving: Serving, terms: ScalingTerms
) -> TotalLoad | None:
    by_placement: dict[str, list[PodLoad]] = {serving.next_placement: []}
    for pod, load in fresh.items():
        by_placement.setdefault(serving.placements[pod], []).append(load)
    own = _measure_own(by_placement.pop(serving.next_placement), serving, terms.conventions)
    if own is None:
        return None
    others = tuple(
        _measure_other(loads, serving.reckoned.get(name), own, terms.conventions)
        for name, loads in by_placement.items()
    )
    return TotalLoad(own, others, queued + sum(load.waiting for load in fresh.values()))


def _measure_own(
    loads: Sequence[PodLoad], serving: Serving, conventions: Conventions
) -> PlacementLoad | None:
    """The placement to scale; None if the capacity of a replica is unknown."""
    reckoned = serving.reckoned.get(serving.next_placement)
    capacity = measure_capacity(loads, reckoned, conventions.shortest_queue)
    if capacity is None:
        return None
    curve = make_serving_curve(reckoned, capacity, conventions.usual_slowdown)
    return _sum_loads(loads, capacity, reckoned, curve)


def _measure_other(
    loads: Sequence[PodLoad],
    reckoned: EstimatedCapacity | None,
    own: PlacementLoad,
    conventions: Conventions,
) -> PlacementLoad:
    """Another placement. One without an estimate is being drained and counts by its capacity."""
    capacity = measure_capacity(loads, reckoned, conventions.shortest_queue) or own.capacity
    if reckoned is None:
        drained = _sum_loads(loads, capacity, None, own.curve)
        return replace(drained, relative_throughput=capacity / own.capacity)
    curve = make_serving_curve(reckoned, capacity, conventions.usual_slowdown)
    other = _sum_loads(loads, capacity, reckoned, curve)
    if not other.requests_per_second or not own.requests_per_second:
        return other  # placement, too, then counts all replicas alike
    relative = other.requests_per_second / own.requests_per_second
    return replace(other, relative_throughput=relative)


def _sum_loads(
    loads: Sequence[PodLoad],
    capacity: float,
    reckoned: EstimatedCapacity | None,
    curve: ServingCurve,
) -> PlacementLoad:
    work = sum(curve.work(load.running, capacity) for load in loads)
    requests_per_second = reckoned.requests_per_second if reckoned else None
    return PlacementLoad(loads, work, capacity, requests_per_second, curve)
