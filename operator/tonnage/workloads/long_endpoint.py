"""Renders the InferenceDeployment that serves the long requests of another one."""

from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import (
    API_VERSION,
    INFERENCE_DEPLOYMENT,
    LABEL_CONTEXT,
    LABEL_KUEUE_QUEUE,
)
from tonnage.api.workload import Context
from tonnage.engines.inputs import Owner
from tonnage.engines.model_source import served_name
from tonnage.workloads.metadata import owner_labels, owner_reference
from tonnage.workloads.names import long_endpoint_name

_NOT_INHERITED: Final = {"approved_plan", "gateway"}
"""Fields of the owner's spec that the endpoint does not get: an approval is for one plan, and an
endpoint picker for one InferencePool."""


def render_long_endpoint(owner: Owner, spec: InferenceDeploymentSpec) -> dict[str, Any]:
    """The InferenceDeployment for the long requests of `spec`, which sets workload.longContext.

    It has only fields that the owner's spec sets, so that defaults or other writers can set the
    rest, such as an approval.
    """
    long = spec.workload.long_context
    if long is None:
        raise AssertionError("there is no endpoint to render: workload.longContext is not set")
    changes: dict[str, Any] = {
        "model": spec.model.model_copy(update={"name": served_name(spec, owner.name)}),
        "workload": spec.workload.long_part(long),
        "replicas": 0 if spec.replicas == 0 else long.replicas,
    }
    endpoint_spec = spec.model_copy(update=changes)
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
        "spec": endpoint_spec.model_dump(
            mode="json",
            by_alias=True,
            exclude=_NOT_INHERITED,
            exclude_none=True,
            exclude_unset=True,
        ),
    }
