"""Memory corrections without a ConfigMap."""

from tonnage.fit.calibration.corrections import NO_CORRECTIONS, KnownCorrections, MemoryCorrection


class InMemoryCorrections:
    """Memory corrections that last as long as the process."""

    def __init__(self, known: KnownCorrections = NO_CORRECTIONS) -> None:
        self._known = known

    def known(self) -> KnownCorrections:
        return self._known

    async def add(self, correction: MemoryCorrection) -> None:
        self._known = self._known.with_correction(correction)
