"""Plan the InferencePool of an object, and report it. Pure.

An error of the pool affects the pool alone: the replicas and the Service never wait for it. The
operator does not watch pools: it notices foreign changes, and the end of an error, at the next
resync.
"""

from dataclasses import dataclass
from typing import Final

from tonnage import delays
from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.gateway import InferencePoolSpec
from tonnage.api.parse import InvalidSpecError
from tonnage.engines.inputs import Owner
from tonnage.kube.kinds import INFERENCE_POOLS
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import Action, Delete, apply_if_changed, stamped
from tonnage.reconcile.observation.children import Child
from tonnage.reconcile.observation.findings import Finding
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.optional.inference_pool import requested_pool
from tonnage.reconcile.observation.optional.optional_child import OptionalChildError
from tonnage.reconcile.observation.previous import read_finding
from tonnage.workloads.inference_pool import render_inference_pool

_KIND: Final = ConditionType.INFERENCE_POOL_APPLIED


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """Actions that may fail without harm, the rendered pool, and the finding about it.

    `finding` is None if the spec asks for no pool and there is none. `again_seconds`: when to
    requeue without an event.
    """

    actions: tuple[Action, ...] = ()
    children: tuple[Object, ...] = ()
    finding: Finding | None = None
    again_seconds: float | None = None


def plan_gateway(observation: Observation, owner: Owner, *, placed: bool) -> GatewayPlan:
    """Apply the pool that the spec asks for once the replicas are placed; delete it if the spec
    asks for none. Change nothing if the spec is invalid."""
    wanted, live = requested_pool(observation.spec), observation.inference_pool
    if isinstance(observation.spec, InvalidSpecError) or (wanted and not placed):
        return GatewayPlan(finding=_previous_finding(observation))
    if isinstance(live, OptionalChildError):
        return plan_without_pool(live)
    if wanted is not None:
        return _apply(owner, wanted, live)
    if live is None:
        return GatewayPlan()
    delete = Delete(INFERENCE_POOLS, live)
    return GatewayPlan(actions=(delete,))  # the condition that is dropped requeues the key


def plan_without_pool(error: OptionalChildError) -> GatewayPlan:
    """Leave the pool alone and report the error."""
    seconds = delays.REQUEUE_UNWATCHED if error.passing else None
    holds = None if error.passing else False
    return GatewayPlan(
        finding=Finding(_KIND, holds, error.reason, error.message), again_seconds=seconds
    )


def _apply(owner: Owner, wanted: InferencePoolSpec, live: Child | None) -> GatewayPlan:
    rendered = stamped(render_inference_pool(owner, wanted))
    picker = wanted.endpoint_picker_ref
    message = (
        f"InferencePool {owner.namespace}/{rendered['metadata']['name']} has all replicas;"
        f" its endpoint picker is Service {picker.name}, port {picker.port.number}"
    )
    return GatewayPlan(
        actions=apply_if_changed(INFERENCE_POOLS, rendered, live),
        children=(rendered,),
        finding=Finding(_KIND, True, Reason.APPLIED, message),
    )


def _previous_finding(observation: Observation) -> Finding | None:
    conditions = observation.previous_status.get("conditions") or []
    return next((read_finding(one) for one in conditions if one["type"] == _KIND), None)
