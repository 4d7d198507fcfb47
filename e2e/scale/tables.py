"""What was measured, as tables with the ratio to each of the others."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rich.table import Table

_PEER: Final = "LWS"
_OURS: Final = "Tonnage"


@dataclass(slots=True)
class Outcome:
    """Of one controller: seconds to the child, and to the first status of those that got one; the
    burst; and what its process used."""

    latencies: list[float] = field(default_factory=list)
    reported_after: list[float] = field(default_factory=list)
    steady_cpu_seconds: float = 0.0
    posted_seconds: float = 0.0
    burst_seconds: float = 0.0
    burst_cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0

    def quantile(self, share: float) -> float:
        """The latency that so large a share does not exceed, in seconds."""
        return statistics.quantiles(self.latencies, n=1000, method="inclusive")[
            round(share * 1000) - 1
        ]


def latency_table(outcomes: Mapping[str, Outcome], present: int, rate: float) -> Table:
    """Parent created to child created, at a steady rate."""
    table = Table(
        "controller",
        *("n", "p50 ms", "p90 ms", "p99 ms", "max ms", "CPU ms/object", "peak RSS MiB"),
        title=f"parent created to child created, {rate:g}/s with {present:,} present",
    )
    for name, found in outcomes.items():
        count = len(found.latencies)
        shown = [found.quantile(share) for share in (0.5, 0.9, 0.99)] + [max(found.latencies)]
        table.add_row(
            name,
            str(count),
            *(f"{seconds * 1e3:.1f}" for seconds in shown),
            f"{found.steady_cpu_seconds / count * 1e3:.1f}",
            f"{found.peak_rss_bytes / 2**20:.0f}",
        )
    if {_OURS, _PEER} <= outcomes.keys():
        ours, peer = outcomes[_OURS], outcomes[_PEER]
        ratios = [ours.quantile(share) / peer.quantile(share) for share in (0.5, 0.9, 0.99)]
        ratios.append(max(ours.latencies) / max(peer.latencies))
        table.add_row(f"{_OURS} / {_PEER}", "", *(f"{ratio:.2f}" for ratio in ratios), "", "")
    return table


def report_table(outcomes: Mapping[str, Outcome], rate: float) -> Table:
    """Parent created to its first status, at the same rate: what may come later than the child."""
    table = Table(
        "controller",
        *("n", "median s", "longest s"),
        title=f"parent created to its first status, {rate:g}/s",
    )
    for name, found in outcomes.items():
        seconds = found.reported_after
        if seconds:
            shown = (statistics.median(seconds), max(seconds))
            table.add_row(name, str(len(seconds)), *(f"{each:.2f}" for each in shown))
    return table


def burst_table(outcomes: Mapping[str, Outcome], present: int) -> Table:
    """So many objects at once."""
    table = Table(
        "controller",
        *("all posted s", "all children s", "CPU s until settled"),
        title=f"a burst of {present:,} objects",
    )
    for name, found in outcomes.items():
        seconds = (found.posted_seconds, found.burst_seconds, found.burst_cpu_seconds)
        table.add_row(name, *(f"{each:.1f}" for each in seconds))
    if {_OURS, _PEER} <= outcomes.keys():
        ratio = outcomes[_OURS].burst_seconds / outcomes[_PEER].burst_seconds
        table.add_row(f"{_OURS} / {_PEER}", "", f"{ratio:.2f}", "")
    return table
