"""Decide whether a spec can be planned at all, before any pool is judged.

The operator creates the first Deployment before it knows whether the name of the Service is free,
and whether the API server accepts the Service. If the following reconcile finds that it cannot be
created, it says so in the status, and the next one deletes the Deployment: in this order no crash
creates it again. Replicas that serve, or once served, stay: their users may still reach them.
"""

from dataclasses import dataclass, replace
from typing import Final

from tonnage import delays
from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import INFERENCE_DEPLOYMENT
from tonnage.api.parse import InvalidSpecError
from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError, UnknownRuleError
from tonnage.checkpoint.lookup import ModelPending, ModelUnavailable
from tonnage.checkpoint.model import Checkpoint, CheckpointError
from tonnage.engines.errors import RenderError
from tonnage.fit.context import override_context, tell_too_long
from tonnage.fit.model import EngineOptions
from tonnage.fit.options import InvalidOptionError, engine_options
from tonnage.kube.protocol import ApiError, Object
from tonnage.placement.filters.screening import check_accelerators, check_allowed_rules
from tonnage.placement.load import Demanded
from tonnage.reconcile.actions import Delete
from tonnage.reconcile.autoscaling import ByLoad
from tonnage.reconcile.observation.children import is_controlled_by
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.plan_terms import read_last_ready
from tonnage.reconcile.observation.priority import UnknownPriorityClass
from tonnage.workloads.pod.template import check_template

_UNREACHABLE: Final = (Reason.NAME_CONFLICT, Reason.CHILD_REFUSED)
"""Refusals of a Service, among others."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The spec is valid and the model's facts are known; `by_load` is what the measured load asks
    for, None if the spec does not scale by load. `unconfirmed` is why the source does not confirm
    facts that it gave earlier."""

    spec: InferenceDeploymentSpec
    checkpoint: Checkpoint
    by_load: ByLoad | None = None
    unconfirmed: ModelUnavailable | None = None

    @property
    def demanded(self) -> Demanded | None:
        """The replicas that the measured load asks for; None if they follow from the spec."""
        return self.by_load.demanded if self.by_load else None

    def asked_on(self, placement: str) -> int | None:
        """The replicas that the user or the measured load asks for on this placement; None if the
        workload decides, or the number is unknown."""
        demanded = self.by_load.demanded_on(placement) if self.by_load else None
        return self.spec.replicas if demanded is None else demanded


@dataclass(frozen=True, slots=True)
class Refused:
    """The operator cannot plan, and leaves alone what serves.

    `pending` marks waiting, not failure; `retry_after_seconds` is None if only a change of the spec
    helps; `passing`: the obstacle is about to disappear.
    """

    reason: Reason
    message: str
    pending: bool = False
    retry_after_seconds: float | None = None
    passing: bool = False


def refuse_name(taken: Object, of: str) -> Refused:
    """The refusal when `taken`, a foreign object, has the name of a child of the
    InferenceDeployment `of`."""
    metadata = taken["metadata"]
    owners = metadata.get("ownerReferences") or []
    former_owner = {"kind": INFERENCE_DEPLOYMENT, "name": of}
    leftover = any(former_owner.items() <= owner.items() for owner in owners)
    message = (
        f"{taken['kind']} {metadata['namespace']}/{metadata['name']} exists"
        " and is not controlled by this InferenceDeployment; it is left alone."
        " Delete or rename it, or give the InferenceDeployment another name"
    )
    seconds = delays.REQUEUE_LEFTOVER if leftover else delays.REQUEUE_UNWATCHED
    return Refused(Reason.NAME_CONFLICT, message, retry_after_seconds=seconds, passing=leftover)


def give_back(observation: Observation, refused: Refused) -> tuple[Delete, ...]:
    """Delete the Deployments: they hold GPUs, and no user can reach their replicas while a foreign
    object has the name, or a quota allows no Service."""
    if refused.reason not in _UNREACHABLE or refused.passing or may_serve(observation):
        return ()
    return tuple(
        Delete(deployment.kind, deployment.child) for deployment in observation.deployments
    )


def was_refused(observation: Observation, reason: Reason) -> bool:
    """Whether the last reconcile was refused for this reason."""
    conditions = observation.previous_status.get("conditions") or []
    refusal = (ConditionType.ACCEPTED, reason)
    return any((one.get("type"), one.get("reason")) == refusal for one in conditions)


def was_taken(observation: Observation) -> bool:
    """Whether the last reconcile found a name taken."""
    return was_refused(observation, Reason.NAME_CONFLICT)


def may_serve(observation: Observation) -> bool:
    """Whether a user can reach a replica, or once could."""
    return (
        observation.service is not None
        or read_last_ready(observation.previous_status) is not None
        or any(deployment.ready > 0 for deployment in observation.deployments)
    )


def refuse_child(error: ApiError, *, retry_after_seconds: float | None) -> Refused:
    """The refusal when the API server or its admission rejects a child."""
    message = f"the API server rejects a child: {error}"
    return Refused(Reason.CHILD_REFUSED, message, retry_after_seconds=retry_after_seconds)


def accept(observation: Observation, catalog: Catalog) -> Accepted | Refused:
    """Accept what the observation has, or give the first reason to refuse it."""
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
        message = f"{spec.template_field}.spec.{observation.priority}"
        return Refused(Reason.INVALID_SPEC, message, retry_after_seconds=delays.REQUEUE_UNWATCHED)
    endpoint = observation.long_endpoint
    if observation.declared and endpoint and not is_controlled_by(endpoint.body, observation.uid):
        return refuse_name(endpoint.body, observation.key.name)
    match model:
        case Checkpoint():
            if observation.declared is not None:
                options = engine_options(observation.declared, catalog)
            accepted = Accepted(spec, model, unconfirmed=observation.unconfirmed)
            return _with_overrides(accepted, options, catalog)
        case ModelUnavailable():
            return Refused(
                model.reason, model.message, retry_after_seconds=model.retry_after_seconds
            )
        case ModelPending():
            return Refused(Reason.RESOLVING_MODEL, model.message, pending=True)
        case None:
            raise AssertionError("a valid spec was observed without its model")


def _with_overrides(
    accepted: Accepted, options: EngineOptions, catalog: Catalog
) -> Accepted | Refused:
    """The same with the user's overrides of config.json.

    vLLM rejects a longer context than it supports (config/model.py).
    """
    checkpoint = accepted.checkpoint
    try:
        shape = override_context(checkpoint.shape, options.context_overrides)
    except CheckpointError as error:
        message = f"spec.engine.vllm.extraArgs: with the overrides of config.json: {error}"
        return Refused(Reason.INVALID_SPEC, message)
    too_long = tell_too_long(shape, options, catalog.release(options.vllm_version))
    if too_long is not None:
        return Refused(Reason.INVALID_SPEC, f"spec.workload.maxModelLen: {too_long}")
    return replace(accepted, checkpoint=replace(checkpoint, shape=shape))
