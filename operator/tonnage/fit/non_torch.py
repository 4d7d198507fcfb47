"""Memory that torch does not account for: communication buffers, kernels, library handles."""

from tonnage.catalog.model import Vendor
from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.fit.degrees import lookup_by_gpus
from tonnage.fit.model import Parallelism


def non_torch_bytes(parallelism: Parallelism, vendor: Vendor, release: EngineRelease) -> int:
    """Bytes of non-torch memory that the release counts in its budget, by number of GPUs.

    Each release counts another part of this memory; the catalogue's figures include that.
    """
    return lookup_by_gpus(release.non_torch_bytes[vendor], parallelism.gpus)
