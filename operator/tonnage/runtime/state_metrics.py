"""Metrics worked out when somebody reads them: pools, statuses, and when what was done last.

Only a leader tells pools and statuses: what is free depends on what was promised, which it alone
knows. A standby tells nothing of them, which is not the same as zero.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
from tonnage.runtime.status_book import StatusBook, Sum

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
        "GPUs that no pod holds and no replica was promised, on nodes that can take pods now.",
        lambda _, pool: pool.free,
    ),
    "tonnage_pool_reserved_gpus": (
        "GPUs promised to replicas that have no pod on a node yet and take the place of none.",
        lambda fleet, pool: fleet.promised_gpus(pool.name),
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
    "placed_replicas": ("Replicas that were given GPUs.", ("accelerator",)),
    "ready_replicas": ("Replicas that answer requests.", ("accelerator",)),
    "not_ready_objects": (
        "InferenceDeployments whose condition Ready is not True, by its reason.",
        ("reason",),
    ),
    "rejected_candidates": (
        "Pools that cannot carry an InferenceDeployment, added up over all, by the reason.",
        ("reason",),
    ),
    "unplaced_objects": (
        "InferenceDeployments whose condition Placed is False, by its reason.",
        ("reason",),
    ),
    "kv_cache_tokens": (
        "Tokens of context that a replica holds, added up over the placements that were measured.",
        ("accelerator", "source"),
    ),
}


class PoolCollector(Collector):
    """The pools of the fleet, while `is_told`."""

    def __init__(self, view: Callable[[], Fleet], is_told: Callable[[], bool]) -> None:
        self._view = view
        self._is_told = is_told

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The families without series, which a registry wants to know at once."""
        return [_gauge(name, told, _POOL) for name, (told, _) in _POOL_FIGURES.items()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Every pool with each of its figures."""
        fleet = self._view()
        pools = fleet.pools() if self._is_told() else ()
        for name, (told, figure) in _POOL_FIGURES.items():
            family = _gauge(name, told, _POOL)
            for pool in pools:
                accelerator = pool.accelerator.id if pool.accelerator else ""
                family.add_metric((pool.name, accelerator), figure(fleet, pool))
            yield family


class StatusCollector(Collector):
    """What the statuses of all objects come to, once the book is kept."""

    def __init__(self, book: StatusBook) -> None:
        self._book = book

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The families without series."""
        return [
            *(_sum(name) for name in _SUMS),
            _unplaced_since(),
            _worst_ratio(),
            _wanted(),
            _untold_wanted(),
        ]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All sums, the objects that wait for a pool, the worst prediction, and the replicas that
        loads ask for."""
        if not self._book.kept:
            yield from self.describe()
            return
        for name in _SUMS:
            family = _sum(name)
            for labels, amount in self._book.sums(name):
                family.add_metric(labels, amount)
            yield family
        waiting = _unplaced_since()
        for found in self._book.longest_unplaced():
            waiting.add_metric((found.key.namespace, found.key.name, found.reason), found.since)
        yield waiting
        ratio = _worst_ratio()
        for accelerator, worst in sorted(self._book.worst_ratios().items()):
            ratio.add_metric((accelerator,), worst)
        yield ratio
        wanted = _wanted()
        for key, replicas in self._book.wanted_replicas():
            wanted.add_metric((key.namespace, key.name), replicas)
        yield wanted
        untold = _untold_wanted()
        untold.add_metric((), self._book.untold_wanted)
        yield untold


class LastDone(Collector):
    """When something was done last, in Unix time; nothing before it was done once."""

    def __init__(self, name: str, told: str, clock: Callable[[], float] = time.time) -> None:
        self._name = name
        self._told = told
        self._clock = clock
        self._at: float | None = None

    def done(self) -> None:
        """It is done now."""
        self._at = self._clock()

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The family without its series."""
        return [_gauge(self._name, self._told, ())]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The one series, once there is one."""
        family = _gauge(self._name, self._told, ())
        if self._at is not None:
            family.add_metric((), self._at)
        yield family


class SyncMetrics:
    """When lists last brought what the watch may have missed."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.fleet_listed = LastDone(
            "tonnage_fleet_last_list_timestamp_seconds",
            "When nodes, pods and pools were last listed as a whole, Unix time.",
        )
        self.resynced = LastDone(
            "tonnage_last_resync_timestamp_seconds",
            "When the leader last put every InferenceDeployment into the queue, Unix time.",
        )
        registry.register(self.fleet_listed)
        registry.register(self.resynced)


def _sum(name: Sum) -> GaugeMetricFamily:
    told, labels = _SUMS[name]
    return _gauge(f"tonnage_{name}", told, labels)


def _unplaced_since() -> GaugeMetricFamily:
    return _gauge(
        "tonnage_unplaced_since_timestamp_seconds",
        "Since when an InferenceDeployment has had no pool, Unix time; at most the oldest 100.",
        ("namespace", "name", "reason"),
    )


def _worst_ratio() -> GaugeMetricFamily:
    return _gauge(
        "tonnage_kv_cache_prediction_worst_ratio",
        "Measured by predicted KV cache tokens of the placement where that is farthest from 1.",
        ("accelerator",),
    )


def _wanted() -> GaugeMetricFamily:
    return _gauge(
        "tonnage_wanted_replicas",
        "Replicas that the measured load of an InferenceDeployment asks for (spec.scaling.targets);"
        " at most 1000 objects, the first by namespace and name.",
        ("namespace", "name"),
    )


def _untold_wanted() -> GaugeMetricFamily:
    return _gauge(
        "tonnage_wanted_replicas_omitted",
        "InferenceDeployments that follow their load and are beyond those that are told by name.",
        (),
    )


def _gauge(name: str, told: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, told, labels=labels)
