"""Checks of the deprecated spec.template that podTemplate does not need."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from tonnage.api.pod import PodTemplateOverrides
from tonnage.engines.errors import VolumeError
from tonnage.workloads.pod.mounts import normalize_path
from tonnage.workloads.pod.resources import check_resources
from tonnage.workloads.pod.volumes import (
    CACHE,
    MODEL_VOLUME,
    OWN_MOUNT_PATHS,
    SHARED_MEMORY,
)

_VOLUMES: Final = "spec.template.spec.volumes"
_MOUNTS: Final = "spec.template.spec.volumeMounts"


def check_overrides(template: PodTemplateOverrides) -> None:
    """Refuse requests above limits, and volumes that clash with the operator's or with each other.

    Raises ResourceError or VolumeError.
    """
    check_resources(template.spec.resources.to_dict(), "spec.template.spec.resources")
    names = [volume.name for volume in template.spec.volumes]
    for name in names:
        if name in (CACHE, SHARED_MEMORY, MODEL_VOLUME):
            raise VolumeError(_VOLUMES, f"name {name!r} is one of Tonnage's own; rename the volume")
    _refuse_duplicates(_VOLUMES, "name", names)
    for mount in template.spec.volume_mounts:
        if mount.name not in names:
            raise VolumeError(_MOUNTS, f"no volume {mount.name!r} in {_VOLUMES}; add it there")
    paths = [normalize_path(mount.to_dict()) for mount in template.spec.volume_mounts]
    for path in paths:
        if path in OWN_MOUNT_PATHS:
            raise VolumeError(_MOUNTS, f"mountPath {path!r} is one of Tonnage's own; use another")
    _refuse_duplicates(_MOUNTS, "mountPath", paths)


def _refuse_duplicates(field: str, key: str, values: Iterable[str]) -> None:
    for value, count in Counter(values).items():
        if count > 1:
            raise VolumeError(field, f"{key} {value!r} appears {count} times; keep one")
