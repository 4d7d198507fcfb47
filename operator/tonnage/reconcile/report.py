"""Report the findings: the status, and an event where a condition changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tonnage.api.conditions import Condition, ConditionType, Reason
from tonnage.api.names import API_VERSION, INFERENCE_DEPLOYMENT
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.kube.events import RecordEvent
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.reconcile.execute import Writer
from tonnage.reconcile.observation.migration import MigrationReason
from tonnage.reconcile.observation.observation import Observation

_EVENT_TYPES: Final = (
    ConditionType.ACCEPTED,
    ConditionType.PLACED,
    ConditionType.READY,
    ConditionType.INFERENCE_POOL_APPLIED,
)

_MOVING: Final = "Moving"
_SCALING: Final = "Scaling"
_MOVED: Final = "Moved"
"""Event reason where the user's own change of the spec moved the replicas."""

_MOVES: Final = frozenset(map(str, MigrationReason))

_NORMAL_REASONS: Final = frozenset(
    {Reason.ROLLING_OUT, Reason.CONTAINERS_NOT_READY, Reason.AWAITING_APPROVAL}
)
"""Reasons that every start passes through, or that the user asked for: they cause no Warning."""


async def report(
    writer: Writer,
    record_event: RecordEvent,
    observation: Observation,
    status: InferenceDeploymentStatus,
) -> None:
    """Write the status unless the object has it already. Raises ApiError.

    The resourceVersion makes the write fail when the object is not the one that was observed: a
    status never speaks of a spec that was not planned for, or of a new object of the same name.
    """
    if is_reported(observation, status):
        return
    wanted = status.to_dict()
    identity: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_DEPLOYMENT,
        "metadata": {
            "name": observation.key.name,
            "namespace": observation.key.namespace,
            "uid": observation.uid,
        },
    }
    pinned = {**identity["metadata"], "resourceVersion": observation.resource_version}
    body = {**identity, "metadata": pinned, "status": wanted}
    await writer.apply_status(INFERENCE_DEPLOYMENTS, body)
    before = observation.previous_status.get("conditions") or []
    for condition in find_transitions(before, status.conditions):
        warning = condition.status == "False" and condition.reason not in _NORMAL_REASONS
        record_event(identity, warning, condition.reason, condition.message, condition.type)
    migration = find_migration(observation.previous_status, status)
    if migration is not None:
        record_event(identity, False, migration.reason, migration.note, _MOVING)
    scaling = find_scaling(observation.previous_status, status)
    if scaling is not None:
        record_event(identity, False, scaling.reason, scaling.note, _SCALING)


def is_reported(observation: Observation, status: InferenceDeploymentStatus) -> bool:
    """Whether the object already has this status."""
    return _by_type(status.to_dict()) == _by_type(observation.previous_status)


def _by_type(status: Mapping[str, Any]) -> dict[str, Any]:
    """The status with its conditions sorted by type: the API server keeps them in written order."""
    conditions = sorted(
        status.get("conditions") or [], key=lambda condition: str(condition.get("type"))
    )
    return {**status, "conditions": conditions}


@dataclass(frozen=True, slots=True)
class ReplicaEvent:
    """An event about a migration, or about another number of replicas: its reason, and a note with
    both ends and the cause."""

    reason: str
    note: str


def find_migration(
    before: Mapping[str, Any], after: InferenceDeploymentStatus
) -> ReplicaEvent | None:
    """The change of pools between two statuses; None where the replicas stay, or had no pool.

    A status lists the chosen pool first, if one was chosen; otherwise it lists the pools where
    replicas still run. So a pool that was not chosen then is not where the replicas come from.
    """
    place = _find_chosen(after.to_dict())
    listed = before.get("placements") or []
    if place is None or not listed:
        return None
    chosen = _find_chosen(before)
    if chosen is None:
        reported = any(_was_reported(entry, place) for entry in listed)
        origin = None if reported or place["reason"] not in _MOVES else listed[0]
    else:
        origin = chosen
    if origin is None or origin.get("pool") == place["pool"]:
        return None
    reason = place["reason"] if place["reason"] in _MOVES else _MOVED
    note = f"from pool {origin.get('pool')} to pool {place['pool']}: {place['message']}"
    return ReplicaEvent(reason, note)


def find_scaling(
    before: Mapping[str, Any], after: InferenceDeploymentStatus
) -> ReplicaEvent | None:
    """The change of the number that the measured load asks for; None where it is the same, or the
    first one."""
    scaling, wanted = after.scaling, (before.get("scaling") or {}).get("wantedReplicas")
    if scaling is None or wanted is None or wanted == scaling.wanted_replicas:
        return None
    note = f"from {wanted} to {scaling.wanted_replicas} replicas: {scaling.message}"
    return ReplicaEvent(scaling.reason, note)


def _find_chosen(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The placement on the chosen pool, if any."""
    chosen = {
        candidate.get("pool")
        for candidate in status.get("candidates") or []
        if candidate.get("verdict") == "Chosen"
    }
    first = next(iter(status.get("placements") or []), None)
    return first if first is not None and first.get("pool") in chosen else None


def _was_reported(entry: Mapping[str, Any], place: Mapping[str, Any]) -> bool:
    """Whether the previous status has the migration that brought the replicas to the place."""
    return (entry.get("pool"), entry.get("reason")) == (place["pool"], place["reason"])


def find_transitions(
    before: Iterable[Mapping[str, Any]], after: Iterable[Condition]
) -> list[Condition]:
    """The conditions worth an event: those with another status or reason than before.

    Where one cause changes several conditions, the first of them gets the event. An object that is
    placed at once was accepted, and every object rolls out at first: neither gets an event.
    """
    known = {one.get("type"): (one.get("status"), one.get("reason")) for one in before}
    changed = {
        (condition.reason, condition.message): condition
        for condition in reversed(list(after))
        if condition.type in _EVENT_TYPES
        and condition.reason != Reason.NOT_ACCEPTED
        and not (condition.reason == Reason.ROLLING_OUT and condition.type not in known)
        and known.get(condition.type) != (condition.status, condition.reason)
    }
    transitions = list(reversed(changed.values()))
    reached = {condition.type for condition in transitions if condition.status == "True"}
    if {ConditionType.ACCEPTED, ConditionType.PLACED} <= reached:
        return [condition for condition in transitions if condition.type != ConditionType.ACCEPTED]
    return transitions
