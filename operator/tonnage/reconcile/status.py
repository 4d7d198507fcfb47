"""The status that a plan reports: what was decided, why, and what runs."""

from collections.abc import Iterable
from datetime import datetime

from tonnage.api.names import LABEL_OWNER
from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.status import (
    InferenceDeploymentStatus,
    ModelStatus,
    PlacementStatus,
    ProposedPlan,
    RebalanceStatus,
)
from tonnage.fit.weights import stored_bytes
from tonnage.placement.report import placement_status, with_candidates
from tonnage.reconcile.accept import Accepted, Refused
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.findings import format_time, make_conditions
from tonnage.reconcile.move import MoveReason
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outlook import GIB, Outlook, find_all
from tonnage.reconcile.place import Placed
from tonnage.reconcile.proposal import proposed_plan
from tonnage.reconcile.remember import Remembered
from tonnage.reconcile.retain import tell_way_back
from tonnage.render.names import placement_name
from tonnage.telemetry.prometheus import MeasuredCache


def make_status(
    observation: Observation, outlook: Outlook, now: datetime
) -> InferenceDeploymentStatus:
    """The whole status; what is left out of it disappears from the object."""
    status = InferenceDeploymentStatus(
        observed_generation=observation.generation,
        conditions=make_conditions(
            find_all(observation, outlook),
            observation.previous_status.get("conditions") or [],
            observation.generation,
            now,
        ),
        replicas=sum(found.existing for found in observation.deployments),
        desired_replicas=outlook.wanted,
        ready_replicas=sum(found.ready for found in observation.deployments),
        selector=f"{LABEL_OWNER}={observation.key.name}",
        model=_model_status(outlook.accepted),
        placements=list(_placements(observation, outlook)),
        rebalance=_rebalance(outlook),
        plan=_plan_in_force(outlook),
        proposed_plan=_proposed_plan(outlook),
    )
    return _with_candidates(status, outlook)


def _rebalance(outlook: Outlook) -> RebalanceStatus | None:
    if isinstance(outlook.accepted, Remembered):
        return outlook.accepted.status.rebalance
    prospect = outlook.placing.prospect if isinstance(outlook.placing, Placed) else None
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
    """The placement decided on, then older ones that still exist as they were reported before."""
    reported = {found.name: found for found in _reported(observation)}
    chosen = ""
    if isinstance(outlook.placing, Placed):
        chosen = placement_name(outlook.placing.option)
        placement = placement_status(
            outlook.placing.decision,
            outlook.placing.option,
            image=outlook.image,
            replicas=outlook.placing.granted,
            ready_replicas=sum(
                found.ready for found in observation.deployments if found.placement == chosen
            ),
        )
        placement = _with_move(placement, outlook.placing, outlook.accepted)
        yield _with_measurement(placement, observation.measured, reported.get(chosen))
    for deployment in observation.deployments:
        if deployment.placement != chosen and deployment.placement in reported:
            yield _carried_over(reported[deployment.placement], deployment)


def _with_move(
    placement: PlacementStatus, placed: Placed, accepted: Accepted | Refused | Remembered
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
    placement: PlacementStatus, measured: MeasuredCache | None, before: PlacementStatus | None
) -> PlacementStatus:
    """What vLLM measured; where nobody knows it now, what was known of the same split before."""
    tokens = measured.kv_cache_tokens if measured else None
    if tokens is None and before is not None:
        same = before.tensor_parallel_size == placement.tensor_parallel_size
        tokens = before.measured_kv_cache_tokens if same else None
    return placement.model_copy(update={"measured_kv_cache_tokens": tokens})


def _reported(observation: Observation) -> Iterable[PlacementStatus]:
    """Placements of the status before; one that an older version wrote otherwise is dropped."""
    for raw in observation.previous_status.get("placements") or []:
        try:
            yield parse_model(PlacementStatus, raw, "status.placements")
        except InvalidSpecError:
            continue


def _carried_over(before: PlacementStatus, deployment: ChildDeployment) -> PlacementStatus:
    return before.model_copy(
        update={"replicas": deployment.wanted, "ready_replicas": deployment.ready}
    )
