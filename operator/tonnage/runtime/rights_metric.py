"""Which rights the operator lacks, as a metric."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class RightsCollector(Collector):
    """Reads what is missing whenever metrics are read; a right granted again is told as 0."""

    def __init__(self, missing: Callable[[], Mapping[tuple[str, str], bool]]) -> None:
        self._missing = missing

    def collect(self) -> Iterator[Metric]:
        """Implement Collector."""
        told = GaugeMetricFamily(
            "tonnage_permission_missing",
            "1 from the denial of a verb on a resource until it is allowed again.",
            labels=["verb", "resource"],
        )
        for (verb, resource), is_missing in self._missing().items():
            told.add_metric([verb, resource], is_missing)
        yield told
