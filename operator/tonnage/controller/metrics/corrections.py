"""Metrics of the memory corrections."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tonnage.fit.calibration.corrections import KnownCorrections


class CorrectionSource(Protocol):
    """The store of the corrections."""

    @property
    def has_read(self) -> bool:
        """Whether the ConfigMap was read."""
        ...

    @property
    def invalid(self) -> int:
        """How many entries of the ConfigMap are invalid."""
        ...

    def known(self) -> KnownCorrections:
        """All corrections."""
        ...


class CorrectionsCollector(Collector):
    """Exports no series before the ConfigMap was read, which only the leader does."""

    def __init__(self) -> None:
        self._source: CorrectionSource | None = None

    def watch(self, source: CorrectionSource) -> None:
        """Read from this source at each scrape."""
        self._source = source

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The families without their series."""
        return [_corrections_family(), _invalid_family()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Both series, once the ConfigMap was read."""
        known, invalid = _corrections_family(), _invalid_family()
        if self._source is not None and self._source.has_read:
            known.add_metric((), len(self._source.known().entries))
            invalid.add_metric((), self._source.invalid)
        yield known
        yield invalid


def _corrections_family() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "tonnage_corrections", "Corrections of the memory calculation that are in force."
    )


def _invalid_family() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "tonnage_corrections_invalid",
        "Entries of ConfigMap tonnage-corrections that cannot be used.",
    )
