"""Make the status that a plan reports: what was decided, why, and what runs."""

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
from tonnage.engines.metrics import MeasuredCache
from tonnage.fit.messages import GIB, format_count
from tonnage.fit.weights.total import stored_bytes
from tonnage.kube.rights import Right
from tonnage.placement.messages import format_fit
from tonnage.placement.report import placement_status, with_candidates
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.calibration import measured_status
from tonnage.reconcile.observation.attempts import Attempts, read_attempts
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.findings import format_time
from tonnage.reconcile.observation.migration import MigrationReason
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.previous import (
    Remembered,
    Unobserved,
    read_endpoints,
    read_unobserved,
)
from tonnage.reconcile.rollout.approval.proposal import proposed_plan
from tonnage.reconcile.rollout.placements import image_of
from tonnage.reconcile.rollout.prefetch import report_waiting
from tonnage.reconcile.rollout.rollback import Rollback
from tonnage.reconcile.scheduling.outcome import Scheduled
from tonnage.reconcile.scheduling.retain import format_return
from tonnage.reconcile.status.adapters import adapter_statuses
from tonnage.reconcile.status.conditions import all_findings, make_conditions
from tonnage.reconcile.status.starting import count_starts
from tonnage.reconcile.status.status_input import StatusInput

SPREAD: Final = "Spread"
"""Reason of a placement in addition to the first."""


def make_status(
    observation: Observation, status_input: StatusInput, now: datetime
) -> InferenceDeploymentStatus:
    """Make the whole status; a field left out disappears from the object. Where the object could
    not be observed, only the conditions change."""
    previous, generation = observation.previous_status, observation.generation
    conditions = make_conditions(
        all_findings(observation, status_input), previous.get("conditions") or [], generation, now
    )
    if isinstance(status_input.accepted, Unobserved):
        changed = {"observed_generation": generation, "conditions": conditions}
        return status_input.accepted.status.model_copy(update=changed)
    status = InferenceDeploymentStatus(**_fields(observation, status_input, conditions))
    if status_input.outcome is None or isinstance(status_input.accepted, Remembered):
        return status
    return with_candidates(status, status_input.outcome.decision)


def make_unobserved_status(
    observation: Observation, right: Right, now: datetime
) -> InferenceDeploymentStatus | None:
    """Make the status of an object whose children, or what it needs, the operator may not read;
    None where an older version wrote the status in a way that cannot be kept."""
    unobserved = read_unobserved(observation.previous_status, observation.generation)
    if unobserved is None:
        return None
    return make_status(observation, StatusInput(unobserved, missing_right=right), now)


def _fields(
    observation: Observation, status_input: StatusInput, conditions: list[Condition]
) -> dict[str, Any]:
    """The status without its candidates, which get the size that is left."""
    placements = list(_placements(observation, status_input))
    attempts = _attempts(observation, status_input, placements)
    listed = read_endpoints(observation.previous_status)
    if status_input.endpoints is not None:
        listed = list(status_input.endpoints.listed)
    return {
        "observed_generation": observation.generation,
        "conditions": conditions,
        "replicas": sum(deployment.existing for deployment in observation.deployments),
        "desired_replicas": status_input.wanted,
        "ready_replicas": sum(deployment.ready for deployment in observation.deployments),
        "starting": count_starts(observation) or None,
        "selector": f"{LABEL_OWNER}={observation.key.name}",
        "placements": placements,
        "scaling": status_input.scaling,
        "last_ready_plan": attempts.last_ready,
        "failed_plans": list(attempts.failed) or None,
        "endpoints": listed or None,
        "adapters": adapter_statuses(observation, status_input.accepted) or None,
        "prefetch": status_input.prefetch.status or report_waiting(observation),
        **_decision_fields(status_input),
    }


def _decision_fields(status_input: StatusInput) -> dict[str, Any]:
    """The fields that follow from the decision; without one they stay as they were."""
    if isinstance(status_input.accepted, Remembered):
        previous = status_input.accepted.status
        return {
            "model": previous.model,
            "rebalance": previous.rebalance,
            "plan": previous.plan,
            "proposed_plan": previous.proposed_plan,
            "available_update": previous.available_update,
            "candidates": previous.candidates,
            "omitted_candidates": previous.omitted_candidates,
        }
    accepted = status_input.accepted
    return {
        "model": _model_status(accepted) if isinstance(accepted, Accepted) else None,
        "rebalance": _rebalance(status_input),
        "plan": status_input.approval.plan,
        "proposed_plan": _proposed_plan(status_input),
        "available_update": status_input.update,
    }


def _attempts(
    observation: Observation, status_input: StatusInput, placements: list[PlacementStatus]
) -> Attempts:
    """The attempts known so far, with this plan as the last ready one once all replicas serve by
    it."""
    known = status_input.attempts or read_attempts(observation.previous_status)
    target, outcome = status_input.target, status_input.outcome
    if not status_input.plan or target is None or not isinstance(outcome, Scheduled):
        return known
    if not target.settled or not target.ready >= outcome.granted > 0:
        return known
    placement, scaling = placements[0], status_input.scaling
    is_same = scaling is not None and scaling.placement == placement.name
    return known.with_ready(
        LastReadyPlan(
            hash=status_input.plan,
            generation=observation.generation,
            template=target.template,
            placement=placement,
            full_replica=scaling.replica if scaling and is_same else None,
        )
    )


def _rebalance(status_input: StatusInput) -> RebalanceStatus | None:
    outcome = status_input.outcome
    migration = outcome.migration if isinstance(outcome, Scheduled) else None
    if migration is None:
        return None
    return RebalanceStatus.model_validate(
        {
            "pool": migration.option.pool.name,
            "reason": migration.reason.value,
            "since": format_time(migration.since),
            "movesAt": format_time(migration.moves_at),
            "message": migration.why,
        }
    )


def _proposed_plan(status_input: StatusInput) -> ProposedPlan | None:
    proposal = status_input.approval.proposal
    return proposed_plan(proposal) if proposal else None


def _model_status(accepted: Accepted) -> ModelStatus:
    checkpoint = accepted.checkpoint
    return ModelStatus(
        architecture=checkpoint.shape.architecture,
        revision=checkpoint.revision,
        weights_gi_b=round((checkpoint.weights_bytes or stored_bytes(checkpoint.shape)) / GIB, 1),
        max_position_embeddings=checkpoint.shape.max_position_embeddings,
    )


def _placements(observation: Observation, status_input: StatusInput) -> Iterable[PlacementStatus]:
    """The placements that carry the replicas, then others that still exist, as they were
    reported."""
    reported = {placement.name: placement for placement in observation.reported_placements}
    outcome = status_input.outcome
    carrying: list[PlacementStatus] = []
    if status_input.rollback is not None:
        carrying.append(_rolled_back_placement(status_input.rollback))
    elif isinstance(outcome, Scheduled) and not (
        status_input.paused and status_input.target is None
    ):
        carrying.append(_first_placement(observation, status_input, outcome, reported))
        carrying.extend(_secondary_placements(observation, status_input, outcome, reported))
    yield from carrying
    names = {placement.name for placement in carrying}
    for deployment in observation.deployments:
        if deployment.placement not in names and deployment.placement in reported:
            yield _carried_over(reported[deployment.placement], deployment)


def _first_placement(
    observation: Observation,
    status_input: StatusInput,
    placed: Scheduled,
    reported: Mapping[str, PlacementStatus],
) -> PlacementStatus:
    """The first placement, with its own part of the cost where there are secondary ones."""
    name = placed.option.placement_name
    own, *others = placed.shares
    entry = placement_status(
        placed.decision,
        own.alone if others else placed.option,
        image=status_input.image,
        replicas=placed.granted,
        ready_replicas=sum(
            deployment.ready
            for deployment in observation.deployments
            if deployment.placement == name
        ),
    )
    further = _measurement(entry, observation, status_input, reported)
    if others:
        further["weight"] = own.weight_of(placed.shares)
    return entry.model_copy(update={**further, **_migration(entry, status_input, placed)})


def _migration(
    entry: PlacementStatus, status_input: StatusInput, placed: Scheduled
) -> dict[str, Any]:
    """How the replicas came there from another pool, if they did."""
    migration = placed.last_migration
    if migration is None or not isinstance(status_input.accepted, Accepted):
        return {}
    message = (
        f"{entry.message}; left {migration.pool} at {format_time(migration.at)}: {migration.why}"
    )
    if migration.reason is MigrationReason.FELL_BACK:
        message = f"{message}; {format_return(status_input.accepted.spec)}"
    return {"reason": migration.reason.value, "message": message}


def _secondary_placements(
    observation: Observation,
    status_input: StatusInput,
    first: Scheduled,
    reported: Mapping[str, PlacementStatus],
) -> Iterable[PlacementStatus]:
    """One entry for each secondary placement, with its own part of the cost and of the work."""
    for secondary, share in zip(status_input.secondary, first.secondary, strict=True):
        option = secondary.placed.option
        replicas = format_count(share.replicas, "replica")
        message = f"{format_fit(option)}; {replicas} next to {first.option.pool.name}"
        entry = placement_status(
            first.decision,
            option,
            image=image_of(secondary.child),
            replicas=share.replicas,
            ready_replicas=secondary.live.ready if secondary.live else 0,
        )
        yield entry.model_copy(
            update={
                "reason": SPREAD,
                "message": f"{message} (spec.placement.spread)",
                "weight": share.weight_of(first.shares),
                **_measurement(entry, observation, status_input, reported),
            }
        )


def _measurement(
    entry: PlacementStatus,
    observation: Observation,
    status_input: StatusInput,
    reported: Mapping[str, PlacementStatus],
) -> dict[str, Any]:
    """What the engine measured of the placement: of exactly its plan, and of any plan."""
    name = entry.name
    reading = next((one for one in status_input.readings if one.placement == name), None)
    measured, before = observation.measured.get(name), reported.get(name)
    return {
        "measured_kv_cache_tokens": _measured_tokens(entry, measured, before),
        "measured": measured_status(reading) if reading else None,
    }


def _measured_tokens(
    entry: PlacementStatus, measured: MeasuredCache | None, reported: PlacementStatus | None
) -> int | None:
    """The tokens that the engine measured, in any plan; where they are unknown now, the earlier
    number of the same tensor parallel size."""
    if measured is not None:
        return measured.kv_cache_tokens
    if reported is None or reported.tensor_parallel_size != entry.tensor_parallel_size:
        return None
    return reported.measured_kv_cache_tokens


def _rolled_back_placement(rollback: Rollback) -> PlacementStatus:
    """The placement that the replicas returned to, as it was reported when it served."""
    placement = rollback.last.placement
    message = f"returned to, since plan {rollback.failed.hash} failed: {placement.message}"
    return placement.model_copy(
        update={
            "pool": rollback.pool,
            "replicas": rollback.replicas,
            "ready_replicas": rollback.live.ready,
            "reason": Reason.ROLLED_BACK.value,
            "message": message,
        }
    )


def _carried_over(reported: PlacementStatus, deployment: ChildDeployment) -> PlacementStatus:
    return reported.model_copy(
        update={"replicas": deployment.wanted, "ready_replicas": deployment.ready}
    )
