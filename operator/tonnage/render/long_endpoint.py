"""The InferenceDeployment that serves what is too long for the one that asks for it."""

from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import (
    API_VERSION,
    INFERENCE_DEPLOYMENT,
    LABEL_CONTEXT,
    LABEL_KUEUE_QUEUE,
)
from tonnage.api.workload import Context
from tonnage.render.metadata import owner_labels, owner_reference
from tonnage.render.model import Owner
from tonnage.render.names import long_endpoint_name
from tonnage.render.source import served_name

_OWNERS_ALONE: Final = {"approved_plan", "gateway"}
"""Fields of the owner's spec that the endpoint does not get: a person's approval is of one plan,
and an endpoint picker is for one InferencePool."""


def render_long_endpoint(owner: Owner, spec: InferenceDeploymentSpec) -> dict[str, Any]:
    """The object that serves what is long of the workload of `spec`, which tells requests apart.

    Only what the owner's spec says is in it, so that all else is left to the defaults, or to
    whoever sets it: a person's approval stands beside it.
    """
    long = spec.workload.long_context
    if long is None:
        raise AssertionError("an endpoint for long requests is rendered, and nobody asks for one")
    part: dict[str, Any] = {
        "model": spec.model.model_copy(update={"name": served_name(spec, owner.name)}),
        "workload": spec.workload.long_part(long),
        "replicas": 0 if spec.replicas == 0 else long.replicas,
    }
    wanted = spec.model_copy(update=part)
    return {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_DEPLOYMENT,
        "metadata": {
            "name": long_endpoint_name(owner.name),
            "namespace": owner.namespace,
            "labels": {
                **owner_labels(owner),
                LABEL_CONTEXT: Context.LONG.value,
                **({LABEL_KUEUE_QUEUE: owner.queue} if owner.queue is not None else {}),
            },
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": wanted.model_dump(
            mode="json",
            by_alias=True,
            exclude=_OWNERS_ALONE,
            exclude_none=True,
            exclude_unset=True,
        ),
    }
