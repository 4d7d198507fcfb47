"""Reads the GPUs that a raw Pod object holds, and what else it requests of its node."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tonnage.api.names import LABEL_PLACEMENT, WEIGHTS_CONTAINER, owner_of
from tonnage.fleet.devices.resources import as_mapping, as_sequence, gpu_counts, shared_counts
from tonnage.fleet.model import GpuPod, KeptWeights
from tonnage.fleet.nodes.amounts import as_resources, read_amount, read_amounts
from tonnage.fleet.resources import Resources

_FINISHED: Final = frozenset({"Succeeded", "Failed"})

Read = Callable[[object], dict[str, int]]
"""Reads some resources of a map of quantities."""


def read_gpu_pod(obj: Mapping[str, Any]) -> GpuPod | None:
    """Read a Pod that holds or waits for GPUs, or devices by ResourceClaims; None when it requests
    none or has finished.

    A pod that is being deleted holds its GPUs until it is gone. Never raises.
    """
    metadata, spec = (as_mapping(obj.get(part)) for part in ("metadata", "spec"))
    if has_finished(obj):
        return None
    requests = effective_requests(spec, _read_gpus)
    if not requests and not as_sequence(spec.get("resourceClaims")):
        return None
    labels = as_mapping(metadata.get("labels"))
    owner = _text(owner_of(labels))
    namespace = _text(metadata.get("namespace")) or "default"
    return GpuPod(
        uid=_text(metadata.get("uid")) or f"{namespace}/{_text(metadata.get('name'))}",
        node=_text(spec.get("nodeName")),
        requests=shared_counts(tuple(requests.items())),
        owner=(namespace, owner) if owner else None,
        placement=_text(labels.get(LABEL_PLACEMENT)) if owner else None,
        deleting=metadata.get("deletionTimestamp") is not None,
        others=read_other_requests(spec),
        weights=read_kept_weights(spec),
    )


def count_requested_gpus(spec: Mapping[str, Any]) -> int:
    """Count the GPUs of all kinds that a pod with this spec requests. Never raises."""
    return sum(effective_requests(spec, _read_gpus).values())


def read_other_requests(spec: Mapping[str, Any]) -> Resources:
    """Read what the scheduler counts for a pod with this spec besides GPUs. Never raises."""
    amounts = effective_requests(spec, read_amounts)
    whole = spec.get("resources")
    if whole is not None:  # requests of the pod as a whole replace the sums of its containers
        amounts = {**amounts, **_requests({"resources": whole}, read_amounts)}
    overhead = spec.get("overhead")  # of its RuntimeClass
    return as_resources(amounts if overhead is None else _sum((amounts, read_amounts(overhead))))


def read_kept_weights(spec: Mapping[str, Any]) -> KeptWeights | None:
    """Read what the operator's container keeps on the node; None of a pod without it, which may
    have one of the same name. Never raises."""
    named = map(as_mapping, as_sequence(spec.get("initContainers")))
    container = next((each for each in named if each.get("name") == WEIGHTS_CONTAINER), None)
    if container is None:
        return None
    variables = {
        _text(each.get("name")): _text(each.get("value"))
        for each in map(as_mapping, as_sequence(container.get("env")))
    }
    mounts = {
        _text(each.get("name"))
        for each in map(as_mapping, as_sequence(container.get("volumeMounts")))
    }
    directories = (
        _text(as_mapping(volume.get("hostPath")).get("path"))
        for volume in map(as_mapping, as_sequence(spec.get("volumes")))
        if _text(volume.get("name")) in mounts
    )
    directory = next((each for each in directories if each is not None), None)
    folder, size = variables.get("FOLDER"), read_amount(variables.get("SIZE"))
    if directory is None or folder is None or size is None:
        return None
    return KeptWeights(directory, folder, size)


def _read_gpus(quantities: object) -> dict[str, int]:
    counts, _ = gpu_counts(quantities)
    return counts


def has_finished(obj: Mapping[str, Any]) -> bool:
    """Whether the Pod has finished; it never runs again. Never raises."""
    return _text(as_mapping(obj.get("status")).get("phase")) in _FINISHED


def effective_requests(spec: Mapping[str, Any], read: Read) -> dict[str, int]:
    """Return what the scheduler allocates to a pod with this spec, of the resources that `read`
    reads. Never raises.

    The larger of two sums: all containers that run together (containers and sidecars), and the
    peak of the start, when an init container runs next to the sidecars started before it. Source:
    Kubernetes documentation, "Resource sharing within containers" of sidecar containers.
    """
    return _combine(spec, lambda container: _requests(container, read))


def effective_limits(spec: Mapping[str, Any], read: Read) -> dict[str, int]:
    """Return the limits of a pod with this spec as quotas count them, in the same way as its
    requests. Never raises."""
    return _combine(
        spec,
        lambda container: read(as_mapping(as_mapping(container).get("resources")).get("limits")),
    )


def _combine(spec: Mapping[str, Any], amounts_of: Read) -> dict[str, int]:
    running = _sum(amounts_of(container) for container in as_sequence(spec.get("containers")))
    sidecars: dict[str, int] = {}
    start: dict[str, int] = {}
    for container in as_sequence(spec.get("initContainers")):
        requests = amounts_of(container)
        if as_mapping(container).get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, requests))
        else:
            start = _largest((start, _sum((sidecars, requests))))
    effective = _largest((_sum((running, sidecars)), start))
    return {resource: count for resource, count in effective.items() if count}


def _requests(container: object, read: Read) -> dict[str, int]:
    """Read one container's requests; the API server copies a limit without a request to the
    request."""
    resources = as_mapping(as_mapping(container).get("resources"))
    return read(resources.get("limits")) | read(resources.get("requests"))


def _sum(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for resource, count in part.items():
            total[resource] = total.get(resource, 0) + count
    return total


def _largest(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    largest: dict[str, int] = {}
    for part in parts:
        for resource, count in part.items():
            largest[resource] = max(largest.get(resource, 0), count)
    return largest


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
