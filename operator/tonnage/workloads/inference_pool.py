"""Renders the InferencePool, by which a gateway and its endpoint picker find the replicas."""

from typing import Any

from tonnage.api.gateway import InferencePoolSpec
from tonnage.api.names import LABEL_OWNER
from tonnage.engines.defaults import load_defaults
from tonnage.engines.inputs import Owner
from tonnage.workloads.metadata import owner_labels, owner_reference
from tonnage.workloads.names import inference_pool_name


def render_inference_pool(owner: Owner, spec: InferencePoolSpec) -> dict[str, Any]:
    """An InferencePool of the pods of all placements, on the engine's own port."""
    picker = spec.endpoint_picker_ref
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {
            "name": inference_pool_name(owner.name),
            "namespace": owner.namespace,
            "labels": owner_labels(owner),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "selector": {"matchLabels": {LABEL_OWNER: owner.name}},
            "targetPorts": [{"number": load_defaults().server.port}],
            "endpointPickerRef": {"kind": "Service", **picker.to_dict()},
        },
    }
