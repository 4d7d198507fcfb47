"""Decide whether a spec can be planned at all, before any pool is judged.

The operator creates the first Deployment before it knows whether the name of the Service is free,
and whether the API server accepts the Service. If the following reconcile finds that it cannot be
created, it says so in the status, and the next one deletes the Deployment: in this order no crash
creates it again. Replicas that serve, or once served, stay: their users may still reach them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
from tonnage.engines.model_source import served_name
from tonnage.fit.context import override_context
from tonnage.fit.engines.registry import memory_for, options_for
from tonnage.fit.lora.files import (
    check_base_model,
    check_patterns,
    with_buffer_rank,
    with_target_modules,
)
from tonnage.fit.model import EngineOptions
from tonnage.fit.options import InvalidOptionError
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

_UNKNOWN_FOR_NOW: Final = (Reason.MODEL_SOURCE_UNREACHABLE, Reason.MODEL_ACCESS_DENIED)
"""Answers that leave open what an adapter is. Pods may reach another Hub than the operator, and may
use Secrets that it may not read."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The spec is valid and the model's facts are known; `by_load` is what the measured load asks
    for, None if the spec does not scale by load. `unconfirmed` is why the source does not confirm
    facts that it gave earlier, `unconfirmed_adapter` the first adapter that the Hub does not
    confirm, and why. `spec` has what follows from the files of the adapters. Of a spec that leaves
    the engine to the operator, `refused_engines` are those that cannot serve it, with the reason.
    """

    spec: InferenceDeploymentSpec
    checkpoint: Checkpoint
    by_load: ByLoad | None = None
    unconfirmed: ModelUnavailable | None = None
    unconfirmed_adapter: str | None = None
    refused_engines: Mapping[str, str] = field(default_factory=dict)

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


def refuse_leader_name(service: Object) -> Refused:
    """The refusal when a Service of another owner has the name of a LeaderWorkerSet to be created.
    The controller would take it for its own, and no pod would find the leader of its group."""
    name = f"{service['metadata']['namespace']}/{service['metadata']['name']}"
    message = (
        f"Service {name} exists, and the pods of LeaderWorkerSet {name} need a Service of this name"
        " to find their leader; it is left alone. Delete or rename it, or give the"
        " InferenceDeployment another name"
    )
    return Refused(Reason.NAME_CONFLICT, message, retry_after_seconds=delays.REQUEUE_UNWATCHED)


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
    checked = _check_spec(observation, catalog)
    if isinstance(checked, Refused):
        return checked
    (spec, engines), model = checked, observation.model
    if isinstance(observation.priority, UnknownPriorityClass):
        message = f"{spec.template_field}.spec.{observation.priority}"
        return Refused(Reason.INVALID_SPEC, message, retry_after_seconds=delays.REQUEUE_UNWATCHED)
    endpoint = observation.long_endpoint
    if observation.declared and endpoint and not is_controlled_by(endpoint.body, observation.uid):
        return refuse_name(endpoint.body, observation.key.name)
    match model:
        case Checkpoint():
            if observation.declared is not None:
                declared = observation.declared.model_copy(update={"lora": spec.lora})
                engines = _read_engines(declared, catalog)
            accepted = Accepted(
                spec,
                model,
                unconfirmed=observation.unconfirmed,
                unconfirmed_adapter=_find_unconfirmed(observation, spec),
            )
            return _with_overrides(accepted, engines, catalog)
        case ModelUnavailable():
            return Refused(
                model.reason, model.message, retry_after_seconds=model.retry_after_seconds
            )
        case ModelPending():
            return Refused(Reason.RESOLVING_MODEL, model.message, pending=True)
        case None:
            raise AssertionError("a valid spec was observed without its model")


@dataclass(frozen=True, slots=True)
class _Engines:
    """The engines of a spec: the options of those that can serve it, by their names, and why the
    others cannot."""

    options: Mapping[str, EngineOptions]
    refused: Mapping[str, str]


def _read_engines(spec: InferenceDeploymentSpec, catalog: Catalog) -> _Engines:
    """The engines that may run the spec. Raises InvalidOptionError where none can serve it, or
    where the settings of one are invalid."""
    options: dict[str, EngineOptions] = {}
    refused: dict[str, str] = {}
    for name in spec.engine.choices:
        try:
            options[name] = options_for(spec.with_engine(name), catalog)
        except InvalidOptionError as error:
            refused[name] = str(error)
            if not spec.engine.is_open or refused[name].startswith(f"spec.engine.{name}."):
                raise
    if not options:
        raise InvalidOptionError("; ".join(refused.values()))
    return _Engines(options, refused)


def _check_spec(
    observation: Observation, catalog: Catalog
) -> tuple[InferenceDeploymentSpec, _Engines] | Refused:
    """The spec with what follows from the files of its adapters, and its engines; or the first
    reason to refuse it."""
    spec = observation.spec
    if isinstance(spec, InvalidSpecError):
        return Refused(Reason.INVALID_SPEC, str(spec))
    try:
        for name in spec.engine.choices:
            check_template(spec.with_engine(name))
        check_accelerators(spec, catalog)
        check_allowed_rules(spec, catalog)
        _check_adapter_names(spec, observation.key.name)
        if (refused := _refuse_adapters(observation, spec)) is not None:
            return refused
        spec = _follow_adapters(observation, spec, catalog)
        return spec, _read_engines(spec, catalog)
    except (RenderError, UnknownAcceleratorError, UnknownRuleError, InvalidOptionError) as error:
        return Refused(Reason.INVALID_SPEC, str(error))


def _check_adapter_names(spec: InferenceDeploymentSpec, owner_name: str) -> None:
    """Refuse an adapter with the name of the model, which is the object's where the spec gives
    none. Raises InvalidOptionError."""
    name = served_name(spec, owner_name)
    for index, adapter in enumerate(spec.lora.adapters if spec.lora else ()):
        if adapter.name == name:
            raise InvalidOptionError(
                f"spec.lora.adapters[{index}].name: {name} is the name of the model itself, by"
                " default metadata.name; use another name, or set spec.model.name"
            )


def _refuse_adapters(observation: Observation, spec: InferenceDeploymentSpec) -> Refused | None:
    """The refusal of an adapter that cannot be served, or that has to be read first.

    An adapter whose rank the spec gives needs no Hub, unless the Hub says that it is none.
    """
    lora, pending = spec.lora, None
    for index, read in enumerate(observation.adapters if lora else ()):
        assert lora is not None
        adapter = lora.adapters[index]
        kind = "huggingFace" if adapter.source.hugging_face else "persistentVolumeClaim.facts"
        where = f"spec.lora.adapters[{index}].source.{kind}: adapter {adapter.name}"
        match read.answer:
            case ModelPending(message=message):
                pending = Refused(Reason.RESOLVING_MODEL, f"{where}: {message}", pending=True)
            case ModelUnavailable(reason=reason, message=message, retry_after_seconds=seconds):
                has_rank = adapter.rank is not None or lora.max_rank is not None
                if not has_rank or reason not in _UNKNOWN_FOR_NOW:
                    message = f"{where}: {_name_index(message, index)}"
                    return Refused(reason, message, retry_after_seconds=seconds)
    return pending


def _find_unconfirmed(observation: Observation, spec: InferenceDeploymentSpec) -> str | None:
    """The first adapter that the Hub does not confirm, and why."""
    for index, read in enumerate(observation.adapters if spec.lora else ()):
        why = read.unconfirmed or read.answer
        if isinstance(why, ModelUnavailable):
            return f"spec.lora.adapters[{index}]: {_name_index(why.message, index)}"
    return None


def _name_index(message: str, index: int) -> str:
    """The message of the reader of the Hub, which does not know the place of an adapter."""
    return message.replace("spec.lora.adapters[].", f"spec.lora.adapters[{index}].")


def _follow_adapters(
    observation: Observation, spec: InferenceDeploymentSpec, catalog: Catalog
) -> InferenceDeploymentSpec:
    """The spec with the rank and the layers that the files of its adapters need. Raises
    InvalidOptionError where they contradict the spec, or the model that is known."""
    if spec.lora is None or not observation.adapters:
        return spec
    files = [read.facts for read in observation.adapters]
    lora, model = with_buffer_rank(spec.lora, files), observation.model
    if isinstance(model, Checkpoint):
        hub = spec.model.source.hugging_face
        name = hub.repo if hub else f"model {spec.model.name or observation.key.name}"
        check_base_model(lora, files, model.shape.hidden_size, name)
        engines = _read_engines(spec.model_copy(update={"lora": lora}), catalog)
        options = next(iter(engines.options.values()))
        check_patterns(lora, files, options)
        lora = with_target_modules(lora, files, model.shape, options)
    return spec.model_copy(update={"lora": lora})


def _with_overrides(accepted: Accepted, engines: _Engines, catalog: Catalog) -> Accepted | Refused:
    """The same with the user's overrides of config.json, which are those of one engine.

    An engine rejects a longer context than the model supports.
    """
    checkpoint, refused = accepted.checkpoint, dict(engines.refused)
    overriding = (name for name, one in engines.options.items() if one.context_overrides)
    name = next(overriding, next(iter(engines.options)))
    extra_arguments = f"spec.engine.{name}.extraArgs"
    overrides = engines.options[name].context_overrides
    try:
        shape = override_context(checkpoint.shape, overrides)
    except CheckpointError as error:
        message = f"{extra_arguments}: with the overrides of config.json: {error}"
        return Refused(Reason.INVALID_SPEC, message)
    for each, options in engines.options.items():
        memory = memory_for(accepted.spec.with_engine(each))
        too_long = memory.explain_too_long(shape, options, catalog)
        if overrides and each != name:
            refused[each] = f"{extra_arguments} overrides config.json for {name} alone"
        elif too_long is not None:
            refused[each] = f"spec.workload.maxModelLen: {too_long}"
    if refused.keys() >= engines.options.keys():
        return Refused(Reason.INVALID_SPEC, "; ".join(dict.fromkeys(refused.values())))
    checkpoint = replace(checkpoint, shape=shape)
    return replace(accepted, checkpoint=checkpoint, refused_engines=refused)
