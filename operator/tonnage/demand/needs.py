"""Replicas that the load needs, by target. Load is counted in work, not in pods or requests:

    work     what all replicas do, in full replicas: the sum of the shares that their running
             requests are of what a replica does at its fullest (see curve)
    backlog  requests that wait beyond those that may, over what a full replica answers in the time
             in which a queue is to be worked off
    needs    (work + backlog) / the share of a full replica that each is to do

    waitingRequests     so many may wait for each replica
    timeToFirstToken    as many may wait as are answered in the target less the time that a prompt
                        takes by itself (Little's law)
    kvCacheUsage        the share that is done with that much of the KV cache in use
    runningRequests     the share that is done with so many requests
    timePerOutputToken  the share that is done with as many as keep to it

No replica is ever to do more than `most_busy` of what it can: requests come at random, and of a
replica that is full the next one waits. Until it is full the first token is hardly ever late.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tonnage.demand.curve import ServingCurve
from tonnage.demand.signals import Mean, PodLoad
from tonnage.demand.terms import Terms


@dataclass(frozen=True, slots=True)
class Work:
    """All that was measured: the replicas seen, the work that they do in full replicas of the
    placement that is to grow, and requests that wait, in front of the replicas too.

    `capacity` is the requests that a full one holds, `requests_per_second` what it answers, None
    where figures lack.
    """

    loads: Sequence[PodLoad]
    done: float
    waiting: float
    capacity: float
    requests_per_second: float | None
    curve: ServingCurve

    @property
    def in_flight(self) -> float:
        """Requests that run or wait."""
        return self.waiting + sum(load.running for load in self.loads)


@dataclass(frozen=True, slots=True)
class Need:
    """Replicas that one target needs, not rounded."""

    target: str
    replicas: float


def find_needs(work: Work, terms: Terms) -> list[Need]:
    """What each target needs; in flight always counts, whatever the targets are."""
    busy = terms.conventions.most_busy
    needs = [
        Need(target, _for_work(work, terms, may_wait, busy))
        for target, may_wait in _queues(work, terms).items()
    ]
    for target, running in _batches(work, terms).items():
        share = min(busy, work.curve.work(running, work.capacity))
        needs.append(Need(target, _for_work(work, terms, 0.0, share)))
    return needs


def _for_work(work: Work, terms: Terms, may_wait: float, share: float) -> float:
    excess = max(0.0, work.waiting - may_wait * len(work.loads))
    answered = (work.requests_per_second or 0.0) * terms.conventions.queue_seconds
    # Where nobody knows how fast a replica is, what waits is to run beside all that runs.
    needed = (work.done + excess / (answered or work.capacity)) / share
    return min(needed, work.in_flight)  # more replicas than requests would be no faster


def _queues(work: Work, terms: Terms) -> dict[str, float]:
    """Requests that may wait for each replica, by the targets that speak of it."""
    found = {}
    if terms.waiting_requests is not None:
        found["waitingRequests"] = float(terms.waiting_requests)
    if terms.time_to_first_token is not None:
        prompt = _mean(load.prefill for load in work.loads) or 0.0
        seconds = max(0.0, terms.time_to_first_token - prompt)
        found["timeToFirstToken"] = seconds * (work.requests_per_second or 0.0)
    return found or {"requests in flight": 0.0}


def _batches(work: Work, terms: Terms) -> dict[str, float]:
    """Requests that each replica may run, by the targets that speak of it; none where nothing
    tells."""
    found = {}
    running = [load.running for load in work.loads if load.running > 0]
    if terms.kv_cache_usage is not None:
        found["kvCacheUsage"] = terms.kv_cache_usage / _cache_share(work)
    if terms.running_requests is not None:
        found["runningRequests"] = float(terms.running_requests)
    if terms.time_per_output_token is not None and running:
        measured = _mean(load.per_token for load in work.loads)
        if measured:
            share = terms.time_per_output_token / measured
            batch = work.curve.requests_within(sum(running) / len(running), share)
            found["timePerOutputToken"] = batch
    return found


def _cache_share(work: Work) -> float:
    """Share of a replica's KV cache that one request takes: never more than there is, whatever the
    means of moments with hardly a request come to."""
    running = sum(load.running for load in work.loads)
    used = sum(load.kv_usage for load in work.loads)
    share = min(1.0, used / running) if running > 0 else 0.0
    return share or 1 / work.capacity


def _mean(means: Iterable[Mean | None]) -> float | None:
    """Seconds of one observation over all replicas."""
    found = [mean for mean in means if mean is not None]
    total = Mean(sum(mean.seconds for mean in found), sum(mean.observations for mean in found))
    return total.value
