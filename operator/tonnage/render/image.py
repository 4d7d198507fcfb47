"""Which image a pod runs."""

from dataclasses import dataclass
from typing import Final

from tonnage.catalog.engine import parse_version
from tonnage.render.defaults import defaults
from tonnage.render.replica import Replica

_SERVE: Final = ("vllm", "serve")


@dataclass(frozen=True, slots=True)
class Image:
    """An image by name and tag; `command` is empty where its own entrypoint is `vllm serve`."""

    name: str
    command: tuple[str, ...] = ()


def choose_image(replica: Replica) -> Image:
    """The user's image, else the pool's, else the one that a compatibility rule pins, else the
    vendor's of the wanted vLLM release, in the build that the drivers of the pool's nodes run.

    An image that is not the vendor's may have any entrypoint (rocm/vllm has a shell, which would
    end at once and look like success); that `vllm` is on its PATH is all it has to promise.
    """
    declared = replica.option.pool.declared
    given = replica.spec.engine.vllm.image or (declared.images.vllm if declared else None)
    chosen = given or replica.option.settings.image
    return Image(chosen, _SERVE) if chosen else _vendor_image(replica)


def _vendor_image(replica: Replica) -> Image:
    version = replica.vllm_version
    serves = parse_version(version) >= parse_version(defaults().since.serve_entrypoint)
    name = replica.catalog.image(replica.vendor, version, replica.option.pool.cuda)
    return Image(name) if serves else Image(name, _SERVE)
