"""Can this spec be planned at all? Before any pool is judged.

A first Deployment is made before the operator knows whose the name of its Service is. Where the
reconcile that follows finds it taken, the status says so, and the next one deletes the Deployment:
in this order no crash makes it again. What serves, or served once, stays: its users may reach it
yet.
"""

from dataclasses import dataclass

from tonnage import delays
from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import INFERENCE_DEPLOYMENT
from tonnage.api.parse import InvalidSpecError
from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError, UnknownRuleError
from tonnage.checkpoint.lookup import ModelPending, ModelUnavailable
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.context import tell_too_long
from tonnage.fit.model import EngineOptions
from tonnage.fit.options import InvalidOptionError, engine_options
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.kube.protocol import ApiError, Object
from tonnage.placement.load import Demanded
from tonnage.placement.request import check_accelerators, check_allowed_rules
from tonnage.reconcile.actions import Delete
from tonnage.reconcile.by_load import ByLoad
from tonnage.reconcile.children import is_controlled_by
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.priority import UnknownPriorityClass
from tonnage.reconcile.ready_plan import read_last_ready
from tonnage.render.errors import RenderError
from tonnage.render.template import check_template


@dataclass(frozen=True, slots=True)
class Accepted:
    """The spec is valid and the model's facts are known; `by_load` is what the measured load asks
    for, None where nobody wants to follow it."""

    spec: InferenceDeploymentSpec
    checkpoint: Checkpoint
    by_load: ByLoad | None = None

    @property
    def demanded(self) -> Demanded | None:
        """The replicas that the measured load asks for; None where they follow from the spec."""
        return self.by_load.demanded if self.by_load else None

    def asked_on(self, placement: str) -> int | None:
        """The replicas that are asked for where they run on this placement, by the user or by the
        measured load; None where the workload decides, or nobody knows."""
        demanded = self.by_load.demanded_on(placement) if self.by_load else None
        return self.spec.replicas if demanded is None else demanded


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing can be planned, and whatever serves is left alone.

    `pending` tells waiting from failure; `retry_after_seconds` is None when only a change of the
    spec can help; `passing`: what is in the way is about to go by itself.
    """

    reason: Reason
    message: str
    pending: bool = False
    retry_after_seconds: float | None = None
    passing: bool = False


def refuse_name(taken: Object, of: str) -> Refused:
    """The refusal when `taken`, an object of somebody else, has the name of a child of the
    InferenceDeployment `of`."""
    metadata = taken["metadata"]
    owners = metadata.get("ownerReferences") or []
    former = {"kind": INFERENCE_DEPLOYMENT, "name": of}
    leftover = any(former.items() <= owner.items() for owner in owners)
    message = (
        f"{taken['kind']} {metadata['namespace']}/{metadata['name']} exists"
        " and is not controlled by this InferenceDeployment; it is left alone."
        " Delete or rename it, or give the InferenceDeployment another name"
    )
    again = delays.REQUEUE_LEFTOVER if leftover else delays.REQUEUE_UNWATCHED
    return Refused(Reason.NAME_CONFLICT, message, retry_after_seconds=again, passing=leftover)


def give_back(observation: Observation, refused: Refused) -> tuple[Delete, ...]:
    """The Deployments to be deleted: they hold GPUs, and no user can reach their replicas as long
    as the name is another's."""
    if refused.reason is not Reason.NAME_CONFLICT or refused.passing or may_serve(observation):
        return ()
    return tuple(
        Delete(DEPLOYMENTS, observation.key.namespace, found.child)
        for found in observation.deployments
    )


def was_taken(observation: Observation) -> bool:
    """Whether the last reconcile found a name taken."""
    conditions = observation.previous_status.get("conditions") or []
    told = (ConditionType.ACCEPTED, Reason.NAME_CONFLICT)
    return any((found.get("type"), found.get("reason")) == told for found in conditions)


def may_serve(observation: Observation) -> bool:
    """Whether a user can reach a replica, or could once."""
    return (
        observation.service is not None
        or read_last_ready(observation.previous_status) is not None
        or any(found.ready > 0 for found in observation.deployments)
    )


def refuse_child(error: ApiError, *, retry_after_seconds: float | None) -> Refused:
    """The refusal when the API server or its admission will not have a child as it was rendered."""
    message = f"the API server refuses a child: {error}"
    return Refused(Reason.CHILD_REFUSED, message, retry_after_seconds=retry_after_seconds)


def accept(observation: Observation, catalog: Catalog) -> Accepted | Refused:
    """The first thing that stands in the way, or what is to be planned."""
    spec, model = observation.spec, observation.model
    if isinstance(spec, InvalidSpecError):
        return Refused(Reason.INVALID_SPEC, str(spec))
    try:
        check_template(spec)
        check_accelerators(spec, catalog)
        check_allowed_rules(spec, catalog)
        options = engine_options(spec, catalog)
    except (RenderError, UnknownAcceleratorError, UnknownRuleError, InvalidOptionError) as error:
        return Refused(Reason.INVALID_SPEC, str(error))
    if isinstance(observation.priority, UnknownPriorityClass):
        told = str(observation.priority)
        return Refused(Reason.INVALID_SPEC, told, retry_after_seconds=delays.REQUEUE_UNWATCHED)
    taken = observation.long_endpoint
    if observation.declared and taken and not is_controlled_by(taken.body, observation.uid):
        return refuse_name(taken.body, observation.key.name)
    match model:
        case Checkpoint():
            if observation.declared is not None:
                options = engine_options(observation.declared, catalog)
            refused = _refuse_length(model, options, catalog)
            return refused or Accepted(spec, model)
        case ModelUnavailable():
            return Refused(
                model.reason, model.message, retry_after_seconds=model.retry_after_seconds
            )
        case ModelPending():
            return Refused(Reason.RESOLVING_MODEL, model.message, pending=True)
        case None:
            raise AssertionError("a valid spec was observed without its model")


def _refuse_length(
    checkpoint: Checkpoint, options: EngineOptions, catalog: Catalog
) -> Refused | None:
    """vLLM refuses a longer context than the model was made for (config/model.py)."""
    release = catalog.release(options.vllm_version)
    too_long = tell_too_long(checkpoint.shape, options, release)
    if too_long is not None:
        return Refused(Reason.INVALID_SPEC, f"spec.workload.maxModelLen: {too_long}")
    return None
