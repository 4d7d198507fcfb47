"""Plan the endpoint for long requests, and report it. Pure.

The endpoint is an InferenceDeployment of its own, with a pool, rollouts and approval like any
other. The object itself serves the shorter requests, and is ready when both are.
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
from tonnage.reconcile.observation.children import Child, is_controlled_by
from tonnage.reconcile.observation.findings import Finding
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.previous import Unobserved, is_listed, read_endpoints
from tonnage.reconcile.scheduling.context import owner_of
from tonnage.reconcile.status.conditions import own_findings
from tonnage.reconcile.status.status_input import EndpointFindings, StatusInput
from tonnage.workloads.long_endpoint import render_long_endpoint
from tonnage.workloads.names import long_endpoint_name, service_name

_PENDING: Final = "Pending"
"""The reason of an endpoint without a reported condition."""

_MIRRORED: Final = (
    ConditionType.PROGRESSING,
    ConditionType.RECONCILING,
    ConditionType.STALLED,
    ConditionType.DEGRADED,
)
"""Conditions that a ready object takes from an endpoint that is not ready."""

_UNREPORTED: Final = {ConditionType.PROGRESSING: "True", ConditionType.RECONCILING: "True"}
"""These conditions before the endpoint reports any."""


@dataclass(frozen=True, slots=True)
class EndpointPlan:
    """The actions, the rendered endpoint, and the findings. `listing`: the next reconcile creates
    the endpoint, once the status lists it."""

    findings: EndpointFindings
    actions: tuple[Action, ...] = ()
    children: tuple[Object, ...] = ()
    listing: bool = False


def plan_endpoints(observation: Observation, inputs: StatusInput) -> EndpointPlan:
    """Apply the long endpoint that the spec asks for; delete it if the spec asks for none. Change
    nothing if the spec was not accepted."""
    if isinstance(inputs.accepted, Refused | Unobserved):
        return EndpointPlan(EndpointFindings(_listed_before(observation)))
    if observation.declared is None:
        return _delete(observation, inputs)
    return _apply(observation, observation.declared, inputs)


def _apply(
    observation: Observation, declared: InferenceDeploymentSpec, inputs: StatusInput
) -> EndpointPlan:
    ready = _findings_by_type(observation, inputs)[ConditionType.READY]
    wanted = stamped(render_long_endpoint(owner_of(observation), declared))
    actions = apply_if_changed(INFERENCE_DEPLOYMENTS, wanted, observation.long_endpoint)
    reported = {} if actions else _read_conditions(observation.long_endpoint)
    listed = is_listed(observation.previous_status)
    long = _long_status(observation, declared, reported)
    waits = ready.holds and not long.ready
    findings = tuple(_find_not_ready(observation, declared, reported)) if waits else ()
    return EndpointPlan(
        findings=EndpointFindings((_short_status(observation, declared, ready), long), findings),
        actions=actions if listed else (),
        children=(wanted,),
        listing=not listed,
    )


def _delete(observation: Observation, inputs: StatusInput) -> EndpointPlan:
    """Delete only an owned endpoint, and list it until it has gone."""
    live = observation.long_endpoint
    if live is None or not is_controlled_by(live.body, observation.uid):
        return EndpointPlan(EndpointFindings())
    terminating = "deletionTimestamp" in live.body["metadata"]
    may_delete = not terminating and _may_delete(_findings_by_type(observation, inputs))
    delete = Delete(INFERENCE_DEPLOYMENTS, live)
    return EndpointPlan(
        findings=EndpointFindings(_listed_before(observation)),
        actions=(delete,) if may_delete else (),
    )


def _findings_by_type(
    observation: Observation, inputs: StatusInput
) -> dict[ConditionType, Finding]:
    """The findings of the object's own replicas."""
    return {finding.type: finding for finding in own_findings(observation, inputs)}


def _listed_before(observation: Observation) -> tuple[EndpointStatus, ...]:
    return tuple(read_endpoints(observation.previous_status))


def _may_delete(own: Mapping[ConditionType, Finding]) -> bool:
    """Whether the endpoint is unnecessary: the object serves all requests itself, or it lacks
    capacity that the GPUs of the endpoint may give."""
    placed = own[ConditionType.PLACED]
    lacks_capacity = placed.holds is False and placed.reason != Reason.AWAITING_APPROVAL
    return lacks_capacity or own[ConditionType.READY].holds is True


def _short_status(
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


def _long_status(
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
    """The endpoint's own conditions by type, if they are about its present generation."""
    status = reported_status(live.body) if live else {}
    if live is None or status.get("observedGeneration") != live.body["metadata"]["generation"]:
        return {}
    return {condition["type"]: condition for condition in status.get("conditions") or []}


def _find_not_ready(
    observation: Observation, declared: InferenceDeploymentSpec, reported: Mapping[str, Any]
) -> Iterable[Finding]:
    """Why the object is not ready though its own replicas are, in the endpoint's words."""
    ready = reported.get(ConditionType.READY)
    reason = "it has not reported yet"
    if ready is not None:
        reason = f"{ready.get('reason', '')}: {ready.get('message', '')}"
    namespace, name = observation.key.namespace, long_endpoint_name(observation.key.name)
    above = declared.workload.short_part.max_model_len
    message = (
        f"InferenceDeployment {namespace}/{name}, which serves requests above {above} tokens,"
        f" is not ready: {reason}"
    )
    yield Finding(ConditionType.READY, False, Reason.ENDPOINT_NOT_READY, message)
    statuses = {kind: condition["status"] for kind, condition in reported.items()} or _UNREPORTED
    for kind in _MIRRORED:
        holds = statuses.get(kind) == "True"
        yield Finding(kind, holds, Reason.ENDPOINT_NOT_READY, message)
