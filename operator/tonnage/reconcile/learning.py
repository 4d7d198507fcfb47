"""What was learnt of memory, and what runs: a lesson counts when a place is chosen, not before.

Replicas that run are judged by what had been learnt when their place was chosen. So no lesson ever
moves or restarts them, whoever taught it, and their prediction stays the one that was made.
"""

from typing import Protocol

from tonnage.catalog.catalog import Catalog
from tonnage.fit.corrections import (
    NOTHING_LEARNT,
    CorrectionKey,
    Corrections,
    LearntCorrections,
    MemoryCorrection,
    Origin,
    served_model,
)
from tonnage.fit.options import engine_options
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.children import ChildDeployment


class Lessons(Protocol):
    """Where what starts teach is kept."""

    def known(self) -> LearntCorrections:
        """All that is known by now."""
        ...

    async def learn(self, lesson: MemoryCorrection) -> None:
        """Remember the lesson, unless what is known is to stay. Never raises."""
        ...


class KeptInMind:
    """Lessons that last as long as the process."""

    def __init__(self, known: LearntCorrections = NOTHING_LEARNT) -> None:
        self._known = known

    def known(self) -> LearntCorrections:
        """Implement Lessons."""
        return self._known

    async def learn(self, lesson: MemoryCorrection) -> None:
        """Implement Lessons."""
        self._known = self._known.learn(lesson)


def known_when_placed(
    current: ChildDeployment, accepted: Accepted, known: Corrections, catalog: Catalog
) -> Corrections:
    """What is `known` by now, but of the replicas' own plan what was known when it was chosen."""
    if not known.entries and not current.correction_bytes:
        return known
    options = engine_options(accepted.spec, catalog)
    release = catalog.release(options.vllm_version)
    served = served_model(accepted.checkpoint.shape, options, release)
    split = current.parallelism
    key = CorrectionKey(served, current.accelerator, split.tensor, split.pipeline)
    others, still = known.without(key), known.find(key)
    if not current.correction_bytes:
        return others
    if still is not None and still.extra_bytes == current.correction_bytes:
        return known
    then = MemoryCorrection(key, current.correction_bytes, Origin.FAILURE)  # the careful one
    return Corrections((*others.entries, then))
