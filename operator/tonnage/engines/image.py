"""Chooses the image of a pod."""

from dataclasses import replace

from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.engines.image_mirrors import use_mirror
from tonnage.engines.interface import EngineKind, Image
from tonnage.engines.replica import Replica


def choose_image(engine: EngineKind, replica: Replica) -> Image:
    """The user's image, else the pool's unless the user sets a release, else the one that a
    compatibility rule pins, else the vendor's image of the engine's release.

    Another image than the vendor's may have any entrypoint (rocm/vllm has a shell, which would end
    at once with exit code 0), so it gets the command that starts the server. Mirrors rename the
    chosen image.
    """
    image = _choose(engine, replica, replica.option.pool.declared)
    return replace(image, name=mirrored(image.name, replica))


def mirrored(name: str, replica: Replica) -> str:
    """The image by the name that it has on the mirrors of the pool and of the operator."""
    declared = replica.option.pool.declared
    pool_mirrors = declared.images.mirrors if declared else {}
    return use_mirror(name, pool_mirrors, replica.settings.registry_mirrors)


def _choose(engine: EngineKind, replica: Replica, declared: AcceleratorPoolSpec | None) -> Image:
    settings = replica.spec.engine.settings
    of_pool = declared.images.of(engine.name) if declared and settings.version is None else None
    name = settings.image or of_pool or replica.option.settings.image
    return Image(name, engine.command) if name else engine.choose_vendor_image(replica)
