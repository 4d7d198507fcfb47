"""Renders the operator's own volumes and their mounts: caches, shared memory, the model."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.model import Model
from tonnage.engines.compile_cache import compile_claim
from tonnage.engines.defaults import load_defaults
from tonnage.engines.image import mirrored
from tonnage.engines.quantity import gibibytes
from tonnage.engines.replica import Replica
from tonnage.workloads.pod.adapters import render_adapter_mounts, render_adapter_volumes
from tonnage.workloads.pod.disk import NodeDisk
from tonnage.workloads.pod.mounts import mounts_cache

CACHE: Final = "cache"
"""Name of the volume for caches and downloaded weights, which users may replace."""
SHARED_MEMORY: Final = "shm"
"""Name of the volume at /dev/shm."""
MODEL_VOLUME: Final = "model"
"""Name of the volume with the model, where that is on a claim, in an image or on a node's disk."""
COMPILE_CACHE: Final = "compile-cache"
"""Name of the volume with compiled kernels and graphs, and of nothing else where there is one."""
_SHARED_MEMORY_PATH: Final = "/dev/shm"  # noqa: S108 - where NCCL and RCCL look for it

CACHE_MOUNT: Final = {"name": CACHE, "mountPath": load_defaults().cache.path}
"""The mount of the volume for caches."""

OWN_MOUNT_PATHS: Final = frozenset({_SHARED_MEMORY_PATH, load_defaults().model_volume_path})
"""Paths at which nothing else can be mounted into the engine's container."""


def render_volumes(replica: Replica, disk: NodeDisk | None) -> list[dict[str, Any]]:
    """The operator's volumes of the pod; `disk` is what the cache needs."""
    size = load_defaults().shared_memory.sizes[replica.vendor]
    shared_memory = gibibytes(max(size.floor_gib, size.per_gpu_gib * replica.gpus))
    limit = {"sizeLimit": gibibytes(disk.limit_gib)} if disk and disk.limit_gib else {}
    return [
        {"name": CACHE, "emptyDir": limit},
        {"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}},
        *_model_volume(replica),
        *render_adapter_volumes(replica),
        *_compile_cache_volume(replica.spec),
    ]


def render_volume_mounts(
    replica: Replica, others: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The operator's volume mounts of the engine's container; one of the `others` at the path of
    the cache replaces that of the cache."""
    return [
        *([] if any(mounts_cache(mount) for mount in others) else [dict(CACHE_MOUNT)]),
        {"name": SHARED_MEMORY, "mountPath": _SHARED_MEMORY_PATH},
        *_model_mount(replica.spec.model),
        *render_adapter_mounts(replica),
        *_compile_cache_mount(replica.spec),
    ]


def model_claim(model: Model) -> str | None:
    """The claim that the model is loaded from: that of its source, or that of its cache."""
    source = model.source.persistent_volume_claim
    return source.claim_name if source else model.cache_claim


def _model_volume(replica: Replica) -> list[dict[str, Any]]:
    """Read-only as a volume, not only as a mount: the kubelet then does not change the groups of
    its files, and a ReadOnlyMany claim can be attached to many nodes."""
    model = replica.spec.model
    claim, image = model_claim(model), model.cache.image if model.cache else None
    if image is not None:
        policy = {"pullPolicy": image.pull_policy} if image.pull_policy else {}
        source = {"reference": mirrored(image.reference, replica), **policy}
        return [{"name": MODEL_VOLUME, "image": source}]
    if model.is_on_node_disk:
        return [node_volume(replica)]
    if claim is None:
        return []
    volume_source = {"claimName": claim, "readOnly": True}
    return [{"name": MODEL_VOLUME, "persistentVolumeClaim": volume_source}]


def node_volume(replica: Replica) -> dict[str, Any]:
    """The volume with the directory of the namespace on the node. No pod mounts that of another
    namespace: the image of its containers is the user's choice."""
    disk = replica.option.pool.node_disk
    assert disk is not None, f"placement chose pool {replica.option.pool.name}, which keeps none"
    path = f"{disk.path}/{replica.owner.namespace}"
    return {"name": MODEL_VOLUME, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}


def _model_mount(model: Model) -> list[dict[str, Any]]:
    if model_claim(model) is None and model.cache is None:
        return []
    return [
        {"name": MODEL_VOLUME, "mountPath": load_defaults().model_volume_path, "readOnly": True}
    ]


def _compile_cache_volume(spec: InferenceDeploymentSpec) -> list[dict[str, Any]]:
    claim = compile_claim(spec)
    if claim is None:
        return []
    return [{"name": COMPILE_CACHE, "persistentVolumeClaim": {"claimName": claim}}]


def _compile_cache_mount(spec: InferenceDeploymentSpec) -> list[dict[str, Any]]:
    if compile_claim(spec) is None:
        return []
    return [{"name": COMPILE_CACHE, "mountPath": load_defaults().compile_cache_path}]
