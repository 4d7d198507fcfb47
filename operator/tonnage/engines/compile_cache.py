"""The folder for compiled kernels and graphs on the volume of spec.engine.compileCache."""

from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.text import digest
from tonnage.engines.defaults import load_defaults
from tonnage.engines.image import choose_image
from tonnage.engines.interface import EngineKind
from tonnage.engines.replica import Replica

_DOWNLOADS: Final = "HF_HOME"
"""The variable of the cache that names no folder of a compiler."""


def compile_claim(spec: InferenceDeploymentSpec) -> str | None:
    """The claim that keeps what engines compile; None without one."""
    cache = spec.engine.compile_cache
    return cache.persistent_volume_claim.claim_name if cache else None


def compile_cache_variables(engine: EngineKind, replica: Replica) -> dict[str, str]:
    """The variables that point into the volume; none without one.

    What was compiled by another image or for another accelerator may not run, and not all compilers
    have both in their own keys. The folder is made by the engine, not as a subPath by the kubelet,
    which has no right to write to many network file systems.
    """
    if compile_claim(replica.spec) is None:
        return {}
    image = digest([choose_image(engine, replica).name])
    root = f"{load_defaults().compile_cache_path}/{replica.accelerator.id}-{image}"
    return {
        name: f"{root}/{folder}" if folder else root
        for name, folder in load_defaults().cache.folders.items()
        if name != _DOWNLOADS
    }
