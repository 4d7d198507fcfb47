"""Can this spec be planned at all? Before any pool is looked at."""

from dataclasses import dataclass
from typing import Final

from tonnage.api.conditions import Reason
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.parse import InvalidSpecError
from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError, UnknownRuleError
from tonnage.checkpoint.lookup import ModelPending, ModelUnavailable
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.context import tell_too_long
from tonnage.fit.options import InvalidOptionError, engine_options
from tonnage.kube.protocol import ApiError
from tonnage.placement.load import Demanded
from tonnage.placement.request import check_accelerators, check_allowed_rules
from tonnage.reconcile.by_load import ByLoad
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.priority import UnknownPriorityClass
from tonnage.render.errors import RenderError
from tonnage.render.template import check_template

_ASK_AGAIN_SECONDS: Final = 30.0
"""PriorityClasses are not watched, so one that is missing is asked for again."""


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
    """Nothing can be planned, and whatever runs is left alone.

    `pending` tells waiting from failure; `retry_after_seconds` is None when only a change of the
    spec can help.
    """

    reason: Reason
    message: str
    pending: bool = False
    retry_after_seconds: float | None = None


def refuse_name(taken: str, *, retry_after_seconds: float) -> Refused:
    """The refusal when `taken`, an object of somebody else, has the name of a child."""
    message = (
        f"{taken} exists and is not controlled by this InferenceDeployment; it is left alone."
        " Delete or rename it, or give the InferenceDeployment another name"
    )
    return Refused(Reason.NAME_CONFLICT, message, retry_after_seconds=retry_after_seconds)


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
        engine_options(spec, catalog)
    except (RenderError, UnknownAcceleratorError, UnknownRuleError, InvalidOptionError) as error:
        return Refused(Reason.INVALID_SPEC, str(error))
    if isinstance(observation.priority, UnknownPriorityClass):
        told = str(observation.priority)
        return Refused(Reason.INVALID_SPEC, told, retry_after_seconds=_ASK_AGAIN_SECONDS)
    match model:
        case Checkpoint():
            return _accept_length(spec, model, catalog)
        case ModelUnavailable():
            return Refused(
                model.reason, model.message, retry_after_seconds=model.retry_after_seconds
            )
        case ModelPending():
            return Refused(Reason.RESOLVING_MODEL, model.message, pending=True)
        case None:
            raise AssertionError("a valid spec was observed without its model")


def _accept_length(
    spec: InferenceDeploymentSpec, checkpoint: Checkpoint, catalog: Catalog
) -> Accepted | Refused:
    """vLLM refuses a longer context than the model was made for (config/model.py)."""
    options = engine_options(spec, catalog)
    release = catalog.release(options.vllm_version)
    too_long = tell_too_long(checkpoint.shape, options, release)
    if too_long is not None:
        return Refused(Reason.INVALID_SPEC, f"spec.workload.maxModelLen: {too_long}")
    return Accepted(spec, checkpoint)
