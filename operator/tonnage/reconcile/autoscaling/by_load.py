"""The number of replicas that the measured load asks for, and how status reports it. Pure.

status.scaling keeps what has to outlive a reconcile: the number itself and the recommendations that
still count. If it is lost, the Deployment's number stands, and the stabilization window restarts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.parse import InvalidSpecError
from tonnage.api.scaling_status import (
    FullReplicaStatus,
    PastRecommendation,
    ScalingStatus,
    SecondaryReplicaStatus,
)
from tonnage.demand.capacity import EstimatedCapacity
from tonnage.demand.opinion import LoadEstimate, NoOpinion, Serving, judge_load
from tonnage.demand.step import ScalingStep, next_step
from tonnage.demand.terms import ScalingTerms, terms_of
from tonnage.demand.window import PastRecommendations, Recommendations
from tonnage.placement.load import Demanded, FullReplica
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.rollout.serving import newest
from tonnage.reconcile.scheduling.outcome import PlacementOutcome, Scheduled
from tonnage.reconcile.scheduling.retain import read_time
from tonnage.reconcile.status.findings import Finding, format_time
from tonnage.reconcile.status.previous import read_reported
from tonnage.workloads.names import placement_name

_OLDEST_INTERVALS: Final = 10
"""In scaling intervals: at the default of 15 s, samples older than 150 s are stale."""

_NOT_SAMPLED: Final = NoOpinion("only the operator samples the load")
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
    recommendations = _read_recommendations(previous)
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


@dataclass(frozen=True, slots=True)
class Taken:
    """The chosen placement and its number of replicas, which can differ from what the load asks
    for: on another pool, or under a budget. `full` is one replica at full load, `secondary` one of
    each secondary placement."""

    placement: str
    replicas: int
    full: FullReplica | None = None
    secondary: Mapping[str, FullReplica] = field(default_factory=dict)


def taken_by(outcome: PlacementOutcome) -> Taken | None:
    """The chosen placement; None without one."""
    if not isinstance(outcome, Scheduled):
        return None
    option = outcome.option
    others = (share.option for share in outcome.secondary)
    full_by_name = {placement_name(one): one.full for one in others if one.full is not None}
    return Taken(placement_name(option), option.replicas, option.full, full_by_name)


def scaling_status(by_load: ByLoad, taken: Taken | None) -> ScalingStatus | None:
    """The status to report, of the chosen placement or else of the previous one. None before the
    first placement."""
    step, previous = by_load.step, by_load.previous
    if step is not None:
        wanted, recommendations = step.replicas, step.recommendations
    elif taken is not None:
        wanted, recommendations = taken.replicas, Recommendations(taken.replicas)
    else:
        return None
    if taken is not None and not by_load.is_fixed:
        wanted = taken.replicas
    reason, message = _explain(by_load, wanted, recommendations.now)
    placement, replica = _replica_status(previous, taken)
    return ScalingStatus(
        wanted_replicas=wanted,
        recommended_replicas=recommendations.now,
        reason=reason,
        message=message,
        higher=_report_past(recommendations.higher),
        lower=_report_past(recommendations.lower),
        placement=placement,
        replica=replica,
        beside=_secondary_status(previous, taken),
    )


def _replica_status(
    previous: ScalingStatus | None, taken: Taken | None
) -> tuple[str | None, FullReplicaStatus | None]:
    """The placement that the numbers apply to, and one replica of it at full load."""
    if taken is None:
        return (previous.placement, previous.replica) if previous else (None, None)
    if taken.full is not None:
        return taken.placement, _report_full(taken.full)
    same = previous is not None and previous.placement == taken.placement
    return taken.placement, previous.replica if previous and same else None


def _secondary_status(
    previous: ScalingStatus | None, taken: Taken | None
) -> list[SecondaryReplicaStatus] | None:
    """One replica of each secondary placement at full load, None without any."""
    if taken is None:
        return previous.beside if previous else None
    replicas = [
        SecondaryReplicaStatus(placement=placement, replica=_report_full(full))
        for placement, full in taken.secondary.items()
    ]
    return replicas or None


def find_scaling(scaling: ScalingStatus | None) -> list[Finding]:
    """Condition ScalingActive; none if the object does not scale by load."""
    if scaling is None:
        return []
    holds = scaling.reason != Reason.NO_OPINION
    return [Finding(ConditionType.SCALING_ACTIVE, holds, scaling.reason, scaling.message)]


def scaling_before(observation: Observation) -> ScalingStatus | None:
    """The previous status.scaling if the spec scales by load, for a reconcile without a plan."""
    spec = observation.spec
    if isinstance(spec, InvalidSpecError) or spec.scaling.targets is None:
        return None
    return read_reported(ScalingStatus, observation.previous_status.get("scaling"))


def _explain(by_load: ByLoad, wanted: int, recommended: int) -> tuple[str, str]:
    """Reason and message. The numbers are of the moment when the outcome last changed: numbers that
    change with every sample would cause a status write each."""
    opinion, previous = by_load.opinion, by_load.previous
    if opinion is None and previous is not None:
        return previous.reason, previous.message
    if opinion is None:
        opinion = _NOT_SAMPLED
    if isinstance(opinion, NoOpinion):
        return Reason.NO_OPINION, f"{opinion.why}; {_count(wanted)} stay wanted"
    reason = Reason.REPLICAS_GIVEN if by_load.is_fixed else Reason.LOAD_MEASURED
    outcome = (wanted, recommended, reason)
    if previous is not None and outcome == (
        previous.wanted_replicas,
        previous.recommended_replicas,
        previous.reason,
    ):
        return reason, previous.message
    need = opinion.need
    least = "at least " if opinion.is_lower_bound else ""
    message = (
        f"{opinion.in_flight:.1f} requests in flight, {opinion.capacity:.1f} a replica at most:"
        f" {need.target} asks for {least}{need.replicas:.2f} replicas; {_count(wanted)} wanted"
    )
    if recommended < wanted:
        message = f"{message}, {recommended} once the stabilization window has passed"
    if by_load.is_fixed:
        message = f"{message}, but spec.replicas sets the number"
    return reason, message


def _count(replicas: int) -> str:
    return f"{replicas} replica{'' if replicas == 1 else 's'}"


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
    pods = [pod for pod in observation.pods if not pod.deleting]
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


def _read_recommendations(previous: ScalingStatus | None) -> Recommendations | None:
    if previous is None:
        return None
    return Recommendations(
        previous.recommended_replicas,
        _read_past(previous.higher or ()),
        _read_past(previous.lower or ()),
    )


def _read_past(past: Iterable[PastRecommendation]) -> tuple[PastRecommendations, ...]:
    times = ((one.replicas, read_time(one.until)) for one in past)
    return tuple(
        PastRecommendations(replicas, until) for replicas, until in times if until is not None
    )


def _report_past(past: Iterable[PastRecommendations]) -> list[PastRecommendation] | None:
    reported = [
        PastRecommendation(replicas=one.replicas, until=format_time(one.until)) for one in past
    ]
    return reported or None


def _report_full(full: FullReplica) -> FullReplicaStatus:
    tokens = full.tokens_per_second
    return FullReplicaStatus(
        requests_at_once=full.requests_at_once,
        max_num_seqs=full.max_num_seqs,
        tokens_per_second=None if tokens is None else round(tokens, 3),
        slowdown_per_request=None if full.growth is None else round(full.growth, 6),
    )
