"""The status that a plan reports: what was decided, why, and what runs."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from tonnage.api.names import LABEL_OWNER
from tonnage.api.scaling_status import ScalingStatus
from tonnage.api.status import (
    InferenceDeploymentStatus,
    LastReadyPlan,
    ModelStatus,
    PlacementStatus,
    ProposedPlan,
    RebalanceStatus,
)
from tonnage.fit.weights import stored_bytes
from tonnage.placement.report import placement_status, with_candidates
from tonnage.reconcile.accept import Accepted, Refused
from tonnage.reconcile.attempts import Attempts, read_attempts
from tonnage.reconcile.beside_status import beside_status
from tonnage.reconcile.by_load import Taken, find_scaling, scaling_before, scaling_status
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.findings import format_time, make_conditions
from tonnage.reconcile.long_endpoint import read_endpoints
from tonnage.reconcile.measurement import measured_status
from tonnage.reconcile.move import MoveReason
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outcome import Scheduled
from tonnage.reconcile.outlook import GIB, Outlook, find_all
from tonnage.reconcile.proposal import proposed_plan
from tonnage.reconcile.remember import Remembered
from tonnage.reconcile.reported import read_placements
from tonnage.reconcile.retain import tell_way_back
from tonnage.reconcile.rolled_back import rolled_back_placement
from tonnage.render.names import placement_name
from tonnage.telemetry.cache import MeasuredCache


def make_status(
    observation: Observation, outlook: Outlook, now: datetime
) -> InferenceDeploymentStatus:
    """The whole status; what is left out of it disappears from the object."""
    scaling = _scaling(observation, outlook)
    placements = list(_placements(observation, outlook))
    attempts = _attempts(observation, outlook, placements)
    status = InferenceDeploymentStatus(
        observed_generation=observation.generation,
        conditions=make_conditions(
            [*find_all(observation, outlook), *find_scaling(scaling)],
            observation.previous_status.get("conditions") or [],
            observation.generation,
            now,
        ),
        replicas=sum(found.existing for found in observation.deployments),
        desired_replicas=outlook.wanted,
        ready_replicas=sum(found.ready for found in observation.deployments),
        selector=f"{LABEL_OWNER}={observation.key.name}",
        model=_model_status(outlook.accepted),
        placements=placements,
        rebalance=_rebalance(outlook),
        scaling=scaling,
        plan=_plan_in_force(outlook),
        proposed_plan=_proposed_plan(outlook),
        last_ready_plan=attempts.last_ready,
        failed_plans=list(attempts.failed) or None,
        endpoints=read_endpoints(observation.previous_status) or None,
    )
    return _with_candidates(status, outlook)


def _attempts(
    observation: Observation, outlook: Outlook, placements: list[PlacementStatus]
) -> Attempts:
    """What is known of plans, the one among it by which all replicas serve now."""
    known = outlook.attempts or read_attempts(observation.previous_status)
    target, placing = outlook.target, outlook.placing
    if not outlook.plan or target is None or not isinstance(placing, Scheduled):
        return known
    if not target.settled or not target.ready >= placing.granted > 0:
        return known
    return known.with_ready(
        LastReadyPlan(
            hash=outlook.plan,
            generation=observation.generation,
            template=target.template,
            placement=placements[0],
        )
    )


def _rebalance(outlook: Outlook) -> RebalanceStatus | None:
    if isinstance(outlook.accepted, Remembered):
        return outlook.accepted.status.rebalance
    prospect = outlook.placing.prospect if isinstance(outlook.placing, Scheduled) else None
    if prospect is None:
        return None
    return RebalanceStatus.model_validate(
        {
            "pool": prospect.option.pool.name,
            "reason": prospect.reason.value,
            "since": format_time(prospect.since),
            "movesAt": format_time(prospect.moves_at),
            "message": prospect.why,
        }
    )


def _scaling(observation: Observation, outlook: Outlook) -> ScalingStatus | None:
    if not isinstance(outlook.accepted, Accepted):
        return scaling_before(observation)
    by_load = outlook.accepted.by_load
    return scaling_status(by_load, _taken(outlook)) if by_load else None


def _taken(outlook: Outlook) -> Taken | None:
    if outlook.way_back is not None:
        return Taken(outlook.way_back.last.placement.name, outlook.way_back.wanted)
    if not isinstance(outlook.placing, Scheduled):
        return None
    option = outlook.placing.option
    beside = (share.option for share in outlook.placing.beside)
    each = {placement_name(one): one.full for one in beside if one.full is not None}
    return Taken(placement_name(option), option.replicas, option.full, each)


def _plan_in_force(outlook: Outlook) -> str | None:
    if isinstance(outlook.accepted, Remembered):
        return outlook.accepted.status.plan
    return outlook.standing.plan


def _proposed_plan(outlook: Outlook) -> ProposedPlan | None:
    if isinstance(outlook.accepted, Remembered):
        return outlook.accepted.status.proposed_plan
    proposal = outlook.standing.proposal
    return proposed_plan(proposal) if proposal else None


def _with_candidates(
    status: InferenceDeploymentStatus, outlook: Outlook
) -> InferenceDeploymentStatus:
    if isinstance(outlook.accepted, Remembered):
        before = outlook.accepted.status
        listed = {
            "candidates": before.candidates,
            "omitted_candidates": before.omitted_candidates,
        }
        return status.model_copy(update=listed)
    return with_candidates(status, outlook.placing.decision) if outlook.placing else status


def _model_status(accepted: Accepted | Refused | Remembered) -> ModelStatus | None:
    if isinstance(accepted, Remembered):
        return accepted.status.model
    if isinstance(accepted, Refused):
        return None
    checkpoint = accepted.checkpoint
    return ModelStatus(
        architecture=checkpoint.shape.architecture,
        revision=checkpoint.revision,
        weights_gi_b=round((checkpoint.weights_bytes or stored_bytes(checkpoint.shape)) / GIB, 1),
        max_position_embeddings=checkpoint.shape.max_position_embeddings,
    )


def _placements(observation: Observation, outlook: Outlook) -> Iterable[PlacementStatus]:
    """The one that carries the replicas, then others that still exist as they were reported."""
    reported = {found.name: found for found in read_placements(observation.previous_status)}
    names: set[str] = set()
    if outlook.way_back is not None:
        returned = rolled_back_placement(outlook.way_back)
        names.add(returned.name)
        yield returned
    elif isinstance(outlook.placing, Scheduled) and not (outlook.paused and outlook.target is None):
        placement = _chosen_placement(observation, outlook.placing, outlook.image)
        placement = _with_move(placement, outlook.placing, outlook.accepted)
        for found in (placement, *beside_status(outlook.placing, outlook.beside)):
            names.add(found.name)
            yield _with_measurement(found, observation, outlook, reported)
    for deployment in observation.deployments:
        if deployment.placement not in names and deployment.placement in reported:
            yield _carried_over(reported[deployment.placement], deployment)


def _chosen_placement(observation: Observation, placed: Scheduled, image: str) -> PlacementStatus:
    """The placement that was taken, with its own part of the cost where others are beside it."""
    name = placement_name(placed.option)
    ready = sum(found.ready for found in observation.deployments if found.placement == name)
    own, *others = placed.shares
    found = placement_status(
        placed.decision,
        own.alone if others else placed.option,
        image=image,
        replicas=placed.granted,
        ready_replicas=ready,
    )
    if not others:
        return found
    return found.model_copy(update={"weight": own.weight_of(placed.shares)})


def _with_move(
    placement: PlacementStatus, placed: Scheduled, accepted: Accepted | Refused | Remembered
) -> PlacementStatus:
    """How the replicas came there from another pool, where they did."""
    moved = placed.moved
    if moved is None or not isinstance(accepted, Accepted):
        return placement
    told = f"{placement.message}; left {moved.pool} at {format_time(moved.at)}: {moved.why}"
    if moved.reason is MoveReason.FELL_BACK:
        told = f"{told}; {tell_way_back(accepted.spec)}"
    return placement.model_copy(update={"reason": moved.reason.value, "message": told})


def _with_measurement(
    placement: PlacementStatus,
    observation: Observation,
    outlook: Outlook,
    reported: Mapping[str, PlacementStatus],
) -> PlacementStatus:
    """The placement, with what vLLM measured of it: of just its plan, and in whatever plan."""
    name = placement.name
    reading = next((found for found in outlook.readings if found.placement == name), None)
    update = {
        "measured_kv_cache_tokens": _tokens(
            placement, observation.measured.get(name), reported.get(name)
        ),
        "measured": measured_status(reading) if reading else None,
    }
    return placement.model_copy(update=update)


def _tokens(
    placement: PlacementStatus, measured: MeasuredCache | None, before: PlacementStatus | None
) -> int | None:
    """The tokens that vLLM measured, in whatever plan; where nobody knows them now, what was known
    of the same split before."""
    if measured is not None:
        return measured.kv_cache_tokens
    if before is None or before.tensor_parallel_size != placement.tensor_parallel_size:
        return None
    return before.measured_kv_cache_tokens


def _carried_over(before: PlacementStatus, deployment: ChildDeployment) -> PlacementStatus:
    return before.model_copy(
        update={"replicas": deployment.wanted, "ready_replicas": deployment.ready}
    )
