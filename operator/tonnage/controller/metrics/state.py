"""Metrics computed at each scrape: pools, statuses, and when a job ran last.

Only the leader exports pools and statuses, because free GPUs depend on the reservations, which only
the leader knows. A standby exports no such series, which differs from zero.
"""

import time
from collections.abc import Callable, Iterable, Iterator
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
        "Nodes of the pool, usable or not.",
        lambda _, pool: pool.nodes.counts.nodes,
    ),
    "tonnage_pool_gpus": ("GPUs on all nodes of the pool.", lambda _, pool: pool.total),
    "tonnage_pool_allocatable_gpus": (
        "GPUs on the nodes of the pool that can take pods now.",
        lambda _, pool: pool.allocatable,
    ),
    "tonnage_pool_free_gpus": (
        "GPUs that no pod holds and no replica reserves, on nodes that can take pods now.",
        lambda _, pool: pool.free,
    ),
    "tonnage_pool_reserved_gpus": (
        "GPUs reserved for replicas that have no pod on a node yet and replace no other pod.",
        lambda fleet, pool: fleet.assumed_gpus(pool.name),
    ),
    "tonnage_pool_largest_free_block_gpus": (
        "Most free GPUs on one node: the largest replica that can start now.",
        lambda _, pool: pool.largest_free_block,
    ),
}

_SUMS: Final[dict[Sum, tuple[str, tuple[str, ...]]]] = {
    "inferencedeployments": (
        "InferenceDeployments by the status of their conditions.",
        ("condition", "status"),
    ),
    "placed_objects": ("InferenceDeployments with replicas on an accelerator.", ("accelerator",)),
    "placed_replicas": ("Replicas with reserved GPUs.", ("accelerator",)),
    "ready_replicas": ("Replicas that answer requests.", ("accelerator",)),
    "not_ready_objects": (
        "InferenceDeployments whose condition Ready is not True, by reason.",
        ("reason",),
    ),
    "rejected_candidates": (
        "Pools rejected for an InferenceDeployment, summed over all objects, by reason.",
        ("reason",),
    ),
    "unplaced_objects": (
        "InferenceDeployments whose condition Placed is False, by reason.",
        ("reason",),
    ),
    "kv_cache_tokens": (
        "Tokens of the KV cache of one replica, summed over the measured placements.",
        ("accelerator", "source"),
    ),
}


class PoolCollector(Collector):
    """Exports the pools of the fleet while `is_reported`."""

    def __init__(self, view: Callable[[], Fleet], is_reported: Callable[[], bool]) -> None:
        self._view = view
        self._is_reported = is_reported

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The families without series, which a registry reads at registration."""
        return [
            _family(name, documentation, _POOL)
            for name, (documentation, _) in _POOL_FIGURES.items()
        ]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All figures of every pool."""
        fleet = self._view()
        pools = fleet.pools() if self._is_reported() else ()
        for name, (documentation, figure) in _POOL_FIGURES.items():
            family = _family(name, documentation, _POOL)
            for pool in pools:
                accelerator = pool.accelerator.id if pool.accelerator else ""
                family.add_metric((pool.name, accelerator), figure(fleet, pool))
            yield family


class StatusCollector(Collector):
    """Exports the sums over all statuses, once the leader has read them."""

    def __init__(self, status_metrics: StatusMetrics) -> None:
        self._status_metrics = status_metrics

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The families without series."""
        return [
            *(_sum_family(name) for name in _SUMS),
            _unplaced_since_family(),
            _worst_ratio_family(),
            _wanted_family(),
            _omitted_wanted_family(),
        ]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All sums, the objects without a pool, the worst prediction and the wanted replicas."""
        if not self._status_metrics.kept:
            yield from self.describe()
            return
        for name in _SUMS:
            family = _sum_family(name)
            for labels, amount in self._status_metrics.sums(name):
                family.add_metric(labels, amount)
            yield family
        unscheduled = _unplaced_since_family()
        for obj in self._status_metrics.longest_unscheduled():
            unscheduled.add_metric((obj.key.namespace, obj.key.name, obj.reason), obj.since)
        yield unscheduled
        ratio = _worst_ratio_family()
        for accelerator, worst in sorted(self._status_metrics.worst_ratios().items()):
            ratio.add_metric((accelerator,), worst)
        yield ratio
        wanted = _wanted_family()
        for key, replicas in self._status_metrics.wanted_replicas():
            wanted.add_metric((key.namespace, key.name), replicas)
        yield wanted
        omitted = _omitted_wanted_family()
        omitted.add_metric((), self._status_metrics.omitted_wanted)
        yield omitted


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

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The family without its series."""
        return [_family(self._name, self._documentation, ())]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The series, once the job has run."""
        family = _family(self._name, self._documentation, ())
        if self._last_run is not None:
            family.add_metric((), self._last_run)
        yield family


class SyncMetrics:
    """When the operator last listed the fleet, and last requeued all objects."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.fleet_listed = LastRunTimestamp(
            "tonnage_fleet_last_list_timestamp_seconds",
            "When the operator last listed all nodes, pods and pools, Unix time.",
        )
        self.resynced = LastRunTimestamp(
            "tonnage_last_resync_timestamp_seconds",
            "When the leader last requeued every InferenceDeployment, Unix time.",
        )
        registry.register(self.fleet_listed)
        registry.register(self.resynced)


def _sum_family(name: Sum) -> GaugeMetricFamily:
    documentation, labels = _SUMS[name]
    return _family(f"tonnage_{name}", documentation, labels)


def _unplaced_since_family() -> GaugeMetricFamily:
    return _family(
        "tonnage_unplaced_since_timestamp_seconds",
        "Since when an InferenceDeployment has no pool, Unix time; at most the oldest 100.",
        ("namespace", "name", "reason"),
    )


def _worst_ratio_family() -> GaugeMetricFamily:
    return _family(
        "tonnage_kv_cache_prediction_worst_ratio",
        "Measured/predicted KV cache tokens, of the placement whose ratio is farthest from 1.",
        ("accelerator",),
    )


def _wanted_family() -> GaugeMetricFamily:
    return _family(
        "tonnage_wanted_replicas",
        "Replicas that the measured load of an InferenceDeployment needs (spec.scaling.targets);"
        " at most 1000 objects, the first by namespace and name.",
        ("namespace", "name"),
    )


def _omitted_wanted_family() -> GaugeMetricFamily:
    return _family(
        "tonnage_wanted_replicas_omitted",
        "Autoscaled InferenceDeployments that tonnage_wanted_replicas leaves out.",
        (),
    )


def _family(name: str, documentation: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, labels=labels)
