"""The Service over all placements of an InferenceDeployment."""

from typing import Any

from tonnage.api.names import LABEL_OWNER
from tonnage.render.defaults import defaults
from tonnage.render.metadata import owner_labels, owner_reference
from tonnage.render.model import Owner
from tonnage.render.names import service_name


def render_service(owner: Owner) -> dict[str, Any]:
    """A cluster-internal address on vLLM's own port, so that inside and outside look the same."""
    port = {
        "name": "http",
        "port": defaults().server.port,
        "protocol": "TCP",
        "targetPort": "http",
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(owner.name),
            "namespace": owner.namespace,
            "labels": owner_labels(owner),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "type": "ClusterIP",
            "selector": {LABEL_OWNER: owner.name},
            "ports": [port],
        },
    }
