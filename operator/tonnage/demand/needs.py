"""Replicas that the load needs, by target. Load is counted in work, not in pods or requests:

    work     what all replicas do, in full replicas: the sum of the shares that their running
             requests are of what a replica does at its fullest (see curve)
    worth    what a full replica of another placement does, in full ones of the placement that is to
             grow: what it generates by the estimate over what one of these does. Pools are filled
             by the same figure, so that what is counted here is what is added there
    backlog  requests that wait beyond those that may, over what a full replica answers in the time
             in which a queue is to be worked off
    needs    (work + backlog) / the share of a full replica that each is to do, which is another
             one in each placement

    waitingRequests     so many may wait for each replica
    timeToFirstToken    as many may wait as are answered in the target less the time that a prompt
                        takes by itself (Little's law)
    kvCacheUsage        the share that is done with that much of the KV cache in use
    runningRequests     the share that is done with so many requests
    timePerOutputToken  the share that is done with as many as keep to it

No replica is ever to do more than `most_busy` of what it can: requests come at random, and of a
replica that is full the next one waits. Until it is full the first token is hardly ever late.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tonnage.demand.curve import ServingCurve
from tonnage.demand.signals import Mean, PodLoad
from tonnage.demand.terms import Terms


@dataclass(frozen=True, slots=True)
class Part:
    """What was measured of the replicas of one placement: those seen, and the work that they do in
    full ones of it.

    `capacity` is the requests that a full one holds, `requests_per_second` what it answers, None
    where figures lack, `worth` what it does in full ones of the placement that is to grow.
    """

    loads: Sequence[PodLoad]
    done: float
    capacity: float
    requests_per_second: float | None
    curve: ServingCurve
    worth: float = 1.0


@dataclass(frozen=True, slots=True)
class Work:
    """All that was measured: the placement that is to grow, the others, and requests that wait, in
    front of the replicas too."""

    own: Part
    others: Sequence[Part]
    waiting: float

    @property
    def parts(self) -> Sequence[Part]:
        """All placements, the one that is to grow first."""
        return (self.own, *self.others)

    @property
    def in_flight(self) -> float:
        """Requests that run or wait."""
        return self.waiting + sum(load.running for part in self.parts for load in part.loads)

    @property
    def room(self) -> float:
        """Requests that are held at once by what does as much as one full replica of the placement
        that is to grow, wherever that is."""
        return min(part.capacity / part.worth for part in self.parts)


@dataclass(frozen=True, slots=True)
class Need:
    """Replicas that one target needs, not rounded."""

    target: str
    replicas: float


_Of = Callable[[Part], float]
"""A number of each placement."""


def find_needs(work: Work, terms: Terms) -> list[Need]:
    """What each target needs; in flight always counts, whatever the targets are."""
    busy = terms.conventions.most_busy
    needs = [
        Need(target, _for_work(work, terms, may_wait, lambda _: busy))
        for target, may_wait in _queues(terms).items()
    ]
    for target, running in _batches(work, terms).items():

        def share(part: Part, running: _Of = running) -> float:
            return min(busy, part.curve.work(running(part), part.capacity))

        needs.append(Need(target, _for_work(work, terms, lambda _: 0.0, share)))
    return needs


def _for_work(work: Work, terms: Terms, may_wait: _Of, share: _Of) -> float:
    may = sum(may_wait(part) * len(part.loads) for part in work.parts)
    excess, own = max(0.0, work.waiting - may), work.own
    answered = (own.requests_per_second or 0.0) * terms.conventions.queue_seconds
    done = sum(part.done * part.worth * (share(own) / share(part)) for part in work.parts)
    # Where nobody knows how fast a replica is, what waits is to run beside all that runs.
    needed = (done + excess / (answered or own.capacity)) / share(own)
    return min(needed, work.in_flight)  # more replicas than requests would be no faster


def _queues(terms: Terms) -> dict[str, _Of]:
    """Requests that may wait for each replica, by the targets that speak of it."""
    found: dict[str, _Of] = {}
    if terms.waiting_requests is not None:
        waiting = float(terms.waiting_requests)
        found["waitingRequests"] = lambda _: waiting
    if terms.time_to_first_token is not None:
        target = terms.time_to_first_token
        found["timeToFirstToken"] = lambda part: _answered_within(part, target)
    return found or {"requests in flight": lambda _: 0.0}


def _answered_within(part: Part, target_seconds: float) -> float:
    prompt = _mean(load.prefill for load in part.loads) or 0.0
    return max(0.0, target_seconds - prompt) * (part.requests_per_second or 0.0)


def _batches(work: Work, terms: Terms) -> dict[str, _Of]:
    """Requests that each replica may run, by the targets that speak of it; none where nothing
    tells."""
    found: dict[str, _Of] = {}
    if terms.kv_cache_usage is not None:
        usage = terms.kv_cache_usage
        found["kvCacheUsage"] = lambda part: usage / _cache_share(part)
    if terms.running_requests is not None:
        most = float(terms.running_requests)
        found["runningRequests"] = lambda _: most
    if terms.time_per_output_token is not None and any(map(_token_seconds, work.parts)):
        target = terms.time_per_output_token
        found["timePerOutputToken"] = lambda part: _batch_within(part, target)
    return found


def _batch_within(part: Part, target_seconds: float) -> float:
    """As many as keep to the target; a full batch where nothing was measured."""
    measured = _token_seconds(part)
    if not measured:
        return part.capacity
    running = [load.running for load in part.loads if load.running > 0]
    return part.curve.requests_within(sum(running) / len(running), target_seconds / measured)


def _token_seconds(part: Part) -> float | None:
    """Between two tokens, None where none was measured of replicas that run requests."""
    runs = any(load.running > 0 for load in part.loads)
    return _mean(load.per_token for load in part.loads) if runs else None


def _cache_share(part: Part) -> float:
    """Share of a replica's KV cache that one request takes: never more than there is, whatever the
    means of moments with hardly a request come to."""
    running = sum(load.running for load in part.loads)
    used = sum(load.kv_usage for load in part.loads)
    share = min(1.0, used / running) if running > 0 else 0.0
    return share or 1 / part.capacity


def _mean(means: Iterable[Mean | None]) -> float | None:
    """Seconds of one observation over all replicas."""
    found = [mean for mean in means if mean is not None]
    total = Mean(sum(mean.seconds for mean in found), sum(mean.observations for mean in found))
    return total.value
