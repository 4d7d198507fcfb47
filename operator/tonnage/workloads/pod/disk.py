"""Disk of a node that a replica needs for its caches and the weights that its engine downloads."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.pod import EnvVar
from tonnage.engines.defaults import load_defaults
from tonnage.engines.model_source import loaded_model
from tonnage.engines.quantity import GIB
from tonnage.engines.registry import engine_for
from tonnage.engines.replica import Replica
from tonnage.workloads.pod.mounts import mounts_cache, normalize_path

_HUB_FOLDER: Final = "HF_HOME"
_HUB_VARIABLES: Final = frozenset({_HUB_FOLDER, "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
"""Variables of huggingface_hub that change where weights are downloaded to."""

Mount = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NodeDisk:
    """Sizes in GiB; `limit_gib` is None where the size of the weights is not known."""

    request_gib: int
    limit_gib: int | None


def node_disk(replica: Replica, mounts: Sequence[Mount]) -> NodeDisk | None:
    """The disk that the cache volume needs, None where one of the mounts of the engine's container
    that a pool and a user add replaces it."""
    if any(mounts_cache(mount) for mount in mounts):
        return None
    disk, declared = load_defaults().disk, replica.option.pool.declared
    is_moved = declared is not None and _moves_hub_folder(declared.env)
    if is_moved or not may_download_to_cache(replica.spec, mounts):
        return NodeDisk(disk.base_gib, disk.limit_factor * disk.base_gib)
    steps = math.ceil(replica.weights_bytes / (disk.step_gib * GIB))
    request = disk.base_gib + steps * disk.step_gib
    is_known = bool(replica.checkpoint.weights_bytes)
    return NodeDisk(request, disk.limit_factor * request if is_known else None)


def may_download_to_cache(spec: InferenceDeploymentSpec, mounts: Iterable[Mount] = ()) -> bool:
    """Whether the engine downloads weights to the cache volume, unless a variable of the pool names
    another folder."""
    if spec.model.source.persistent_volume_claim or spec.model.cache:
        return False
    model, settings = loaded_model(spec, ""), spec.engine.settings
    flags = {argument.partition("=")[0] for argument in settings.extra_args}
    if model.startswith("/") or "://" in model or flags & engine_for(spec).download_flags:
        return False
    if _moves_hub_folder(settings.env):
        return False
    cache = load_defaults().cache
    hub = f"{cache.path}/{cache.folders[_HUB_FOLDER]}/"
    return not any(f"{normalize_path(mount)}/".startswith(hub) for mount in mounts)


def _moves_hub_folder(variables: Iterable[EnvVar]) -> bool:
    return any(variable.name in _HUB_VARIABLES for variable in variables)
