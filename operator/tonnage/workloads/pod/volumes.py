"""Renders the operator's own volumes and their mounts: cache, shared memory, the model."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tonnage.api.inference import ModelSource
from tonnage.engines.defaults import load_defaults
from tonnage.engines.quantity import gibibytes
from tonnage.engines.replica import Replica
from tonnage.workloads.pod.disk import NodeDisk
from tonnage.workloads.pod.mounts import mounts_cache

CACHE: Final = "cache"
"""Name of the volume for caches and downloaded weights, which users may replace."""
SHARED_MEMORY: Final = "shm"
"""Name of the volume at /dev/shm."""
MODEL_VOLUME: Final = "model"
"""Name of the model's volume, where the model is on a PersistentVolumeClaim."""
_SHARED_MEMORY_PATH: Final = "/dev/shm"  # noqa: S108 - where NCCL and RCCL look for it

OWN_MOUNT_PATHS: Final = frozenset({_SHARED_MEMORY_PATH, load_defaults().model_volume_path})
"""Paths at which nothing else can be mounted into the vLLM container."""


def render_volumes(replica: Replica, disk: NodeDisk | None) -> list[dict[str, Any]]:
    """The operator's volumes of the pod; `disk` is what the cache needs."""
    size = load_defaults().shared_memory.sizes[replica.vendor]
    shared_memory = gibibytes(max(size.floor_gib, size.per_gpu_gib * replica.gpus))
    limit = {"sizeLimit": gibibytes(disk.limit_gib)} if disk and disk.limit_gib else {}
    return [
        {"name": CACHE, "emptyDir": limit},
        {"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}},
        *_model_volume(replica.spec.model.source),
    ]


def render_volume_mounts(
    source: ModelSource, others: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The operator's volume mounts of the vLLM container; one of the `others` at the path of the
    cache replaces that of the cache."""
    cache = {"name": CACHE, "mountPath": load_defaults().cache.path}
    return [
        *([] if any(mounts_cache(mount) for mount in others) else [cache]),
        {"name": SHARED_MEMORY, "mountPath": _SHARED_MEMORY_PATH},
        *_model_mount(source),
    ]


def _model_volume(source: ModelSource) -> list[dict[str, Any]]:
    """Read-only as a volume, not only as a mount: the kubelet then does not change the groups of
    its files, and a ReadOnlyMany claim can be attached to many nodes."""
    claim = source.persistent_volume_claim
    if claim is None:
        return []
    volume_source = {"claimName": claim.claim_name, "readOnly": True}
    return [{"name": MODEL_VOLUME, "persistentVolumeClaim": volume_source}]


def _model_mount(source: ModelSource) -> list[dict[str, Any]]:
    if source.persistent_volume_claim is None:
        return []
    return [
        {"name": MODEL_VOLUME, "mountPath": load_defaults().model_volume_path, "readOnly": True}
    ]
