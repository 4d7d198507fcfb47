"""Memory corrections and running replicas: a correction counts when a placement is chosen.

The operator judges running replicas by the corrections known when it placed them. So no correction
ever moves or restarts them, whatever its origin, and their memory prediction stays the same.
"""

from tonnage.catalog.catalog import Catalog
from tonnage.fit.calibration.corrections import (
    CorrectionKey,
    Corrections,
    MemoryCorrection,
    Origin,
    served_model,
)
from tonnage.fit.options import engine_options
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.observation.children import ChildDeployment


def known_when_placed(
    current: ChildDeployment, accepted: Accepted, known: Corrections, catalog: Catalog
) -> Corrections:
    """The `known` corrections, but for the replicas' own plan the one known when it was chosen."""
    if not known.entries and not current.correction_bytes:
        return known
    options = engine_options(accepted.spec, catalog)
    release = catalog.release(options.vllm_version)
    served = served_model(accepted.checkpoint.shape, options, release)
    parallelism = current.parallelism
    key = CorrectionKey(served, current.accelerator, parallelism.tensor, parallelism.pipeline)
    others, latest = known.without(key), known.find(key)
    if not current.correction_bytes:
        return others
    if latest is not None and latest.extra_bytes == current.correction_bytes:
        return known
    # FAILURE is the more careful origin.
    when_placed = MemoryCorrection(key, current.correction_bytes, Origin.FAILURE)
    return Corrections((*others.entries, when_placed))
