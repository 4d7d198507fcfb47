"""Telling what was found: the status, and an event where something turned."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from tonnage.api.conditions import Condition, ConditionType, Reason
from tonnage.api.names import API_VERSION, INFERENCE_DEPLOYMENT
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import KubeApi
from tonnage.reconcile.observe import Observation

_TOLD: Final = (ConditionType.ACCEPTED, ConditionType.PLACED, ConditionType.READY)


_USUAL: Final = frozenset({Reason.ROLLING_OUT, Reason.CONTAINERS_NOT_READY})
"""What every start passes through; nobody is to be warned of it."""


class EventSink(Protocol):
    """Where turns are told; a failure to tell one never fails a reconcile."""

    async def record(
        self, regarding: Mapping[str, Any], warning: bool, reason: str, note: str, action: str
    ) -> None:
        """Tell of one turn of the object `regarding`."""
        ...


async def report(
    api: KubeApi, events: EventSink, observation: Observation, status: InferenceDeploymentStatus
) -> None:
    """Write the status unless it stands there already. Raises ApiError.

    The resourceVersion makes the write fail when the object is not the one that was observed: a
    status must never speak of a spec that nobody planned for, or of a namesake made anew.
    """
    wanted = status.to_dict()
    if wanted == observation.previous_status:
        return
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
    await api.apply_status(INFERENCE_DEPLOYMENTS, body)
    before = observation.previous_status.get("conditions") or []
    for turn in find_turns(before, status.conditions):
        warning = turn.status == "False" and turn.reason not in _USUAL
        await events.record(identity, warning, turn.reason, turn.message, turn.type)


def find_turns(before: Iterable[Mapping[str, Any]], after: Iterable[Condition]) -> list[Condition]:
    """The conditions worth an event: those whose status or reason is another one than before.

    Where one cause turns several conditions, the first of them tells it.
    """
    known = {found.get("type"): (found.get("status"), found.get("reason")) for found in before}
    turned = {
        (condition.reason, condition.message): condition
        for condition in reversed(list(after))
        if condition.type in _TOLD
        and condition.reason != Reason.NOT_ACCEPTED
        and known.get(condition.type) != (condition.status, condition.reason)
    }
    return list(reversed(turned.values()))
