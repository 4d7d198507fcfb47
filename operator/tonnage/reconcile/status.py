"""The status that a plan reports: what was decided, why, and what runs."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from tonnage.api.conditions import Condition, Reason
from tonnage.api.names import LABEL_OWNER
from tonnage.api.status import (
    InferenceDeploymentStatus,
    LastReadyPlan,
    ModelStatus,
    PlacementStatus,
    ProposedPlan,
    RebalanceStatus,
)
from tonnage.fit.weights import stored_bytes
from tonnage.kube.rights import Right
from tonnage.placement.messages import GIB, format_count, tell_fit
from tonnage.placement.report import placement_status, with_candidates
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.attempts import Attempts, read_attempts
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.conditions import all_findings, make_conditions
from tonnage.reconcile.findings import format_time
from tonnage.reconcile.long_endpoint import read_endpoints
from tonnage.reconcile.measurement import measured_status
from tonnage.reconcile.move import MoveReason
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outcome import Scheduled
from tonnage.reconcile.placements import image_of
from tonnage.reconcile.proposal import proposed_plan
from tonnage.reconcile.reported import Remembered, Unobserved, read_unobserved
from tonnage.reconcile.retain import tell_way_back
from tonnage.reconcile.rollback import Rollback
from tonnage.reconcile.status_input import StatusInput
from tonnage.render.names import placement_name
from tonnage.telemetry.cache import MeasuredCache

SPREAD: Final = "Spread"
"""Reason of a placement in addition to the first."""


def make_status(
    observation: Observation, found: StatusInput, now: datetime
) -> InferenceDeploymentStatus:
    """The whole status; what is left out of it disappears from the object. Where the object could
    not be observed, all stays as it was reported but the conditions."""
    previous, generation = observation.previous_status, observation.generation
    conditions = make_conditions(
        all_findings(observation, found), previous.get("conditions") or [], generation, now
    )
    if isinstance(found.accepted, Unobserved):
        changed = {"observed_generation": generation, "conditions": conditions}
        return found.accepted.status.model_copy(update=changed)
    status = InferenceDeploymentStatus(**_fields(observation, found, conditions))
    if found.outcome is None or isinstance(found.accepted, Remembered):
        return status
    return with_candidates(status, found.outcome.decision)


def make_unobserved_status(
    observation: Observation, right: Right, now: datetime
) -> InferenceDeploymentStatus | None:
    """The status of an object whose children, or what it needs, the operator may not read; None
    where an older version wrote the status in a way that cannot be kept."""
    known = read_unobserved(observation.previous_status, observation.generation)
    if known is None:
        return None
    return make_status(observation, StatusInput(known, missing_right=right), now)


def _fields(
    observation: Observation, found: StatusInput, conditions: list[Condition]
) -> dict[str, Any]:
    """The status but for its candidates, which get as much of its size as is left."""
    placements = list(_placements(observation, found))
    attempts = _attempts(observation, found, placements)
    listed = read_endpoints(observation.previous_status)
    if found.endpoints is not None:
        listed = list(found.endpoints.listed)
    return {
        "observed_generation": observation.generation,
        "conditions": conditions,
        "replicas": sum(deployment.existing for deployment in observation.deployments),
        "desired_replicas": found.wanted,
        "ready_replicas": sum(deployment.ready for deployment in observation.deployments),
        "selector": f"{LABEL_OWNER}={observation.key.name}",
        "placements": placements,
        "scaling": found.scaling,
        "last_ready_plan": attempts.last_ready,
        "failed_plans": list(attempts.failed) or None,
        "endpoints": listed or None,
        **_decided(found),
    }


def _decided(found: StatusInput) -> dict[str, Any]:
    """What follows from the decision; where none could be made, as it was before."""
    if isinstance(found.accepted, Remembered):
        before = found.accepted.status
        return {
            "model": before.model,
            "rebalance": before.rebalance,
            "plan": before.plan,
            "proposed_plan": before.proposed_plan,
            "candidates": before.candidates,
            "omitted_candidates": before.omitted_candidates,
        }
    return {
        "model": _model_status(found.accepted) if isinstance(found.accepted, Accepted) else None,
        "rebalance": _rebalance(found),
        "plan": found.approval.plan,
        "proposed_plan": _proposed_plan(found),
    }


def _attempts(
    observation: Observation, found: StatusInput, placements: list[PlacementStatus]
) -> Attempts:
    """What is known of plans, the one among it by which all replicas serve now."""
    known = found.attempts or read_attempts(observation.previous_status)
    target, outcome = found.target, found.outcome
    if not found.plan or target is None or not isinstance(outcome, Scheduled):
        return known
    if not target.settled or not target.ready >= outcome.granted > 0:
        return known
    return known.with_ready(
        LastReadyPlan(
            hash=found.plan,
            generation=observation.generation,
            template=target.template,
            placement=placements[0],
        )
    )


def _rebalance(found: StatusInput) -> RebalanceStatus | None:
    prospect = found.outcome.prospect if isinstance(found.outcome, Scheduled) else None
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


def _proposed_plan(found: StatusInput) -> ProposedPlan | None:
    proposal = found.approval.proposal
    return proposed_plan(proposal) if proposal else None


def _model_status(accepted: Accepted) -> ModelStatus:
    checkpoint = accepted.checkpoint
    return ModelStatus(
        architecture=checkpoint.shape.architecture,
        revision=checkpoint.revision,
        weights_gi_b=round((checkpoint.weights_bytes or stored_bytes(checkpoint.shape)) / GIB, 1),
        max_position_embeddings=checkpoint.shape.max_position_embeddings,
    )


def _placements(observation: Observation, found: StatusInput) -> Iterable[PlacementStatus]:
    """Those that carry the replicas, then others that still exist as they were reported."""
    reported = {one.name: one for one in observation.reported_placements}
    carrying: list[PlacementStatus] = []
    if found.rollback is not None:
        carrying.append(_rolled_back_placement(found.rollback))
    elif isinstance(found.outcome, Scheduled) and not (found.paused and found.target is None):
        carrying.append(_first_placement(observation, found, found.outcome, reported))
        carrying.extend(_secondary_placements(observation, found, found.outcome, reported))
    yield from carrying
    names = {one.name for one in carrying}
    for deployment in observation.deployments:
        if deployment.placement not in names and deployment.placement in reported:
            yield _carried_over(reported[deployment.placement], deployment)


def _first_placement(
    observation: Observation,
    found: StatusInput,
    placed: Scheduled,
    reported: Mapping[str, PlacementStatus],
) -> PlacementStatus:
    """The placement that was taken, with its own part of the cost where others are next to it."""
    name = placement_name(placed.option)
    own, *others = placed.shares
    entry = placement_status(
        placed.decision,
        own.alone if others else placed.option,
        image=found.image,
        replicas=placed.granted,
        ready_replicas=sum(
            deployment.ready
            for deployment in observation.deployments
            if deployment.placement == name
        ),
    )
    further = _measurement(entry, observation, found, reported)
    if others:
        further["weight"] = own.weight_of(placed.shares)
    return entry.model_copy(update={**further, **_migration(entry, found, placed)})


def _migration(entry: PlacementStatus, found: StatusInput, placed: Scheduled) -> dict[str, Any]:
    """How the replicas came there from another pool, where they did."""
    moved = placed.moved
    if moved is None or not isinstance(found.accepted, Accepted):
        return {}
    message = f"{entry.message}; left {moved.pool} at {format_time(moved.at)}: {moved.why}"
    if moved.reason is MoveReason.FELL_BACK:
        message = f"{message}; {tell_way_back(found.accepted.spec)}"
    return {"reason": moved.reason.value, "message": message}


def _secondary_placements(
    observation: Observation,
    found: StatusInput,
    first: Scheduled,
    reported: Mapping[str, PlacementStatus],
) -> Iterable[PlacementStatus]:
    """One entry each, with its own part of the cost and of the work."""
    for one, share in zip(found.secondary, first.beside, strict=True):
        option = one.placed.option
        replicas = format_count(share.replicas, "replica")
        message = f"{tell_fit(option)}; {replicas} beside {first.option.pool.name}"
        entry = placement_status(
            first.decision,
            option,
            image=image_of(one.child),
            replicas=share.replicas,
            ready_replicas=one.live.ready if one.live else 0,
        )
        yield entry.model_copy(
            update={
                "reason": SPREAD,
                "message": f"{message} (spec.placement.spread)",
                "weight": share.weight_of(first.shares),
                **_measurement(entry, observation, found, reported),
            }
        )


def _measurement(
    entry: PlacementStatus,
    observation: Observation,
    found: StatusInput,
    reported: Mapping[str, PlacementStatus],
) -> dict[str, Any]:
    """What vLLM measured of the placement: of just its plan, and in whatever plan."""
    name = entry.name
    reading = next((one for one in found.readings if one.placement == name), None)
    measured, before = observation.measured.get(name), reported.get(name)
    return {
        "measured_kv_cache_tokens": _tokens(entry, measured, before),
        "measured": measured_status(reading) if reading else None,
    }


def _tokens(
    entry: PlacementStatus, measured: MeasuredCache | None, before: PlacementStatus | None
) -> int | None:
    """The tokens that vLLM measured, in whatever plan; where they are not known now, what was known
    of the same split before."""
    if measured is not None:
        return measured.kv_cache_tokens
    if before is None or before.tensor_parallel_size != entry.tensor_parallel_size:
        return None
    return before.measured_kv_cache_tokens


def _rolled_back_placement(back: Rollback) -> PlacementStatus:
    """The placement that the replicas are on again, as it was reported when it served."""
    message = f"returned to, since plan {back.failed.hash} failed: {back.last.placement.message}"
    return back.last.placement.model_copy(
        update={
            "replicas": back.replicas,
            "ready_replicas": back.live.ready,
            "reason": Reason.ROLLED_BACK.value,
            "message": message,
        }
    )


def _carried_over(before: PlacementStatus, deployment: ChildDeployment) -> PlacementStatus:
    return before.model_copy(
        update={"replicas": deployment.wanted, "ready_replicas": deployment.ready}
    )
