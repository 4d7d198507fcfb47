"""Telling what was found: the status, and an event where something turned."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tonnage.api.conditions import Condition, ConditionType, Reason
from tonnage.api.names import API_VERSION, INFERENCE_DEPLOYMENT
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.reconcile.execute import Writer
from tonnage.reconcile.move import MoveReason
from tonnage.reconcile.observe import Observation

_TOLD: Final = (
    ConditionType.ACCEPTED,
    ConditionType.PLACED,
    ConditionType.READY,
    ConditionType.INFERENCE_POOL_APPLIED,
)


_MOVING: Final = "Moving"
_SCALING: Final = "Scaling"
_MOVED: Final = "Moved"
"""The reason where the user's own change of the spec moved the replicas."""

_MOVES: Final = frozenset(map(str, MoveReason))

_USUAL: Final = frozenset(
    {Reason.ROLLING_OUT, Reason.CONTAINERS_NOT_READY, Reason.AWAITING_APPROVAL}
)
"""What every start passes through, and what somebody asked for; nobody is to be warned of it."""


class EventSink(Protocol):
    """Where turns are told; a failure to tell one never fails a reconcile."""

    async def record(
        self, regarding: Mapping[str, Any], warning: bool, reason: str, note: str, action: str
    ) -> None:
        """Tell of one turn of the object `regarding`."""
        ...


async def report(
    writer: Writer, events: EventSink, observation: Observation, status: InferenceDeploymentStatus
) -> None:
    """Write the status unless it stands there already. Raises ApiError.

    The resourceVersion makes the write fail when the object is not the one that was observed: a
    status must never speak of a spec that nobody planned for, or of a namesake made anew.
    """
    if is_told(observation, status):
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
    for turn in find_turns(before, status.conditions):
        warning = turn.status == "False" and turn.reason not in _USUAL
        await events.record(identity, warning, turn.reason, turn.message, turn.type)
    move = find_move(observation.previous_status, status)
    if move is not None:
        await events.record(identity, False, move.reason, move.note, _MOVING)
    step = find_step(observation.previous_status, status)
    if step is not None:
        await events.record(identity, False, step.reason, step.note, _SCALING)


def is_told(observation: Observation, status: InferenceDeploymentStatus) -> bool:
    """Whether the object's status says that already."""
    return _by_type(status.to_dict()) == _by_type(observation.previous_status)


def _by_type(status: Mapping[str, Any]) -> dict[str, Any]:
    """The status with its conditions in one order: the API server keeps that in which they came."""
    conditions = sorted(status.get("conditions") or [], key=lambda one: str(one.get("type")))
    return {**status, "conditions": conditions}


@dataclass(frozen=True, slots=True)
class ToldMove:
    """A move, or a step to another number of replicas, as an event tells it: why in a word, and
    from where to where and why in a note."""

    reason: str
    note: str


def find_move(before: Mapping[str, Any], after: InferenceDeploymentStatus) -> ToldMove | None:
    """The change of pools between two statuses; None where the replicas stay, or had no pool.

    A status lists the pool that was decided on first, unless none was; then it lists those that
    replicas still run in. So what was not decided on then is no pool that they come from now.
    """
    place = _decided(after.to_dict())
    listed = before.get("placements") or []
    if place is None or not listed:
        return None
    decided = _decided(before)
    if decided is None:
        told = any(_is_told(found, place) for found in listed)
        left = None if told or place["reason"] not in _MOVES else listed[0]
    else:
        left = decided
    if left is None or left.get("pool") == place["pool"]:
        return None
    reason = place["reason"] if place["reason"] in _MOVES else _MOVED
    note = f"from pool {left.get('pool')} to pool {place['pool']}: {place['message']}"
    return ToldMove(reason, note)


def find_step(before: Mapping[str, Any], after: InferenceDeploymentStatus) -> ToldMove | None:
    """The change of the number that the measured load asks for; None where it is the same, or is
    the first one."""
    scaling, wanted = after.scaling, (before.get("scaling") or {}).get("wantedReplicas")
    if scaling is None or wanted is None or wanted == scaling.wanted_replicas:
        return None
    note = f"from {wanted} to {scaling.wanted_replicas} replicas: {scaling.message}"
    return ToldMove(scaling.reason, note)


def _decided(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The placement that was decided on, where one was."""
    chosen = {
        found.get("pool")
        for found in status.get("candidates") or []
        if found.get("verdict") == "Chosen"
    }
    first = next(iter(status.get("placements") or []), None)
    return first if first is not None and first.get("pool") in chosen else None


def _is_told(found: Mapping[str, Any], place: Mapping[str, Any]) -> bool:
    """Whether the move by which the replicas came to the place was seen before."""
    return (found.get("pool"), found.get("reason")) == (place["pool"], place["reason"])


def find_turns(before: Iterable[Mapping[str, Any]], after: Iterable[Condition]) -> list[Condition]:
    """The conditions worth an event: those whose status or reason is another one than before.

    Where one cause turns several conditions, the first of them tells it; what is placed at once was
    accepted; and every object rolls out at first.
    """
    known = {found.get("type"): (found.get("status"), found.get("reason")) for found in before}
    turned = {
        (condition.reason, condition.message): condition
        for condition in reversed(list(after))
        if condition.type in _TOLD
        and condition.reason != Reason.NOT_ACCEPTED
        and not (condition.reason == Reason.ROLLING_OUT and condition.type not in known)
        and known.get(condition.type) != (condition.status, condition.reason)
    }
    told = list(reversed(turned.values()))
    reached = {condition.type for condition in told if condition.status == "True"}
    if {ConditionType.ACCEPTED, ConditionType.PLACED} <= reached:
        return [condition for condition in told if condition.type != ConditionType.ACCEPTED]
    return told
