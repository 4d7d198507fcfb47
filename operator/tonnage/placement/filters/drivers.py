"""Drivers that are too old for the images of an engine."""

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.fit.questions.question import MemoryModel
from tonnage.fleet.model import Pool
from tonnage.placement.model import Rejection
from tonnage.placement.reasons import RejectedReason


def find_old_drivers(
    spec: InferenceDeploymentSpec, pool: Pool, engine: MemoryModel
) -> Rejection | None:
    """Reject a pool whose drivers run no image of the engine, None where one may run: also where
    the drivers are unknown, or where the user or the platform team names an image."""
    named = spec.engine.settings.image
    if named is None and pool.declared is not None:
        named = pool.declared.images.of(spec.engine.name)
    oldest = engine.oldest_cuda
    if named is not None or oldest is None or pool.cuda is None or pool.cuda >= oldest:
        return None
    has, needs = (".".join(map(str, version)) for version in (pool.cuda, oldest))
    message = (
        f"its drivers support CUDA {has}, the images of the engine need {needs}: install"
        f" newer drivers, or set spec.engine.{spec.engine.name}.image"
    )
    return Rejection(RejectedReason.UNSUPPORTED, message)
