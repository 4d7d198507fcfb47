"""The number of replicas that the measured load asks for, and what is told of it. Pure.

What has to outlive a reconcile stands in status.scaling: the number itself and the recommendations
that still count. Where it is lost, the number is that of the Deployment, and the stabilization
window begins anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.parse import InvalidSpecError
from tonnage.api.scaling_status import (
    BesideReplicaStatus,
    FullReplicaStatus,
    PastRecommendation,
    ScalingStatus,
)
from tonnage.demand.capacity import ReckonedCapacity
from tonnage.demand.opinion import NoOpinion, Opinion, Serving, judge_load
from tonnage.demand.step import Step, next_step
from tonnage.demand.terms import Terms, terms_of
from tonnage.demand.window import Past, Recommendations
from tonnage.placement.load import Demanded, FullReplica
from tonnage.reconcile.findings import Finding, format_time
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outcome import PlacementOutcome, Scheduled
from tonnage.reconcile.reported import read_reported
from tonnage.reconcile.retain import read_time
from tonnage.reconcile.serving import newest
from tonnage.render.names import placement_name

_OLDEST_INTERVALS: Final = 10
"""Of the interval between two looks: at the usual 15 s older samples than 150 s are stale."""

_NOBODY_LOOKED: Final = NoOpinion("the load is looked at by the operator alone")
_FIRST: Final = NoOpinion("no replica was placed yet, so that the workload decides their number")


@dataclass(frozen=True, slots=True)
class ByLoad:
    """What was found of the load of one object, and the number that follows.

    `opinion` is None where nobody looked: the number stays, and what was told of it. `step` is None
    before anything was placed. `given`: `spec.replicas` is set, so that the number is told and
    nothing else.
    """

    terms: Terms
    opinion: Opinion | NoOpinion | None
    step: Step | None
    given: bool
    before: ScalingStatus | None

    @property
    def demanded(self) -> Demanded | None:
        """The replicas that are to be placed; None where they follow from the spec alone."""
        if self.step is None or self.given:
            return None
        each = self.before.replica if self.before else None  # of the placement that it is meant for
        return Demanded(self.step.replicas, each.tokens_per_second if each else None)

    def demanded_on(self, placement: str) -> int | None:
        """The same for a placement; None where the number is not meant for that."""
        meant = self.before is not None and self.before.placement == placement
        return self.demanded.replicas if meant and self.demanded else None


def follow_load(observation: Observation, interval_seconds: float, now: datetime) -> ByLoad | None:
    """What the load asks for; None where nobody wants to follow it."""
    spec = observation.spec
    if isinstance(spec, InvalidSpecError):
        return None
    terms = terms_of(spec.scaling)
    if terms is None:
        return None
    before = read_reported(ScalingStatus, observation.previous_status.get("scaling"))
    wanted = _wanted_so_far(observation, spec, before)
    given = spec.replicas is not None
    if wanted is None:
        return ByLoad(terms, _FIRST, None, given, before)
    recommendations = _recommendations(before)
    if observation.load is None:
        stays = Step(terms.within(wanted), recommendations or Recommendations(wanted))
        return ByLoad(terms, None, stays, given, before)
    oldest = interval_seconds * _OLDEST_INTERVALS
    measured = observation.load.measured
    opinion = judge_load(measured, _serving(observation, spec, before), terms, oldest)
    step = next_step(wanted, recommendations, opinion, terms, now)
    return ByLoad(terms, opinion, step, given, before)


@dataclass(frozen=True, slots=True)
class Taken:
    """The placement that the replicas are to run on, and how many of them: another pool takes
    another number than the load asks for, and a budget may take fewer. `full` is one of them at its
    fullest, `beside` one of each placement beside."""

    placement: str
    replicas: int
    full: FullReplica | None = None
    beside: Mapping[str, FullReplica] = field(default_factory=dict)


def taken_by(outcome: PlacementOutcome) -> Taken | None:
    """The placement that was taken; None where none was."""
    if not isinstance(outcome, Scheduled):
        return None
    option = outcome.option
    beside = (share.option for share in outcome.beside)
    each = {placement_name(one): one.full for one in beside if one.full is not None}
    return Taken(placement_name(option), option.replicas, option.full, each)


def scaling_status(by_load: ByLoad, taken: Taken | None) -> ScalingStatus | None:
    """What is to be reported; without a placement that was taken, of the one before. None where
    there is nothing yet."""
    step, before = by_load.step, by_load.before
    if step is not None:
        wanted, recommendations = step.replicas, step.recommendations
    elif taken is not None:
        wanted, recommendations = taken.replicas, Recommendations(taken.replicas)
    else:
        return None
    if taken is not None and not by_load.given:
        wanted = taken.replicas
    reason, message = _tell(by_load, wanted, recommendations.now)
    placement, replica = _each(before, taken)
    return ScalingStatus(
        wanted_replicas=wanted,
        recommended_replicas=recommendations.now,
        reason=reason,
        message=message,
        higher=_report(recommendations.higher),
        lower=_report(recommendations.lower),
        placement=placement,
        replica=replica,
        beside=_beside(before, taken),
    )


def _each(
    before: ScalingStatus | None, taken: Taken | None
) -> tuple[str | None, FullReplicaStatus | None]:
    """The placement that the numbers are meant for, and one replica of it at its fullest."""
    if taken is None:
        return (before.placement, before.replica) if before else (None, None)
    if taken.full is not None:
        return taken.placement, _report_full(taken.full)
    known = before is not None and before.placement == taken.placement
    return taken.placement, before.replica if before and known else None


def _beside(before: ScalingStatus | None, taken: Taken | None) -> list[BesideReplicaStatus] | None:
    """One replica of each placement beside that one at its fullest, None without any."""
    if taken is None:
        return before.beside if before else None
    found = [
        BesideReplicaStatus(placement=placement, replica=_report_full(full))
        for placement, full in taken.beside.items()
    ]
    return found or None


def find_scaling(scaling: ScalingStatus | None) -> list[Finding]:
    """Condition ScalingActive, where there is anything to tell of it."""
    if scaling is None:
        return []
    holds = scaling.reason != Reason.NO_OPINION
    return [Finding(ConditionType.SCALING_ACTIVE, holds, scaling.reason, scaling.message)]


def scaling_before(observation: Observation) -> ScalingStatus | None:
    """What was reported last, where the load is to be followed; for whenever nothing is planned."""
    spec = observation.spec
    if isinstance(spec, InvalidSpecError) or spec.scaling.targets is None:
        return None
    return read_reported(ScalingStatus, observation.previous_status.get("scaling"))


def _tell(by_load: ByLoad, wanted: int, recommended: int) -> tuple[str, str]:
    """Reason and message. The numbers are those of the moment when the outcome changed last: if
    they moved with every look, every look would be a write."""
    opinion, before = by_load.opinion, by_load.before
    if opinion is None and before is not None:
        return before.reason, before.message
    if opinion is None:
        opinion = _NOBODY_LOOKED
    if isinstance(opinion, NoOpinion):
        return Reason.NO_OPINION, f"{opinion.why}; {_count(wanted)} stay wanted"
    reason = Reason.REPLICAS_GIVEN if by_load.given else Reason.LOAD_MEASURED
    outcome = (wanted, recommended, reason)
    if before is not None and outcome == (
        before.wanted_replicas,
        before.recommended_replicas,
        before.reason,
    ):
        return reason, before.message
    need = opinion.need
    least = "at least " if opinion.is_bound else ""
    told = (
        f"{opinion.in_flight:.1f} requests in flight, {opinion.capacity:.1f} a replica at most:"
        f" {need.target} asks for {least}{need.replicas:.2f} replicas; {_count(wanted)} wanted"
    )
    if recommended < wanted:
        told = f"{told}, {recommended} once the stabilization window has passed"
    if by_load.given:
        told = f"{told}, but the number stands in spec.replicas"
    return reason, told


def _count(replicas: int) -> str:
    return f"{replicas} replica{'' if replicas == 1 else 's'}"


def _wanted_so_far(
    observation: Observation, spec: InferenceDeploymentSpec, before: ScalingStatus | None
) -> int | None:
    if before is not None:
        return before.wanted_replicas
    if spec.replicas is not None:
        return spec.replicas
    current = newest(observation.deployments)
    return current.wanted if current else None


def _serving(
    observation: Observation, spec: InferenceDeploymentSpec, before: ScalingStatus | None
) -> Serving:
    """Pods that go are left to end what they run."""
    pods = [pod for pod in observation.pods if not pod.deleting]
    current = newest(observation.deployments)
    grows = current.placement if current else ""
    return Serving(
        placements={pod.name: pod.placement for pod in pods},
        ready=frozenset(pod.name for pod in pods if pod.ready),
        next_placement=grows,
        reckoned=_reckoned_of_each(spec, before, grows) if before else {},
    )


def _reckoned_of_each(
    spec: InferenceDeploymentSpec, before: ScalingStatus, grows: str
) -> Mapping[str, ReckonedCapacity]:
    found = {one.placement: _reckoned(spec, one.replica) for one in before.beside or ()}
    return found | ({grows: _reckoned(spec, before.replica)} if before.replica else {})


def _reckoned(spec: InferenceDeploymentSpec, each: FullReplicaStatus) -> ReckonedCapacity:
    tokens = each.tokens_per_second
    return ReckonedCapacity(
        requests_at_once=each.requests_at_once,
        max_num_seqs=each.max_num_seqs,
        requests_per_second=None if tokens is None else tokens / spec.workload.output_tokens,
        growth=each.slowdown_per_request,
    )


def _recommendations(before: ScalingStatus | None) -> Recommendations | None:
    if before is None:
        return None
    return Recommendations(
        before.recommended_replicas, _read(before.higher or ()), _read(before.lower or ())
    )


def _read(past: Iterable[PastRecommendation]) -> tuple[Past, ...]:
    read = ((found.replicas, read_time(found.until)) for found in past)
    return tuple(Past(replicas, until) for replicas, until in read if until is not None)


def _report(past: Iterable[Past]) -> list[PastRecommendation] | None:
    found = [
        PastRecommendation(replicas=each.replicas, until=format_time(each.until)) for each in past
    ]
    return found or None


def _report_full(full: FullReplica) -> FullReplicaStatus:
    each = full.tokens_per_second
    return FullReplicaStatus(
        requests_at_once=full.requests_at_once,
        max_num_seqs=full.max_num_seqs,
        tokens_per_second=None if each is None else round(each, 3),
        slowdown_per_request=None if full.growth is None else round(full.growth, 6),
    )
