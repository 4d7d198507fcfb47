"""Metrics computed at each scrape: pools, statuses, and when a job ran last.

Only the leader exports pools and statuses, because free GPUs depend on the reservations, which only
the leader knows. A standby exports no such series, which differs from zero.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tonnage.controller.metrics.statuses import StatusMetrics, Sum
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool

_POOL: Final = ("pool", "accelerator")
_POOL_FIGURES: Final[dict[str, tuple[str, Callable[[Fleet, Pool], int]]]] = {
    "tonnage_pool_nodes": (
        "Nodes, usable or not.",
        lambda _, pool: pool.nodes.counts.nodes,
    ),
    "tonnage_pool_gpus": ("GPUs on all nodes.", lambda _, pool: pool.total),
    "tonnage_pool_allocatable_gpus": (
        "GPUs on nodes that can take pods now.",
        lambda _, pool: pool.allocatable,
    ),
    "tonnage_pool_free_gpus": (
        "Allocatable GPUs that no pod holds and no replica reserves.",
        lambda _, pool: pool.free,
    ),
    "tonnage_pool_reserved_gpus": (
        "GPUs reserved for replicas that have no pod on a node yet.",
        lambda fleet, pool: fleet.assumed_gpus(pool.name),
    ),
    "tonnage_pool_largest_free_block_gpus": (
        "Most free GPUs on one node.",
        lambda _, pool: pool.largest_free_block,
    ),
}

_Samples = Iterable[tuple[Sequence[str], float]]
"""The label values and the amount of each series of a metric."""


def _sums(name: Sum) -> Callable[[StatusMetrics], _Samples]:
    return lambda statuses: statuses.sums(name)


def _unplaced_since(statuses: StatusMetrics) -> _Samples:
    return (
        ((obj.key.namespace, obj.key.name, obj.reason), obj.since)
        for obj in statuses.longest_unscheduled()
    )


_STATUS_FIGURES: Final[
    Mapping[str, tuple[str, Sequence[str], Callable[[StatusMetrics], _Samples]]]
] = {
    "tonnage_inferencedeployments": (
        "InferenceDeployments by the status of their conditions.",
        ("condition", "status"),
        _sums("inferencedeployments"),
    ),
    "tonnage_placed_objects": (
        "InferenceDeployments with replicas on an accelerator.",
        ("accelerator",),
        _sums("placed_objects"),
    ),
    "tonnage_placed_replicas": (
        "Replicas with reserved GPUs.",
        ("accelerator",),
        _sums("placed_replicas"),
    ),
    "tonnage_ready_replicas": (
        "Replicas that answer requests.",
        ("accelerator",),
        _sums("ready_replicas"),
    ),
    "tonnage_not_ready_objects": (
        "InferenceDeployments that are not Ready, by reason.",
        ("reason",),
        _sums("not_ready_objects"),
    ),
    "tonnage_rejected_candidates": (
        "Pools rejected for InferenceDeployments, by reason.",
        ("reason",),
        _sums("rejected_candidates"),
    ),
    "tonnage_unplaced_objects": (
        "InferenceDeployments whose condition Placed is False, by reason.",
        ("reason",),
        _sums("unplaced_objects"),
    ),
    "tonnage_kv_cache_tokens": (
        "KV cache tokens of a replica, summed over measured placements.",
        ("accelerator", "source"),
        _sums("kv_cache_tokens"),
    ),
    "tonnage_unplaced_since_timestamp_seconds": (
        "Since when an InferenceDeployment has no pool, Unix time; at most the oldest 100.",
        ("namespace", "name", "reason"),
        _unplaced_since,
    ),
    "tonnage_kv_cache_prediction_worst_ratio": (
        "Measured/predicted KV cache tokens of the placement that is farthest from 1.",
        ("accelerator",),
        lambda statuses: (
            ((accelerator,), worst)
            for accelerator, worst in sorted(statuses.worst_ratios().items())
        ),
    ),
    "tonnage_wanted_replicas": (
        "Replicas that the load of an InferenceDeployment needs; at most 1000 objects.",
        ("namespace", "name"),
        StatusMetrics.wanted_replicas,
    ),
    "tonnage_wanted_replicas_omitted": (
        "Autoscaled InferenceDeployments that tonnage_wanted_replicas leaves out.",
        (),
        lambda statuses: [((), statuses.omitted_wanted)],
    ),
}


class PoolCollector(Collector):
    """Exports the pools of the fleet while `is_reported`."""

    def __init__(self, view: Callable[[], Fleet], is_reported: Callable[[], bool]) -> None:
        self._view = view
        self._is_reported = is_reported

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All figures of every pool."""
        fleet = self._view()
        pools = fleet.pools() if self._is_reported() else ()
        for name, (documentation, figure) in _POOL_FIGURES.items():
            family = GaugeMetricFamily(name, documentation, labels=_POOL)
            for pool in pools:
                accelerator = pool.accelerator.id if pool.accelerator else ""
                family.add_metric((pool.name, accelerator), figure(fleet, pool))
            yield family


class StatusCollector(Collector):
    """Exports the sums over all statuses, once the leader has read them."""

    def __init__(self, status_metrics: StatusMetrics) -> None:
        self._status_metrics = status_metrics

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All sums, the objects without a pool, the worst prediction and the wanted replicas."""
        statuses = self._status_metrics
        for name, (documentation, labels, read) in _STATUS_FIGURES.items():
            family = GaugeMetricFamily(name, documentation, labels=labels)
            for values, amount in read(statuses) if statuses.kept else ():
                family.add_metric(values, amount)
            yield family


class LastRunTimestamp(Collector):
    """Exports when a job ran last, in Unix time; no series before the first run."""

    def __init__(
        self, name: str, documentation: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._clock = clock
        self._last_run: float | None = None

    def done(self) -> None:
        """Record a run now."""
        self._last_run = self._clock()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The series, once the job has run."""
        family = GaugeMetricFamily(self._name, self._documentation)
        if self._last_run is not None:
            family.add_metric((), self._last_run)
        yield family


class SyncMetrics:
    """When the operator last listed the fleet, and last resynced."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.fleet_listed = LastRunTimestamp(
            "tonnage_fleet_last_list_timestamp_seconds",
            "Last list of all nodes, pods and pools, Unix time.",
        )
        self.resynced = LastRunTimestamp(
            "tonnage_last_resync_timestamp_seconds",
            "Last resync of InferenceDeployments, Unix time.",
        )
        registry.register(self.fleet_listed)
        registry.register(self.resynced)
