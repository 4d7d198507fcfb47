"""What is to be done about the endpoint for long requests, and what is told of it. Pure.

The endpoint is an InferenceDeployment of its own, so that whatever is done for one (its pool, its
rollouts, its approval) is done for it. The object itself serves the rest, and is ready when both
are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tonnage.api.conditions import Condition, ConditionType, Reason
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.status import EndpointStatus, InferenceDeploymentStatus, reported_status
from tonnage.api.workload import Context
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import Action, Delete, apply_if_changed, stamped
from tonnage.reconcile.case import owner_of
from tonnage.reconcile.children import Child, is_controlled_by
from tonnage.reconcile.findings import Finding, make_conditions
from tonnage.reconcile.long_endpoint import is_listed, read_endpoints
from tonnage.reconcile.observe import Observation
from tonnage.render.long_endpoint import render_long_endpoint
from tonnage.render.names import long_endpoint_name, service_name

_PENDING: Final = "Pending"
"""The reason of a condition that nobody has reported yet."""

_MIRRORED: Final = (
    ConditionType.PROGRESSING,
    ConditionType.RECONCILING,
    ConditionType.STALLED,
    ConditionType.DEGRADED,
)
"""What an object whose own replicas are ready has from the endpoint that is not."""

_UNREPORTED: Final = {ConditionType.PROGRESSING: "True", ConditionType.RECONCILING: "True"}
"""How they stand before anything is reported of it."""


@dataclass(frozen=True, slots=True)
class EndpointPlan:
    """What is to be done, the endpoint as it is to be, the endpoints as the status lists them, and
    what is told because the long one is not ready. `listing`: it is made by the next look, when the
    status lists it."""

    actions: tuple[Action, ...] = ()
    children: tuple[Object, ...] = ()
    endpoints: tuple[EndpointStatus, ...] = ()
    findings: tuple[Finding, ...] = ()
    listing: bool = False


def plan_endpoints(observation: Observation, own: Iterable[Condition]) -> EndpointPlan:
    """Make the long endpoint what is asked for; take it away when nobody asks for it any more.
    `own` are the conditions of the object's own replicas: where they say that nothing was accepted,
    all stays as it is."""
    conditions = {found.type: found for found in own}
    if conditions[ConditionType.ACCEPTED].status != "True":
        return EndpointPlan(endpoints=tuple(read_endpoints(observation.previous_status)))
    if observation.declared is None:
        return _take_away(observation, conditions)
    return _make(observation, observation.declared, conditions[ConditionType.READY])


def tell_endpoints(
    status: InferenceDeploymentStatus, plan: EndpointPlan, observation: Observation, now: datetime
) -> InferenceDeploymentStatus:
    """The status with the endpoints, and with these findings in place of its own."""
    told = {finding.type for finding in plan.findings}
    others = [found for found in status.conditions if found.type not in told]
    before = observation.previous_status.get("conditions") or []
    conditions = make_conditions(plan.findings, before, observation.generation, now)
    listed = list(plan.endpoints) or None
    return status.model_copy(update={"endpoints": listed, "conditions": [*others, *conditions]})


def _make(
    observation: Observation, declared: InferenceDeploymentSpec, ready: Condition
) -> EndpointPlan:
    rendered = render_long_endpoint(owner_of(observation), declared)
    actions = apply_if_changed(INFERENCE_DEPLOYMENTS, rendered, observation.long_endpoint)
    found = {} if actions else _read_conditions(observation.long_endpoint)
    listed = is_listed(observation.previous_status)
    long = _long(observation, declared, found)
    waits = ready.status == "True" and not long.ready
    return EndpointPlan(
        actions=actions if listed else (),
        children=(stamped(rendered),),
        endpoints=(_short(observation, declared, ready), long),
        findings=tuple(_find(observation, declared, found)) if waits else (),
        listing=not listed,
    )


def _take_away(observation: Observation, own: Mapping[str, Condition]) -> EndpointPlan:
    """Only what is ours is deleted, and it is listed until it has gone."""
    live = observation.long_endpoint
    if live is None or not is_controlled_by(live.body, observation.uid):
        return EndpointPlan()
    leaving = "deletionTimestamp" in live.body["metadata"]
    withdraw = Delete(INFERENCE_DEPLOYMENTS, observation.key.namespace, live)
    return EndpointPlan(
        actions=(withdraw,) if not leaving and _may_go(own) else (),
        endpoints=tuple(read_endpoints(observation.previous_status)),
    )


def _may_go(own: Mapping[str, Condition]) -> bool:
    """Whether nobody needs the endpoint any more: the object serves all requests itself, or it has
    no room to, and might have with the GPUs of the endpoint."""
    placed = own[ConditionType.PLACED]
    lacks_room = placed.status == "False" and placed.reason != Reason.AWAITING_APPROVAL
    return lacks_room or own[ConditionType.READY].status == "True"


def _short(
    observation: Observation, declared: InferenceDeploymentSpec, ready: Condition
) -> EndpointStatus:
    name = observation.key.name
    return EndpointStatus(
        context=Context.SHORT,
        service=service_name(name),
        inference_deployment=name,
        max_model_len=declared.workload.short_part.max_model_len,
        ready=ready.status == "True",
        reason=ready.reason,
    )


def _long(
    observation: Observation, declared: InferenceDeploymentSpec, found: Mapping[str, Any]
) -> EndpointStatus:
    name = long_endpoint_name(observation.key.name)
    ready = found.get(ConditionType.READY, {})
    return EndpointStatus(
        context=Context.LONG,
        service=service_name(name),
        inference_deployment=name,
        max_model_len=declared.workload.max_model_len,
        ready=ready.get("status") == "True",
        reason=ready.get("reason", _PENDING),
    )


def _read_conditions(live: Child | None) -> dict[str, Mapping[str, Any]]:
    """The endpoint's own conditions by type, where they speak of its present spec."""
    status = reported_status(live.body) if live else {}
    if live is None or status.get("observedGeneration") != live.body["metadata"]["generation"]:
        return {}
    return {found["type"]: found for found in status.get("conditions") or []}


def _find(
    observation: Observation, declared: InferenceDeploymentSpec, found: Mapping[str, Any]
) -> Iterable[Finding]:
    """Why the object is not ready though its own replicas are, in the endpoint's own words."""
    ready = found.get(ConditionType.READY)
    why = "nothing is reported of it yet"
    if ready is not None:
        why = f"{ready.get('reason', '')}: {ready.get('message', '')}"
    namespace, name = observation.key.namespace, long_endpoint_name(observation.key.name)
    above = declared.workload.short_part.max_model_len
    told = (
        f"InferenceDeployment {namespace}/{name}, which serves requests above {above} tokens,"
        f" is not ready: {why}"
    )
    yield Finding(ConditionType.READY, False, Reason.ENDPOINT_NOT_READY, told)
    statuses = {kind: condition["status"] for kind, condition in found.items()} or _UNREPORTED
    for kind in _MIRRORED:
        holds = statuses.get(kind) == "True"
        yield Finding(kind, holds, Reason.ENDPOINT_NOT_READY, told)
