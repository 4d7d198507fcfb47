"""`make accuracy`: print every figure next to its target and its floor, and the worst records."""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from accuracy import build_errors, startup_errors
from accuracy.asking import answered_builds, answered_startups
from accuracy.figures import FIGURES, measure_all
from accuracy.floors import PATH, raise_floors, read_floors
from accuracy.measures import Error, worst
from accuracy.page import render_page
from accuracy.timing import time_fits


def main() -> int:
    """Print, and write what was asked for; exit with 1 when a figure is below its floor."""
    parser = argparse.ArgumentParser(prog="python -m accuracy", description=__doc__)
    parser.add_argument("--worst", type=int, default=5, help="records to show for each figure")
    parser.add_argument("--raise-floors", action="store_true", help=f"write better {PATH.name}")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page there")
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    options = parser.parse_args()
    console = Console(soft_wrap=True, quiet=options.quiet)
    measured = measure_all()
    if options.raise_floors:
        raise_floors(measured)
    held = _print_figures(console, measured)
    _print_worst(console, options.worst)
    if options.page is not None:
        options.page.write_text(render_page(), encoding="utf-8")
    if not options.quiet:
        _print_timing(console)
    return 0 if held else 1


def _print_figures(console: Console, measured: dict[str, float | None]) -> bool:
    floors, held = read_floors(), True
    table = Table("FIGURE", "REACHED", "TARGET", "FLOOR", "", box=None)
    for figure in FIGURES:
        value, floor = measured[figure.name], floors[figure.name]
        keeps = figure.holds(value, floor)
        held = held and keeps
        met = "met" if figure.holds(value, figure.target) else "short"
        sign = "<=" if figure.at_most else ">="
        cells = (_show(figure.name, value), f"{sign} {_show(figure.name, figure.target)}")
        state = met if keeps else f"{met}, below its floor"
        table.add_row(figure.what, *cells, _show(figure.name, floor), state)
    console.print(table)
    return held


def _show(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if name.startswith("false_fits") else f"{100 * value:.2f} %"


def _print_worst(console: Console, count: int) -> None:
    startups, builds = answered_startups(), answered_builds()
    shown: dict[str, list[Error]] = {
        "start-ups, weights": startup_errors.weights_errors(startups),
        "start-ups, KV bytes per token": startup_errors.kv_rate_errors(startups),
        "start-ups, memory left for KV": startup_errors.kv_left_errors(startups),
        "builds, acceptance": build_errors.acceptance_errors(builds),
        "builds, weights 16-bit": build_errors.weights_errors(builds, False),
        "builds, weights quantised": build_errors.weights_errors(builds, True),
        "builds, KV bytes per token": build_errors.kv_rate_errors(builds),
        "builds, tokens of hybrids": build_errors.kv_tokens_errors(builds, True),
    }
    verdicts = startup_errors.verdicts(startups)
    console.print(f"\nfalse fits: {', '.join(verdicts.false_fits) or 'none'}")
    console.print(f"false no-fits: {', '.join(verdicts.false_no_fits) or 'none'}")
    for what, errors in shown.items():
        console.print(f"\n{what}, worst of {len(errors)}:")
        for error in worst(errors, count):
            console.print(f"  {100 * error.size:8.2f} %  {error.id}")


def _print_timing(console: Console) -> None:
    timing = time_fits()
    console.print(
        f"\none fit: {1e3 * timing.warm_seconds:.3f} ms of the processor warm, "
        f"{1e3 * timing.cold_seconds:.2f} ms with the config parsed and nothing cached; "
        f"{timing.combinations} combinations of device and degree: "
        f"{timing.combinations_seconds:.2f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
