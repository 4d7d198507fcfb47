"""Renders the Services of an InferenceDeployment: over all placements, and over each of several."""

from collections.abc import Mapping
from typing import Any

from tonnage.api.names import LABEL_OWNER, LABEL_PLACEMENT
from tonnage.engines.defaults import load_defaults
from tonnage.engines.inputs import Owner
from tonnage.workloads.metadata import owner_labels, owner_reference
from tonnage.workloads.names import placement_service_name, service_name


def render_service(owner: Owner) -> dict[str, Any]:
    """A cluster-internal Service with the port of the engine itself."""
    return _service(owner, service_name(owner.name), {LABEL_OWNER: owner.name}, {})


def render_placement_service(owner: Owner, placement: str, nodes: int) -> dict[str, Any]:
    """The Service of a placement whose replicas are on so many nodes each, for routers that weight
    placements."""
    label = {LABEL_PLACEMENT: placement}
    name = placement_service_name(owner.name, placement, nodes)
    return _service(owner, name, {LABEL_OWNER: owner.name, **label}, label)


def _service(
    owner: Owner, name: str, selector: Mapping[str, str], labels: Mapping[str, str]
) -> dict[str, Any]:
    port = {
        "name": "http",
        "port": load_defaults().server.port,
        "protocol": "TCP",
        "targetPort": "http",
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": {**owner_labels(owner), **labels},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "type": "ClusterIP",
            "selector": dict(selector),
            "ports": [port],
        },
    }
