"""The vendors' images of vLLM."""

from typing import Final

from tonnage.catalog.vllm.releases import parse_version
from tonnage.engines.defaults import load_defaults
from tonnage.engines.interface import Image
from tonnage.engines.replica import Replica

SERVE: Final = ("vllm", "serve")
"""Starts the server in an image that has vLLM on its PATH."""


def release_of(replica: Replica) -> str:
    """The vLLM release of the spec, or the catalogue's default."""
    return replica.catalog.release(replica.spec.engine.vllm.version).version


def vendor_image(replica: Replica) -> Image:
    """The vendor's image of the release, in the build that the drivers of the pool's nodes run."""
    version, cuda = release_of(replica), replica.option.pool.cuda
    is_entrypoint = parse_version(version) >= parse_version(load_defaults().since.serve_entrypoint)
    return Image(
        replica.catalog.image(replica.vendor, version, cuda),
        () if is_entrypoint else SERVE,
        None if cuda is None else replica.catalog.oldest_driver(replica.vendor, version, cuda),
    )
