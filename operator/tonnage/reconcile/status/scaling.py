"""Report how many replicas the measured load asks for. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.parse import InvalidSpecError
from tonnage.api.scaling import (
    FullReplicaStatus,
    PastRecommendation,
    ScalingStatus,
    SecondaryReplicaStatus,
)
from tonnage.demand.opinion import NoOpinion
from tonnage.demand.window import PastRecommendations, Recommendations
from tonnage.placement.load import FullReplica
from tonnage.reconcile.autoscaling import ByLoad
from tonnage.reconcile.observation.findings import Finding, format_time
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.previous import read_reported
from tonnage.reconcile.rollout.rollback import Rollback
from tonnage.reconcile.scheduling.outcome import PlacementOutcome, Scheduled

_NOT_SAMPLED: Final = NoOpinion("only the operator samples the load")


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
    full_by_name = {one.placement_name: one.full for one in others if one.full is not None}
    return Taken(option.placement_name, option.replicas, option.full, full_by_name)


def report_scaling(
    by_load: ByLoad | None, outcome: PlacementOutcome, rollback: Rollback | None
) -> ScalingStatus | None:
    """The status to report of an accepted spec. None if it does not scale by load."""
    if by_load is None:
        return None
    if rollback is not None:
        last = rollback.last
        taken = Taken(last.placement.name, rollback.wanted, _read_full(last.full_replica))
        return scaling_status(by_load, taken)
    return scaling_status(by_load, taken_by(outcome))


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
        stays = f"the number of wanted replicas stays {wanted}"
        number = "spec.replicas sets the number of replicas" if by_load.is_fixed else stays
        return Reason.NO_OPINION, f"{opinion.why}; {number}"
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


def _report_past(past: Iterable[PastRecommendations]) -> list[PastRecommendation] | None:
    reported = [
        PastRecommendation(replicas=one.replicas, until=format_time(one.until)) for one in past
    ]
    return reported or None


def _read_full(reported: FullReplicaStatus | None) -> FullReplica | None:
    if reported is None:
        return None
    return FullReplica(
        requests_at_once=reported.requests_at_once,
        max_num_seqs=reported.max_num_seqs,
        tokens_per_second=reported.tokens_per_second,
        growth=reported.slowdown_per_request,
    )


def _report_full(full: FullReplica) -> FullReplicaStatus:
    tokens = full.tokens_per_second
    return FullReplicaStatus(
        requests_at_once=full.requests_at_once,
        max_num_seqs=full.max_num_seqs,
        tokens_per_second=None if tokens is None else round(tokens, 3),
        slowdown_per_request=None if full.growth is None else round(full.growth, 6),
    )
