"""Computes the replicas that the load needs, by target. Load is counted in work, not in pods or
requests:

    work      what all replicas do, in full replicas: each replica adds the work of its running
              requests as a share of what a full replica does (see curve)
    relative  throughput of a full replica of another placement, by the estimate, over that of one
              of the placement to scale. Placement fills pools by the same figure, so both count
              alike
    backlog   waiting requests beyond the allowed ones, over what a full replica answers in the
              time in which it has to work off a queue (`queue_seconds`)
    needs     (work + backlog) / the share of a full replica's work that each replica should do;
              this share differs by placement

    waitingRequests     allowed waiting requests for each replica
    timeToFirstToken    allowed are the requests that a replica answers in the target less the time
                        of the prefill alone (Little's law)
    kvCacheUsage        the share of work at this usage of the KV cache
    runningRequests     the share of work with this many requests
    timePerOutputToken  the share of work with the most requests that keep the target

No replica should do more than `most_busy` of its work: requests arrive at random, and at a full
replica the next one waits. Until a replica is full, the first token is hardly ever late.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tonnage.demand.curve import ServingCurve
from tonnage.demand.signals import Mean, PodLoad
from tonnage.demand.terms import ScalingTerms


@dataclass(frozen=True, slots=True)
class PlacementLoad:
    """Measurements of the replicas of one placement, and their work in full replicas of it.

    A full replica holds `capacity` requests and answers `requests_per_second` (None without an
    estimate). `relative_throughput` compares it with one of the placement to scale.
    """

    loads: Sequence[PodLoad]
    work: float
    capacity: float
    requests_per_second: float | None
    curve: ServingCurve
    relative_throughput: float = 1.0


@dataclass(frozen=True, slots=True)
class TotalLoad:
    """Measurements of all placements: the one to scale, the others, and all waiting requests,
    those in front of the replicas included."""

    own: PlacementLoad
    others: Sequence[PlacementLoad]
    waiting: float

    @property
    def placements(self) -> Sequence[PlacementLoad]:
        """All placements, the one to scale first."""
        return (self.own, *self.others)

    @property
    def in_flight(self) -> float:
        """Running and waiting requests."""
        running = (load.running for placement in self.placements for load in placement.loads)
        return self.waiting + sum(running)

    @property
    def smallest_capacity(self) -> float:
        """The fewest concurrent requests, over all placements, of as much throughput as one full
        replica of the placement to scale has."""
        return min(one.capacity / one.relative_throughput for one in self.placements)


@dataclass(frozen=True, slots=True)
class Need:
    """Replicas that one target needs, unrounded."""

    target: str
    replicas: float


_PerPlacement = Callable[[PlacementLoad], float]
"""Gives a number for each placement."""


def compute_needs(load: TotalLoad, terms: ScalingTerms) -> list[Need]:
    """The need of each target; requests in flight count whatever the targets are."""
    most_busy = terms.conventions.most_busy
    needs = [
        Need(target, _compute_replicas(load, terms, allowed_waiting, lambda _: most_busy))
        for target, allowed_waiting in _list_queue_targets(terms).items()
    ]
    for target, running in _list_batch_targets(load, terms).items():

        def share(placement: PlacementLoad, running: _PerPlacement = running) -> float:
            work = placement.curve.work(running(placement), placement.capacity)
            return min(most_busy, work)

        needs.append(Need(target, _compute_replicas(load, terms, lambda _: 0.0, share)))
    return needs


def _compute_replicas(
    load: TotalLoad, terms: ScalingTerms, allowed_waiting: _PerPlacement, share: _PerPlacement
) -> float:
    allowed = sum(allowed_waiting(one) * len(one.loads) for one in load.placements)
    excess, own = max(0.0, load.waiting - allowed), load.own
    answered = (own.requests_per_second or 0.0) * terms.conventions.queue_seconds
    work = sum(
        one.work * one.relative_throughput * (share(own) / share(one)) for one in load.placements
    )
    # Without an estimate of the throughput, replicas must run the excess requests concurrently.
    needed = (work + excess / (answered or own.capacity)) / share(own)
    return min(needed, load.in_flight)  # more replicas than requests would be no faster


def _list_queue_targets(terms: ScalingTerms) -> dict[str, _PerPlacement]:
    """Allowed waiting requests for each replica, by the targets that limit them."""
    targets: dict[str, _PerPlacement] = {}
    if terms.waiting_requests is not None:
        waiting = float(terms.waiting_requests)
        targets["waitingRequests"] = lambda _: waiting
    if terms.time_to_first_token is not None:
        seconds = terms.time_to_first_token
        targets["timeToFirstToken"] = lambda placement: _count_answered(placement, seconds)
    return targets or {"requests in flight": lambda _: 0.0}


def _count_answered(placement: PlacementLoad, target_seconds: float) -> float:
    """Requests that a replica answers between the prefill and the target."""
    prefill_seconds = _average(load.prefill for load in placement.loads) or 0.0
    return max(0.0, target_seconds - prefill_seconds) * (placement.requests_per_second or 0.0)


def _list_batch_targets(load: TotalLoad, terms: ScalingTerms) -> dict[str, _PerPlacement]:
    """Running requests allowed on each replica, by the targets that limit them and have samples."""
    targets: dict[str, _PerPlacement] = {}
    if terms.kv_cache_usage is not None:
        usage = terms.kv_cache_usage
        targets["kvCacheUsage"] = lambda placement: usage / _cache_share(placement)
    if terms.running_requests is not None:
        running = float(terms.running_requests)
        targets["runningRequests"] = lambda _: running
    if terms.time_per_output_token is not None and any(map(_token_seconds, load.placements)):
        seconds = terms.time_per_output_token
        targets["timePerOutputToken"] = lambda placement: _largest_batch(placement, seconds)
    return targets


def _largest_batch(placement: PlacementLoad, target_seconds: float) -> float:
    """The most requests that keep the target; a full batch without measurements."""
    measured_seconds = _token_seconds(placement)
    if not measured_seconds:
        return placement.capacity
    running = [load.running for load in placement.loads if load.running > 0]
    average = sum(running) / len(running)
    return placement.curve.requests_within(average, target_seconds / measured_seconds)


def _token_seconds(placement: PlacementLoad) -> float | None:
    """Seconds between two tokens; None if no replica with running requests has measured it."""
    runs = any(load.running > 0 for load in placement.loads)
    return _average(load.per_token for load in placement.loads) if runs else None


def _cache_share(placement: PlacementLoad) -> float:
    """Share of a replica's KV cache that one request takes; at most 1, because averages of moments
    with hardly a request can exceed it."""
    running = sum(load.running for load in placement.loads)
    used = sum(load.kv_usage for load in placement.loads)
    share = min(1.0, used / running) if running > 0 else 0.0
    return share or 1 / placement.capacity


def _average(means: Iterable[Mean | None]) -> float | None:
    """Average seconds of one observation over all replicas."""
    measured = [mean for mean in means if mean is not None]
    seconds = sum(mean.seconds for mean in measured)
    return Mean(seconds, sum(mean.observations for mean in measured)).value
