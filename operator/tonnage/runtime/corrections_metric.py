"""What was learnt, as a metric."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tonnage.fit.corrections import LearntCorrections


class Learnt(Protocol):
    """Where lessons are kept."""

    @property
    def has_read(self) -> bool:
        """Whether the ConfigMap was looked at."""
        ...

    @property
    def invalid(self) -> int:
        """Entries of it that cannot be used."""
        ...

    def known(self) -> LearntCorrections:
        """All that is known."""
        ...


class CorrectionsCollector(Collector):
    """Nothing is told before the ConfigMap was looked at: only a leader does."""

    def __init__(self) -> None:
        self._learnt: Learnt | None = None

    def watch(self, learnt: Learnt) -> None:
        """Read from there whenever metrics are read."""
        self._learnt = learnt

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The families without their series."""
        return [_known(), _invalid()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Both series, once the ConfigMap was looked at."""
        known, invalid = _known(), _invalid()
        if self._learnt is not None and self._learnt.has_read:
            known.add_metric((), len(self._learnt.known().entries))
            invalid.add_metric((), self._learnt.invalid)
        yield known
        yield invalid


def _known() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "tonnage_corrections", "Corrections of the memory calculation that are in force."
    )


def _invalid() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "tonnage_corrections_invalid",
        "Entries of ConfigMap tonnage-corrections that cannot be used.",
    )
