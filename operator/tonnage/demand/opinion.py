"""What the load asks for, or why nobody can tell.

A number that cannot be (NaN, negative, infinite) spoils the whole answer: its source is wrong, and
who is wrong once may be wrong elsewhere. A replica that is not seen, or not lately, only makes the
answer a lower bound: more replicas may follow from it, fewer never.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tonnage.demand.capacity import ReckonedCapacity, measure_capacity, serving_curve
from tonnage.demand.conventions import Conventions
from tonnage.demand.curve import ServingCurve
from tonnage.demand.needs import Need, Part, Work, find_needs
from tonnage.demand.signals import MeasuredLoad, PodLoad, Queue, is_amount
from tonnage.demand.terms import Terms

_MOST_USAGE: Final = 1.0 + 1e-6
"""A mean of ones may come out a little larger."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The replicas by pod, each with the name of its placement; those that are ready, of which a
    measurement is expected; the placement that is to grow or shrink; and what is reckoned of a
    replica, by placement, of that one and those beside it."""

    placements: Mapping[str, str]
    ready: frozenset[str]
    next_placement: str
    reckoned: Mapping[str, ReckonedCapacity]


@dataclass(frozen=True, slots=True)
class Opinion:
    """Replicas that the load needs, not rounded, by the target that needs most; `is_bound`: it may
    need more. `is_idle`: no request runs, waits or queues. One replica holds `capacity` requests,
    and as much of another placement as does the same has `room` for so many at least."""

    need: Need
    in_flight: float
    capacity: float
    room: float
    is_bound: bool
    is_idle: bool


@dataclass(frozen=True, slots=True)
class NoOpinion:
    """Nothing follows, and why in a few words that stay the same while the cause does."""

    why: str


def judge_load(
    measured: MeasuredLoad | None, serving: Serving, terms: Terms, oldest_seconds: float
) -> Opinion | NoOpinion:
    """What the load asks for; samples older than `oldest_seconds` speak of the past."""
    if measured is None:
        return NoOpinion("Prometheus gives no answer that can be used")
    known = {pod: load for pod, load in measured.pods.items() if pod in serving.placements}
    wrong = _find_wrong(measured, known)
    if wrong is not None:
        return NoOpinion(wrong)
    seen = {pod: load for pod, load in known.items() if _is_fresh(load, oldest_seconds)}
    queue = measured.queue if _is_fresh(measured.queue, oldest_seconds) else None
    queue_unknown = terms.zero_after is not None and queue is None
    unseen = _find_unseen(seen, serving, terms, queue_unknown=queue_unknown)
    if unseen is not None:
        return NoOpinion(unseen)
    work = _find_work(seen, queue.requests if queue else 0.0, serving, terms)
    if work is None:
        return NoOpinion("no replica runs a request, and what one can hold is not known yet")
    needs = find_needs(work, terms)
    if not all(is_amount(need.replicas) for need in needs):
        return NoOpinion("what was measured comes to no number of replicas")
    partial = queue_unknown or not serving.ready <= seen.keys()
    return Opinion(
        need=max(needs, key=lambda need: need.replicas),
        in_flight=work.in_flight,
        capacity=work.own.capacity,
        room=work.room,
        is_bound=partial,
        is_idle=not partial and work.in_flight <= 0,
    )


def _find_wrong(measured: MeasuredLoad, known: Mapping[str, PodLoad]) -> str | None:
    """The first number that cannot be."""
    queue = measured.queue
    if queue is not None and not (is_amount(queue.requests) and is_amount(queue.age_seconds)):
        return "the metric of spec.scaling.scaleToZero.queuedRequests is not a count"
    for pod, load in sorted(known.items()):
        counts = (load.running, load.waiting, load.kv_usage, load.age_seconds)
        means = (load.first_token, load.prefill, load.per_token)
        sound = all(map(is_amount, counts)) and all(mean.is_sound for mean in means if mean)
        if not sound or load.kv_usage > _MOST_USAGE:
            return f"the metrics of pod {pod} are not numbers that can be"
    return None


def _find_unseen(
    seen: Mapping[str, PodLoad], serving: Serving, terms: Terms, *, queue_unknown: bool
) -> str | None:
    """Why there is nothing to go by, where there is not."""
    if seen:
        return None
    if serving.ready:
        return f"no fresh sample of any of {len(serving.ready)} ready replicas"
    if queue_unknown:
        return "no fresh sample of spec.scaling.scaleToZero.queuedRequests"
    return "no replica is ready" if terms.zero_after is None else None


def _is_fresh(sampled: PodLoad | Queue | None, oldest_seconds: float) -> bool:
    return sampled is not None and sampled.age_seconds <= oldest_seconds


def _find_work(
    seen: Mapping[str, PodLoad], queued: float, serving: Serving, terms: Terms
) -> Work | None:
    by_placement: dict[str, list[PodLoad]] = {serving.next_placement: []}
    for pod, load in seen.items():
        by_placement.setdefault(serving.placements[pod], []).append(load)
    own = _find_own(by_placement.pop(serving.next_placement), serving, terms.conventions)
    if own is None:
        return None
    others = tuple(
        _find_other(loads, serving.reckoned.get(name), own, terms.conventions)
        for name, loads in by_placement.items()
    )
    return Work(own, others, queued + sum(load.waiting for load in seen.values()))


def _find_own(loads: Sequence[PodLoad], serving: Serving, conventions: Conventions) -> Part | None:
    """The placement that is to grow; None where nobody can tell what a replica holds."""
    reckoned = serving.reckoned.get(serving.next_placement)
    capacity = measure_capacity(loads, reckoned, conventions.shortest_queue)
    if capacity is None:
        return None
    curve = serving_curve(reckoned, capacity, conventions.usual_slowdown)
    return _part(loads, capacity, reckoned, curve)


def _find_other(
    loads: Sequence[PodLoad], reckoned: ReckonedCapacity | None, own: Part, conventions: Conventions
) -> Part:
    """Another placement. What nothing was reckoned for leaves: it is told by what it holds."""
    held = measure_capacity(loads, reckoned, conventions.shortest_queue) or own.capacity
    if reckoned is None:
        return replace(_part(loads, held, None, own.curve), worth=held / own.capacity)
    curve = serving_curve(reckoned, held, conventions.usual_slowdown)
    part = _part(loads, held, reckoned, curve)
    if not part.requests_per_second or not own.requests_per_second:
        return part  # as placement counts: any replica alike
    return replace(part, worth=part.requests_per_second / own.requests_per_second)


def _part(
    loads: Sequence[PodLoad],
    capacity: float,
    reckoned: ReckonedCapacity | None,
    curve: ServingCurve,
) -> Part:
    done = sum(curve.work(load.running, capacity) for load in loads)
    return Part(loads, done, capacity, reckoned.requests_per_second if reckoned else None, curve)
