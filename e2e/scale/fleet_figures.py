"""What was found with a fleet of some size, beside the bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table


@dataclass(slots=True)
class Figures:
    """Of one size. Seconds are of the clock, CPU is the operator's alone: of the whole time of rest
    and of the median of its slices, which is what it takes while nothing is listed."""

    nodes: int
    pods: int
    objects: int
    cold_start_seconds: float = 0.0
    cold_start_cpu_seconds: float = 0.0
    cold_start_reconciles: int = 0
    cold_start_writes: int = 0
    peak_rss_mib: float = 0.0
    rest_seconds: float = 0.0
    rest_heartbeats: int = 0
    rest_resyncs: int = 0
    rest_fleet_lists: int = 0
    rest_cpu_percent: float = 0.0
    rest_between_lists_percent: float = 0.0
    rest_writes: int = 0
    rest_reconciles: int = 0
    rest_peak_rss_mib: float = 0.0
    lost_concerned: int = 0
    lost_seconds: float = 0.0
    lost_not_seen: int = 0
    lost_others: int = 0
    load_average: float = 0.0


_ROWS: Final[Sequence[tuple[str, str, Callable[[Figures], str]]]] = (
    ("cold start to all settled, s", "60", lambda one: f"{one.cold_start_seconds:.1f}"),
    ("its CPU, s", "", lambda one: f"{one.cold_start_cpu_seconds:.1f}"),
    ("its reconciles", "", lambda one: f"{one.cold_start_reconciles:,}"),
    ("its writes", "", lambda one: f"{one.cold_start_writes:,}"),
    ("its peak RSS, MiB", "500", lambda one: f"{one.peak_rss_mib:.0f}"),
    ("at rest, s", "600", lambda one: f"{one.rest_seconds:.0f}"),
    ("writes but the lease's", "0", lambda one: f"{one.rest_writes:,}"),
    ("CPU, % of a core", "2", lambda one: f"{one.rest_cpu_percent:.2f}"),
    ("of that between lists and resyncs", "", lambda one: f"{one.rest_between_lists_percent:.2f}"),
    ("heartbeats", "", lambda one: f"{one.rest_heartbeats:,}"),
    ("resyncs", "", lambda one: f"{one.rest_resyncs}"),
    ("lists of the fleet", "", lambda one: f"{one.rest_fleet_lists}"),
    ("reconciles", "", lambda one: f"{one.rest_reconciles:,}"),
    ("peak RSS by then, MiB", "", lambda one: f"{one.rest_peak_rss_mib:.0f}"),
    ("a node lost: objects concerned", "", lambda one: f"{one.lost_concerned}"),
    ("the last of them planned anew, s", "2", lambda one: f"{one.lost_seconds:.2f}"),
    ("of them not planned anew", "0", lambda one: f"{one.lost_not_seen}"),
    ("others reconciled", "0", lambda one: f"{one.lost_others:,}"),
    ("load average at the end", "", lambda one: f"{one.load_average:.1f}"),
)


def figures_table(found: Sequence[Figures]) -> Table:
    """All sizes beside each other; bars are for the largest."""
    heads = (f"{one.nodes:,} nodes {one.pods:,} pods {one.objects:,} objects" for one in found)
    table = Table("", "at most", *heads, title="a large fleet")
    for name, bar, show in _ROWS:
        table.add_row(name, bar, *map(show, found))
    return table
