"""Loads and terms of scaling, as few fields of them as a test needs."""

from typing import Any

from tonnage.api.scaling import Scaling
from tonnage.demand.capacity import EstimatedCapacity
from tonnage.demand.opinion import LoadEstimate, NoOpinion, Serving, judge_load
from tonnage.demand.signals import Mean, MeasuredLoad, PodLoad, QueueSample
from tonnage.demand.terms import ScalingTerms, terms_of

RECKONED = EstimatedCapacity(
    requests_at_once=20, max_num_seqs=100, requests_per_second=0.5, growth=1 / 9
)
"""Ten requests take twice as long as one: n of N are n / N x (N + 8) / (n + 8) of the work."""
OLDEST_SECONDS = 150.0


def terms(targets: dict[str, Any] | None = None, **scaling: Any) -> ScalingTerms:
    """As a spec has them; by default one request may wait for each replica."""
    chosen = {"waitingRequests": 1} if targets is None else targets
    scaling_terms = terms_of(Scaling.model_validate({"targets": chosen, **scaling}))
    assert scaling_terms is not None
    return scaling_terms


def to_zero(after: str = "15m") -> dict[str, Any]:
    """The part of a spec that lets go of the last replica."""
    return {
        "after": after,
        "queuedRequests": {"metric": "gateway_queued", "matchLabels": {"model": "llama"}},
    }


def load(
    running: float = 10.0,
    waiting: float = 0.0,
    kv_usage: float = 0.5,
    age: float = 5.0,
    **latencies: tuple[float, float],
) -> PodLoad:
    """One replica; by default half full. Latencies are (seconds, observations)."""
    means = {name: Mean(*mean) for name, mean in latencies.items()}
    return PodLoad(running, waiting, kv_usage, age, **means)


def measured(*loads: PodLoad, queue: QueueSample | None = None) -> MeasuredLoad:
    """Loads of the pods pod-0, pod-1 and so on."""
    return MeasuredLoad({f"pod-{number}": load for number, load in enumerate(loads)}, queue)


def serving(ready: int, placement: str = "mi300x", **others: int) -> Serving:
    """So many ready replicas of a placement, and after them those of others."""
    names = [placement] * ready
    for name, count in others.items():
        names += [name] * count
    pods = {f"pod-{number}": name for number, name in enumerate(names)}
    return Serving(pods, frozenset(pods), placement, {placement: RECKONED})


def judge(
    *loads: PodLoad, by: ScalingTerms, ready: int | None = None, queue: QueueSample | None = None
) -> LoadEstimate | NoOpinion:
    """What follows from the loads of all ready replicas, or of the first ones."""
    expected = serving(len(loads) if ready is None else ready)
    return judge_load(measured(*loads, queue=queue), expected, by, OLDEST_SECONDS)
