"""The InferenceDeployments that an object is or belongs to. Pure; input may be hostile."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tonnage.api.names import GROUP, INFERENCE_DEPLOYMENT, owner_of
from tonnage.fleet.devices.resources import as_mapping, as_sequence
from tonnage.kube.kinds import (
    COMPUTE_DOMAINS,
    INFERENCE_DEPLOYMENTS,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_QUOTAS,
    SERVICES,
)
from tonnage.kube.protocol import Kind, Object
from tonnage.workloads.registry import WORKLOAD_KINDS

_Owners = set[tuple[str, str]]

ANY_OWNER: Final = ""
"""Stands for every InferenceDeployment of a namespace."""


def owner_keys(kind: Kind, obj: Object) -> _Owners:
    """Namespace and name of each InferenceDeployment to reconcile when this object changes."""
    find_owners = _OWNERS_OF.get(kind)
    return find_owners(as_mapping(obj.get("metadata"))) if find_owners else set()


def _own_key(metadata: Mapping[str, Any]) -> _Owners:
    return _owner(metadata.get("namespace"), metadata.get("name"))


def _controller(metadata: Mapping[str, Any]) -> _Owners:
    """The controller ownerReference, where it is an InferenceDeployment."""
    for owner in map(as_mapping, as_sequence(metadata.get("ownerReferences"))):
        group = str(owner.get("apiVersion", "")).partition("/")[0]
        if owner.get("controller") is True and (group, owner.get("kind")) == _OWNER_KIND:
            return _owner(metadata.get("namespace"), owner.get("name"))
    return set()


def _label(metadata: Mapping[str, Any]) -> _Owners:
    """The owner label. A Pod has nothing else: its controller is a ReplicaSet or a StatefulSet."""
    labels = as_mapping(metadata.get("labels"))
    return _owner(metadata.get("namespace"), owner_of(labels))


def _budget(metadata: Mapping[str, Any]) -> _Owners:
    """A user's PodDisruptionBudget may select pods of every object in its namespace."""
    return _controller(metadata) | _label(metadata) or _every_owner(metadata)


def _every_owner(metadata: Mapping[str, Any]) -> _Owners:
    namespace = metadata.get("namespace")
    return {(namespace, ANY_OWNER)} if isinstance(namespace, str) else set()


def _owner(namespace: object, name: object) -> _Owners:
    if isinstance(namespace, str) and namespace and isinstance(name, str) and name:
        return {(namespace, name)}
    return set()


_OWNER_KIND: Final = (GROUP, INFERENCE_DEPLOYMENT)
_OWNERS_OF: Final[Mapping[Kind, Callable[[Mapping[str, Any]], _Owners]]] = {
    INFERENCE_DEPLOYMENTS: lambda metadata: _own_key(metadata) | _controller(metadata),
    **dict.fromkeys(WORKLOAD_KINDS, lambda metadata: _controller(metadata) | _label(metadata)),
    SERVICES: lambda metadata: _controller(metadata) | _label(metadata),
    RESOURCE_CLAIM_TEMPLATES: lambda metadata: _controller(metadata) | _label(metadata),
    COMPUTE_DOMAINS: lambda metadata: _controller(metadata) | _label(metadata),
    JOBS: lambda metadata: _controller(metadata) | _label(metadata),
    PODS: _label,
    POD_DISRUPTION_BUDGETS: _budget,
    RESOURCE_QUOTAS: _every_owner,
    LIMIT_RANGES: _every_owner,
    NAMESPACES: lambda metadata: _every_owner({"namespace": metadata.get("name")}),
}
