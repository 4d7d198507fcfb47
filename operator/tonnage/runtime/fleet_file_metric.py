"""Whether the fleet file can be used, as a metric; there is none where no file is read."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge


def tell_fleet_file(registry: CollectorRegistry, is_valid: Callable[[], bool]) -> None:
    """Ask whenever metrics are read."""
    Gauge(
        "tonnage_fleet_file_valid",
        "1 while the fleet file can be used, 0 while the last good one counts in its place.",
        registry=registry,
    ).set_function(is_valid)
