"""How cost grows with a fleet: `python -m benchmarks.pages.fleet_plot FIGURES PICTURE`.

The title of each line has the exponent of the power law that fits it best: 1 is linear, less is
better.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.pages.figures import read_report
from benchmarks.pages.fleet_figures import FleetSample
from e2e.harness.failure import HarnessError, run_cli

_SHOWN: Final = (
    ("start_seconds", "start, s"),
    ("start_cpu_seconds", "its CPU, s"),
    ("start_peak_rss_mib", "its peak RSS, MiB"),
    ("idle_median_cpu_percent", "CPU while idle, % of a core, median of 10 s"),
)


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """The power of the size that the cost grows with, by least squares of the logarithms."""
    fitted = statistics.linear_regression(list(map(math.log, sizes)), list(map(math.log, costs)))
    return fitted.slope


def draw(samples: Sequence[FleetSample], picture: Path) -> None:
    """Write the plot. Raises HarnessError."""
    if len(samples) < 2:
        raise HarnessError("figures of one size show no growth; measure with several --shares")
    nodes = [one.nodes for one in samples]
    mpl.rcParams["svg.hashsalt"] = "tonnage"  # the same picture of the same figures
    figure = Figure(figsize=(9, 6), layout="constrained")
    for number, (name, title) in enumerate(_SHOWN, 1):
        costs = [float(getattr(one, name)) for one in samples]
        axes = figure.add_subplot(2, 2, number)
        axes.plot(nodes, costs, marker="o")
        axes.set(xlim=(0, None), ylim=(0, None), xlabel="nodes")
        grows = f"{exponent(nodes, costs):.2f}" if min(costs) > 0 else "unknown"
        axes.set_title(f"{title}; exponent {grows}")
    figure.savefig(picture, format="svg", metadata={"Date": None})


def main() -> int:
    """Draw it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pages.fleet_plot", description="The plot of a fleet's figures."
    )
    parser.add_argument(
        "figures", type=Path, help="as `benchmarks.cluster.fleet --figures` wrote them"
    )
    parser.add_argument("picture", type=Path, help="an SVG file")
    arguments = parser.parse_args()
    samples = [FleetSample(**sample) for sample in read_report(arguments.figures).samples]
    draw(samples, arguments.picture)
    return 0


if __name__ == "__main__":
    sys.exit(run_cli(main))
