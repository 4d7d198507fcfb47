"""What was measured with fleets of several sizes: figures with bars, and a table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.pages.figures import SUBJECT, Bar, Figure, ResultTable


@dataclass(slots=True)
class FleetSample:
    """One size. Seconds are of the clock; CPU is the operator's alone, while idle in percent of one
    core, of the whole time and as the median of slices of ten seconds. `lost_*` is about the
    objects with a pod on the lost node, and about all others."""

    nodes: int
    pods: int
    objects: int
    start_seconds: float = 0.0
    start_cpu_seconds: float = 0.0
    start_reconciles: int = 0
    start_writes: int = 0
    start_peak_rss_mib: float = 0.0
    idle_seconds: float = 0.0
    idle_heartbeats: int = 0
    idle_resynced: bool = False
    idle_fleet_lists: int = 0
    idle_cpu_percent: float = 0.0
    idle_median_cpu_percent: float = 0.0
    idle_writes: int = 0
    idle_reconciles: int = 0
    peak_rss_mib: float = 0.0
    lost_objects: int = 0
    lost_seconds: float = 0.0
    lost_not_reconciled: int = 0
    lost_others_reconciled: int = 0
    load_average: float = 0.0


_ROWS: Final[Sequence[tuple[str, Callable[[FleetSample], str]]]] = (
    ("start until all objects are reconciled, s", lambda one: f"{one.start_seconds:.1f}"),
    ("its CPU, s", lambda one: f"{one.start_cpu_seconds:.1f}"),
    ("its reconciles", lambda one: f"{one.start_reconciles:,}"),
    ("its writes", lambda one: f"{one.start_writes:,}"),
    ("its peak RSS, MiB", lambda one: f"{one.start_peak_rss_mib:.0f}"),
    ("idle for, s", lambda one: f"{one.idle_seconds:.0f}"),
    ("heartbeats of nodes", lambda one: f"{one.idle_heartbeats:,}"),
    ("a resync", lambda one: "yes" if one.idle_resynced else "no"),
    ("lists of all nodes", lambda one: f"{one.idle_fleet_lists}"),
    ("writes without those of the Lease", lambda one: f"{one.idle_writes:,}"),
    ("CPU, % of a core", lambda one: f"{one.idle_cpu_percent:.2f}"),
    ("median of its slices of 10 s, %", lambda one: f"{one.idle_median_cpu_percent:.2f}"),
    ("reconciles", lambda one: f"{one.idle_reconciles:,}"),
    ("peak RSS by then, MiB", lambda one: f"{one.peak_rss_mib:.0f}"),
    ("a node lost: objects with pods on it", lambda one: f"{one.lost_objects}"),
    ("the last of them reconciled after, s", lambda one: f"{one.lost_seconds:.2f}"),
    ("of them not reconciled", lambda one: f"{one.lost_not_reconciled}"),
    ("other objects reconciled", lambda one: f"{one.lost_others_reconciled:,}"),
    ("load average at the end", lambda one: f"{one.load_average:.1f}"),
)


def fleet_figures(largest: FleetSample) -> list[Figure]:
    """Figures and bars of the largest size."""
    size = f"{largest.nodes:,} nodes, {largest.pods:,} pods, {largest.objects:,} objects"

    def figure(name: str, unit: str, value: float, limit: float) -> Figure:
        return Figure(f"{size}: {name}", unit, {SUBJECT: value}, Bar(limit))

    idle = f"idle for {largest.idle_seconds:.0f} s"
    return [
        figure("start until all objects are reconciled", "s", largest.start_seconds, 45),
        figure("peak memory", "MiB", largest.peak_rss_mib, 450),
        figure(f"CPU, {idle}", "%", largest.idle_cpu_percent, 1),
        figure(f"writes, {idle}", "", largest.idle_writes, 0),
        figure("a node lost: its objects reconciled after", "s", largest.lost_seconds, 1),
        figure("a node lost: its objects not reconciled", "", largest.lost_not_reconciled, 0),
        figure("a node lost: other objects reconciled", "", largest.lost_others_reconciled, 0),
    ]


def fleet_table(samples: Sequence[FleetSample]) -> ResultTable:
    """All sizes next to each other."""
    sizes = [f"{one.nodes:,} nodes {one.pods:,} pods {one.objects:,} objects" for one in samples]
    rows = [(name, *map(show, samples)) for name, show in _ROWS]
    return ResultTable("all that was measured", ("", *sizes), rows)
