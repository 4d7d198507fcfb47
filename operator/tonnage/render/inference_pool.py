"""The InferencePool, by which a gateway and its endpoint picker find the replicas."""

from typing import Any

from tonnage.api.gateway import InferencePoolSpec
from tonnage.api.names import LABEL_OWNER
from tonnage.render.defaults import defaults
from tonnage.render.metadata import owner_labels, owner_reference
from tonnage.render.model import Owner
from tonnage.render.names import inference_pool_name


def render_inference_pool(owner: Owner, asked: InferencePoolSpec) -> dict[str, Any]:
    """A pool of all pods of the object, whatever placement they are of, on vLLM's own port."""
    picker = asked.endpoint_picker_ref
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
            "targetPorts": [{"number": defaults().server.port}],
            "endpointPickerRef": {"kind": "Service", **picker.to_dict()},
        },
    }
