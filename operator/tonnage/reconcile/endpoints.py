"""What is to be done about the endpoint for long requests, and what is told of it. Pure.

The endpoint is an InferenceDeployment of its own, so that whatever is done for one (its pool, its
rollouts, its approval) is done for it. The object itself serves the rest, and is ready when both
are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.status import EndpointStatus, reported_status
from tonnage.api.workload import Context
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Object
from tonnage.reconcile.accept import Refused
from tonnage.reconcile.actions import Action, Delete, apply_if_changed, stamped
from tonnage.reconcile.children import Child, is_controlled_by
from tonnage.reconcile.conditions import own_findings
from tonnage.reconcile.context import owner_of
from tonnage.reconcile.findings import Finding
from tonnage.reconcile.long_endpoint import is_listed, read_endpoints
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.reported import Unobserved
from tonnage.reconcile.status_input import EndpointFindings, StatusInput
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
    """What is to be done, the endpoint as it is to be, and what was found. `listing`: it is made by
    the next reconcile, when the status lists it."""

    findings: EndpointFindings
    actions: tuple[Action, ...] = ()
    children: tuple[Object, ...] = ()
    listing: bool = False


def plan_endpoints(observation: Observation, found: StatusInput) -> EndpointPlan:
    """Make the long endpoint what is asked for; take it away when nobody asks for it any more.
    Where the spec was not accepted, all stays as it is."""
    if isinstance(found.accepted, Refused | Unobserved):
        return EndpointPlan(EndpointFindings(_listed_before(observation)))
    if observation.declared is None:
        return _take_away(observation, found)
    return _make(observation, observation.declared, found)


def _make(
    observation: Observation, declared: InferenceDeploymentSpec, found: StatusInput
) -> EndpointPlan:
    ready = _by_type(observation, found)[ConditionType.READY]
    wanted = stamped(render_long_endpoint(owner_of(observation), declared))
    actions = apply_if_changed(INFERENCE_DEPLOYMENTS, wanted, observation.long_endpoint)
    reported = {} if actions else _read_conditions(observation.long_endpoint)
    listed = is_listed(observation.previous_status)
    long = _long(observation, declared, reported)
    waits = ready.holds and not long.ready
    findings = tuple(_not_ready(observation, declared, reported)) if waits else ()
    return EndpointPlan(
        findings=EndpointFindings((_short(observation, declared, ready), long), findings),
        actions=actions if listed else (),
        children=(wanted,),
        listing=not listed,
    )


def _take_away(observation: Observation, found: StatusInput) -> EndpointPlan:
    """Only what is ours is deleted, and it is listed until it has gone."""
    live = observation.long_endpoint
    if live is None or not is_controlled_by(live.body, observation.uid):
        return EndpointPlan(EndpointFindings())
    leaving = "deletionTimestamp" in live.body["metadata"]
    may_go = not leaving and _may_go(_by_type(observation, found))
    withdraw = Delete(INFERENCE_DEPLOYMENTS, observation.key.namespace, live)
    return EndpointPlan(
        findings=EndpointFindings(_listed_before(observation)),
        actions=(withdraw,) if may_go else (),
    )


def _by_type(observation: Observation, found: StatusInput) -> dict[ConditionType, Finding]:
    """What was found of the object's own replicas."""
    return {finding.type: finding for finding in own_findings(observation, found)}


def _listed_before(observation: Observation) -> tuple[EndpointStatus, ...]:
    return tuple(read_endpoints(observation.previous_status))


def _may_go(own: Mapping[ConditionType, Finding]) -> bool:
    """Whether nobody needs the endpoint any more: the object serves all requests itself, or it has
    no room to, and might have with the GPUs of the endpoint."""
    placed = own[ConditionType.PLACED]
    lacks_capacity = placed.holds is False and placed.reason != Reason.AWAITING_APPROVAL
    return lacks_capacity or own[ConditionType.READY].holds is True


def _short(
    observation: Observation, declared: InferenceDeploymentSpec, ready: Finding
) -> EndpointStatus:
    name = observation.key.name
    return EndpointStatus(
        context=Context.SHORT,
        service=service_name(name),
        inference_deployment=name,
        max_model_len=declared.workload.short_part.max_model_len,
        ready=ready.holds is True,
        reason=ready.reason,
    )


def _long(
    observation: Observation, declared: InferenceDeploymentSpec, reported: Mapping[str, Any]
) -> EndpointStatus:
    name = long_endpoint_name(observation.key.name)
    ready = reported.get(ConditionType.READY, {})
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


def _not_ready(
    observation: Observation, declared: InferenceDeploymentSpec, reported: Mapping[str, Any]
) -> Iterable[Finding]:
    """Why the object is not ready though its own replicas are, in the endpoint's own words."""
    ready = reported.get(ConditionType.READY)
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
    statuses = {kind: condition["status"] for kind, condition in reported.items()} or _UNREPORTED
    for kind in _MIRRORED:
        holds = statuses.get(kind) == "True"
        yield Finding(kind, holds, Reason.ENDPOINT_NOT_READY, told)
