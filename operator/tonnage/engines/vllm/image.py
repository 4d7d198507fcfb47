"""Chooses the image of a pod."""

from dataclasses import dataclass, replace
from typing import Final

from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.catalog.vllm.releases import parse_version
from tonnage.engines.defaults import load_defaults
from tonnage.engines.image_mirrors import use_mirror
from tonnage.engines.replica import Replica

_SERVE: Final = ("vllm", "serve")


@dataclass(frozen=True, slots=True)
class Image:
    """An image by name and tag; `command` is empty where the entrypoint is `vllm serve`.

    `oldest_driver` is the oldest branch of NVIDIA's driver that runs it, None where that is not
    known.
    """

    name: str
    command: tuple[str, ...] = ()
    oldest_driver: int | None = None


def choose_image(replica: Replica) -> Image:
    """The user's image, else the pool's unless the user sets a release, else the one that a
    compatibility rule pins, else the vendor's image of the vLLM release, in the build that the
    drivers of the pool's nodes run.

    Another image than the vendor's may have any entrypoint (rocm/vllm has a shell, which would end
    at once with exit code 0); it only needs `vllm` on its PATH. Mirrors rename the chosen image.
    """
    declared = replica.option.pool.declared
    image = _choose(replica, declared)
    pool_mirrors = declared.images.mirrors if declared else {}
    name = use_mirror(image.name, pool_mirrors, replica.settings.registry_mirrors)
    return replace(image, name=name)


def _choose(replica: Replica, declared: AcceleratorPoolSpec | None) -> Image:
    vllm = replica.spec.engine.vllm
    of_pool = declared.images.vllm if declared and vllm.version is None else None
    name = vllm.image or of_pool or replica.option.settings.image
    return Image(name, _SERVE) if name else _vendor_image(replica)


def _vendor_image(replica: Replica) -> Image:
    version, cuda = replica.vllm_version, replica.option.pool.cuda
    is_entrypoint = parse_version(version) >= parse_version(load_defaults().since.serve_entrypoint)
    return Image(
        replica.catalog.image(replica.vendor, version, cuda),
        () if is_entrypoint else _SERVE,
        None if cuda is None else replica.catalog.oldest_driver(replica.vendor, version, cuda),
    )
