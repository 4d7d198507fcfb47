"""The number of replicas that the measured load asks for. Pure.

status.scaling keeps what has to outlive a reconcile: the number itself and the recommendations that
still count. If it is lost, the Deployment's number stands, and the stabilization window restarts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.parse import InvalidSpecError
from tonnage.api.scaling import (
    FullReplicaStatus,
    PastRecommendation,
    ScalingStatus,
)
from tonnage.demand.capacity import EstimatedCapacity
from tonnage.demand.opinion import LoadEstimate, NoOpinion, Serving, judge_load
from tonnage.demand.step import ScalingStep, next_step
from tonnage.demand.terms import ScalingTerms, terms_of
from tonnage.demand.window import PastRecommendations, Recommendations
from tonnage.placement.load import Demanded
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.previous import read_reported, read_time
from tonnage.reconcile.observation.serving import newest

_OLDEST_INTERVALS: Final = 10
"""In scaling intervals: at the default of 15 s, samples older than 150 s are stale."""

_NOT_PLACED: Final = NoOpinion("no replica was placed yet: the workload decides their number")


@dataclass(frozen=True, slots=True)
class ByLoad:
    """The opinion on the load of one object, and the number of replicas that follows.

    `opinion` is None if the load was not sampled: the number and its report stay. `step` is None
    before the first placement. `is_fixed`: `spec.replicas` is set, so the number is only reported.
    """

    terms: ScalingTerms
    opinion: LoadEstimate | NoOpinion | None
    step: ScalingStep | None
    is_fixed: bool
    previous: ScalingStatus | None

    @property
    def demanded(self) -> Demanded | None:
        """The replicas to place; None if they follow from the spec alone."""
        if self.step is None or self.is_fixed:
            return None
        replica = self.previous.replica if self.previous else None  # of the number's placement
        return Demanded(self.step.replicas, replica.tokens_per_second if replica else None)

    def demanded_on(self, placement: str) -> int | None:
        """The same for one placement; None if the number is meant for another."""
        applies = self.previous is not None and self.previous.placement == placement
        return self.demanded.replicas if applies and self.demanded else None


def follow_load(observation: Observation, interval_seconds: float, now: datetime) -> ByLoad | None:
    """What the load asks for; None if the spec does not scale by load."""
    spec = observation.spec
    if isinstance(spec, InvalidSpecError):
        return None
    terms = terms_of(spec.scaling)
    if terms is None:
        return None
    previous = read_reported(ScalingStatus, observation.previous_status.get("scaling"))
    wanted = _wanted_so_far(observation, spec, previous)
    is_fixed = spec.replicas is not None
    if wanted is None:
        return ByLoad(terms, _NOT_PLACED, None, is_fixed, previous)
    recommendations = _read_recommendations(previous, now)
    if observation.load is None:
        unchanged = ScalingStep(terms.within(wanted), recommendations or Recommendations(wanted))
        return ByLoad(terms, None, unchanged, is_fixed, previous)
    max_age_seconds = interval_seconds * _OLDEST_INTERVALS
    measured = observation.load.measured
    opinion = judge_load(
        measured, _read_serving(observation, spec, previous), terms, max_age_seconds
    )
    step = next_step(wanted, recommendations, opinion, terms, now)
    return ByLoad(terms, opinion, step, is_fixed, previous)


def _wanted_so_far(
    observation: Observation, spec: InferenceDeploymentSpec, previous: ScalingStatus | None
) -> int | None:
    if previous is not None:
        return previous.wanted_replicas
    if spec.replicas is not None:
        return spec.replicas
    current = newest(observation.deployments)
    return current.wanted if current else None


def _read_serving(
    observation: Observation, spec: InferenceDeploymentSpec, previous: ScalingStatus | None
) -> Serving:
    """The replicas that take load; terminating pods only end their requests."""
    pods = [pod for pod in observation.pods if pod.serves and not pod.deleting]
    current = newest(observation.deployments)
    next_placement = current.placement if current else ""
    return Serving(
        placements={pod.name: pod.placement for pod in pods},
        ready=frozenset(pod.name for pod in pods if pod.ready),
        next_placement=next_placement,
        reckoned=_reckon_all(spec, previous, next_placement) if previous else {},
    )


def _reckon_all(
    spec: InferenceDeploymentSpec, previous: ScalingStatus, next_placement: str
) -> Mapping[str, EstimatedCapacity]:
    capacities = {one.placement: _reckon(spec, one.replica) for one in previous.beside or ()}
    if previous.replica:
        capacities[next_placement] = _reckon(spec, previous.replica)
    return capacities


def _reckon(spec: InferenceDeploymentSpec, replica: FullReplicaStatus) -> EstimatedCapacity:
    tokens = replica.tokens_per_second
    return EstimatedCapacity(
        requests_at_once=replica.requests_at_once,
        max_num_seqs=replica.max_num_seqs,
        requests_per_second=None if tokens is None else tokens / spec.workload.output_tokens,
        growth=replica.slowdown_per_request,
    )


def _read_recommendations(previous: ScalingStatus | None, now: datetime) -> Recommendations | None:
    if previous is None:
        return None
    return Recommendations(
        previous.recommended_replicas,
        _read_past(previous.higher or (), now),
        _read_past(previous.lower or (), now),
    )


def _read_past(
    past: Iterable[PastRecommendation], now: datetime
) -> tuple[PastRecommendations, ...]:
    """Past recommendations. One that ended in the future is of a clock that was ahead, and would
    count until then and for a window more: it ends now."""
    times = ((one.replicas, read_time(one.until)) for one in past)
    return tuple(
        PastRecommendations(replicas, min(until, now))
        for replicas, until in times
        if until is not None
    )
