"""What is to be done about the InferencePool of an object, and what is told of it. Pure.

Whatever is in the way of the pool is in the way of the pool alone: the replicas and the Service
never wait for it. Pools are not watched: what others do to one, and what was in the way of one, is
noticed at the next resync.
"""

from dataclasses import dataclass
from typing import Final

from tonnage import delays
from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.gateway import InferencePoolSpec
from tonnage.api.parse import InvalidSpecError
from tonnage.kube.kinds import INFERENCE_POOLS
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import Action, Delete, apply_if_changed, stamped
from tonnage.reconcile.children import Child
from tonnage.reconcile.findings import Finding
from tonnage.reconcile.inference_pool import asked_pool, with_mark
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.optional_child import OptionalChildError
from tonnage.reconcile.reported import read_finding
from tonnage.render.inference_pool import render_inference_pool
from tonnage.render.model import Owner
from tonnage.render.names import inference_pool_name

_KIND: Final = ConditionType.INFERENCE_POOL_APPLIED

_SURE_IT_IS_NOT_OURS: Final = (Reason.NAME_CONFLICT, Reason.KIND_MISSING)


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """Actions that may fail without harm, the pool as it is to be, and what is told of it.

    Without a finding there is nothing to tell: nobody asks for a pool, and there is none.
    `again_seconds`: when to look again though no event will come.
    """

    actions: tuple[Action, ...] = ()
    children: tuple[Object, ...] = ()
    finding: Finding | None = None
    again_seconds: float | None = None


def plan_gateway(observation: Observation, owner: Owner, *, placed: bool) -> GatewayPlan:
    """Make the pool what is asked for once the replicas have a place; take it away when nobody
    asks for it any more. Where the spec cannot be read, all stays as it is."""
    asked, found = asked_pool(observation.spec), observation.inference_pool
    if isinstance(observation.spec, InvalidSpecError) or (asked and not placed):
        return GatewayPlan(finding=_as_told_before(observation))
    if isinstance(found, OptionalChildError):
        return plan_without_pool(found)
    if asked is not None:
        return _make(owner, asked, found)
    if found is None:
        return GatewayPlan()
    withdraw = Delete(INFERENCE_POOLS, owner.namespace, found)
    return GatewayPlan(actions=(withdraw,))  # what it tells no more wakes the key once more


def plan_without_pool(error: OptionalChildError) -> GatewayPlan:
    """Nothing is done about the pool, and this is told."""
    again = delays.REQUEUE_UNWATCHED if error.passing else None
    holds = None if error.passing else False
    return GatewayPlan(
        finding=Finding(_KIND, holds, error.reason, error.message), again_seconds=again
    )


def mark_service(service: Object, observation: Observation) -> Object:
    """The Service, with the mark of a pool while there is to be one, or may still be one."""
    found = observation.inference_pool
    sure = isinstance(found, OptionalChildError) and found.reason in _SURE_IT_IS_NOT_OURS
    if asked_pool(observation.spec) is None and (found is None or sure):
        return service
    return with_mark(service, inference_pool_name(observation.key.name))


def _make(owner: Owner, asked: InferencePoolSpec, found: Child | None) -> GatewayPlan:
    wanted = stamped(render_inference_pool(owner, asked))
    picker = asked.endpoint_picker_ref
    told = (
        f"InferencePool {owner.namespace}/{wanted['metadata']['name']} has all replicas;"
        f" its endpoint picker is Service {picker.name}, port {picker.port.number}"
    )
    return GatewayPlan(
        actions=apply_if_changed(INFERENCE_POOLS, wanted, found),
        children=(wanted,),
        finding=Finding(_KIND, True, Reason.APPLIED, told),
    )


def _as_told_before(observation: Observation) -> Finding | None:
    conditions = observation.previous_status.get("conditions") or []
    return next((read_finding(one) for one in conditions if one["type"] == _KIND), None)
