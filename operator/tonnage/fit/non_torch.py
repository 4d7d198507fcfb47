"""Memory that torch does not account for: communication buffers, kernels, library handles."""

from tonnage.catalog.engine import EngineRelease
from tonnage.catalog.model import Vendor
from tonnage.fit.degrees import at_degree
from tonnage.fit.model import Parallelism


def non_torch_bytes(parallelism: Parallelism, vendor: Vendor, release: EngineRelease) -> int:
    """What the release charges to its budget, for this many GPUs working together.

    Which part of it is charged changes from release to release; the catalogue's figures say so.
    """
    return at_degree(release.non_torch_bytes[vendor], parallelism.gpus)
