"""Reads what a raw Pod object takes of its node."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from tonnage.api.names import LABEL_OWNER, LABEL_PLACEMENT
from tonnage.fleet.devices.resources import as_mapping, is_gpu
from tonnage.fleet.model import BoundPod, GpuPod, PodUsage
from tonnage.fleet.nodes.amounts import pod_requests, without_gpus
from tonnage.fleet.resources import NOTHING

_FINISHED: Final = frozenset({"Succeeded", "Failed"})


def read_pod(obj: Mapping[str, Any]) -> PodUsage | None:
    """Read a Pod that takes something of a node, or waits for GPUs; None for any other, and for one
    that has finished.

    A pod that is being deleted holds everything until it is gone. Never raises.
    """
    metadata, spec = (as_mapping(obj.get(part)) for part in ("metadata", "spec"))
    if has_finished(obj):
        return None
    amounts = pod_requests(spec)
    gpus = tuple((name, count) for name, count in amounts.items() if count and is_gpu(name))
    others, node = without_gpus(amounts), _text(spec.get("nodeName"))
    if not gpus:
        return None if node is None or others == NOTHING else BoundPod(node, others)
    labels = as_mapping(metadata.get("labels"))
    owner = _text(labels.get(LABEL_OWNER))
    namespace = _text(metadata.get("namespace")) or "default"
    return GpuPod(
        uid=_text(metadata.get("uid")) or f"{namespace}/{_text(metadata.get('name'))}",
        node=node,
        requests=_shared(gpus),
        owner=(namespace, owner) if owner else None,
        placement=_text(labels.get(LABEL_PLACEMENT)) if owner else None,
        deleting=metadata.get("deletionTimestamp") is not None,
        others=others,
    )


def read_gpu_pod(obj: Mapping[str, Any]) -> GpuPod | None:
    """Read a Pod that holds or waits for GPUs; None for any other. Never raises."""
    pod = read_pod(obj)
    return pod if isinstance(pod, GpuPod) else None


@lru_cache(maxsize=256)
def _shared(requests: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """Return the same object for equal requests: tens of thousands of pods have a few."""
    return dict(requests)


def has_finished(obj: Mapping[str, Any]) -> bool:
    """Whether the Pod has finished; it never runs again. Never raises."""
    return _text(as_mapping(obj.get("status")).get("phase")) in _FINISHED


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
