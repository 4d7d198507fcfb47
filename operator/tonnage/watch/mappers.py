"""From an object that an event told of to the keys that may need work. Pure; hostile input too."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tonnage.api.names import GROUP, INFERENCE_DEPLOYMENT, LABEL_OWNER
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, PODS, SERVICES
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.key import Key
from tonnage.runtime.priority import Priority


def keys_for(kind: Kind, obj: Object) -> set[Key]:
    """The InferenceDeployments that an object of this kind is, belongs to, or serves."""
    mapper = _MAPPERS.get(kind)
    return mapper(_mapping(obj.get("metadata"))) if mapper else set()


def version_of(event_type: str | None, obj: Object) -> tuple[str, str | None]:
    """Which object it is, and in which version; None for one that is gone."""
    metadata = _mapping(obj.get("metadata"))
    version = None if event_type == "DELETED" else metadata.get("resourceVersion")
    return str(metadata.get("uid")), version if isinstance(version, str) else None


def priority_of(kind: Kind, obj: Object) -> Priority:
    """NEW_GENERATION for a spec that no status has observed yet; EVENT for everything else."""
    if kind != INFERENCE_DEPLOYMENTS:
        return Priority.EVENT
    generation = _mapping(obj.get("metadata")).get("generation")
    observed = _mapping(obj.get("status")).get("observedGeneration")
    return Priority.EVENT if observed == generation else Priority.NEW_GENERATION


def _itself(metadata: Mapping[str, Any]) -> set[Key]:
    return _key(metadata.get("namespace"), metadata.get("name"))


def _controller(metadata: Mapping[str, Any]) -> set[Key]:
    """The controller ownerReference, when it is one of ours."""
    references = metadata.get("ownerReferences")
    for reference in references if isinstance(references, list) else []:
        owner = _mapping(reference)
        group = str(owner.get("apiVersion", "")).partition("/")[0]
        if owner.get("controller") is True and (group, owner.get("kind")) == _OWNER:
            return _key(metadata.get("namespace"), owner.get("name"))
    return set()


def _labelled(metadata: Mapping[str, Any]) -> set[Key]:
    """A pod's owner is a ReplicaSet; the label names the InferenceDeployment."""
    return _key(metadata.get("namespace"), _mapping(metadata.get("labels")).get(LABEL_OWNER))


def _key(namespace: object, name: object) -> set[Key]:
    if isinstance(namespace, str) and namespace and isinstance(name, str) and name:
        return {Key(namespace, name)}
    return set()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


_OWNER: Final = (GROUP, INFERENCE_DEPLOYMENT)
_MAPPERS: Final[Mapping[Kind, Callable[[Mapping[str, Any]], set[Key]]]] = {
    INFERENCE_DEPLOYMENTS: lambda metadata: _itself(metadata) | _controller(metadata),
    DEPLOYMENTS: _controller,
    SERVICES: _controller,
    PODS: _labelled,
}
