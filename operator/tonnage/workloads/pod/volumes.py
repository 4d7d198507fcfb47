"""Renders volumes and their mounts: cache, shared memory, the model, and the user's."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec, ModelSource
from tonnage.api.pod import TemplateSpec, Volume
from tonnage.engines.defaults import load_defaults
from tonnage.engines.errors import VolumeError
from tonnage.engines.quantity import format_canonical, gibibytes, render_stored
from tonnage.engines.replica import Replica
from tonnage.workloads.pod.disk import NodeDisk, mount_path, mounts_cache, node_disk

_CACHE: Final = "cache"
_SHARED_MEMORY: Final = "shm"
MODEL_VOLUME: Final = "model"
"""Name of the model's volume, where the model is on a PersistentVolumeClaim."""
_SHARED_MEMORY_PATH: Final = "/dev/shm"  # noqa: S108 - where NCCL and RCCL look for it

_VOLUMES: Final = "spec.template.spec.volumes"
_MOUNTS: Final = "spec.template.spec.volumeMounts"


def render_volumes(replica: Replica) -> list[dict[str, Any]]:
    """The pod's volumes; a user's volume at the cache's path replaces the operator's."""
    spec = replica.spec
    size = load_defaults().shared_memory.sizes[replica.vendor]
    shared_memory = gibibytes(max(size.floor_gib, size.per_gpu_gib * replica.gpus))
    return [
        *_cache_volume(node_disk(replica)),
        {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}},
        *_model_volume(spec.model.source),
        *(_user_volume(volume) for volume in spec.template.spec.volumes),
    ]


def render_volume_mounts(spec: InferenceDeploymentSpec) -> list[dict[str, Any]]:
    """The volume mounts of the vLLM container."""
    cache = {"name": _CACHE, "mountPath": load_defaults().cache.path}
    return [
        *([] if mounts_cache(spec) else [cache]),
        {"name": _SHARED_MEMORY, "mountPath": _SHARED_MEMORY_PATH},
        *_model_mount(spec.model.source),
        *(render_stored(mount) for mount in spec.template.spec.volume_mounts),
    ]


def check_volumes(template: TemplateSpec) -> None:
    """Refuse clashes with the operator's volumes and among the user's. Raises VolumeError."""
    names = [volume.name for volume in template.volumes]
    for name in names:
        if name in (_CACHE, _SHARED_MEMORY, MODEL_VOLUME):
            raise VolumeError(_VOLUMES, f"name {name!r} is one of Tonnage's own; rename the volume")
    _refuse_duplicates(_VOLUMES, "name", names)
    for mount in template.volume_mounts:
        if mount.name not in names:
            raise VolumeError(_MOUNTS, f"no volume {mount.name!r} in {_VOLUMES}; add it there")
    paths = [mount_path(mount) for mount in template.volume_mounts]
    for path in paths:
        if path in (_SHARED_MEMORY_PATH, load_defaults().model_volume_path):
            raise VolumeError(_MOUNTS, f"mountPath {path!r} is one of Tonnage's own; use another")
    _refuse_duplicates(_MOUNTS, "mountPath", paths)


def _refuse_duplicates(field: str, key: str, values: Iterable[str]) -> None:
    value, count = next(iter(Counter(values).most_common(1)), ("", 0))
    if count > 1:
        raise VolumeError(field, f"{key} {value!r} appears {count} times; keep one")


def _cache_volume(disk: NodeDisk | None) -> list[dict[str, Any]]:
    if disk is None:
        return []
    limit = {"sizeLimit": gibibytes(disk.limit_gib)} if disk.limit_gib else {}
    return [{"name": _CACHE, "emptyDir": limit}]


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


def _user_volume(volume: Volume) -> dict[str, Any]:
    rendered = render_stored(volume)
    size_limit = rendered.get("emptyDir", {}).get("sizeLimit")
    if size_limit is not None:
        rendered["emptyDir"]["sizeLimit"] = format_canonical(size_limit)
    return rendered
