"""`python -m benchmarks.in_memory.throughput`: the estimate against what was measured.

Prints which records were used and why others were not, the errors by engine and scenario, the worst
records, how often the cheaper of two options is ranked right, the bands that the residuals give,
and the time of an estimate. Exits with 1 when a figure misses its bar; the time has none here.
"""

import statistics
import sys
import time
import timeit
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.in_memory.throughput_estimates import Answer, answers, estimate_once
from benchmarks.in_memory.throughput_pairs import Pair, pairs, share_right
from benchmarks.in_memory.throughput_records import records
from tonnage.catalog.load import load_catalog
from tonnage.throughput.figures import load_throughput_data

ENGINE: Final = "vLLM"
MEDIAN_ERROR_BAR: Final = 0.25
RANKED_RIGHT_BAR: Final = 0.9
_WORST: Final = 10
_TIMED: Final = 2000


@dataclass(frozen=True, slots=True)
class Figures:
    """What the estimate is judged by."""

    median_error: float
    ranked_right: float

    @property
    def hold(self) -> bool:
        """Whether both bars are reached."""
        return self.median_error <= MEDIAN_ERROR_BAR and self.ranked_right >= RANKED_RIGHT_BAR


def main() -> int:
    """Print all figures; exit with 1 when one misses its bar."""
    console, estimates = Console(soft_wrap=True), answers()
    _tell_records(console, estimates)
    _tell_errors(console, "engine", estimates, lambda one: one.record.engine or "not stated")
    ours = [one for one in estimates if one.record.engine == ENGINE]
    _tell_errors(console, "scenario, vLLM", ours, lambda one: one.record.scenario)
    _tell_errors(console, "source, vLLM", ours, lambda one: one.record.group)
    _tell_worst(console, ours)
    _tell_pairs(console, estimates)
    _tell_bands(console, estimates)
    reached = measure(estimates)
    console.print(
        f"\nmedian error, vLLM: {reached.median_error:.1%} (at most {MEDIAN_ERROR_BAR:.0%})"
        f"\ncheaper of two: {reached.ranked_right:.1%} (at least {RANKED_RIGHT_BAR:.0%})"
        f"\none estimate, warm: {1e6 * _seconds(estimates):.0f} us of the processor"
    )
    return 0 if reached.hold else 1


def measure(estimates: Sequence[Answer]) -> Figures:
    """The two figures that have a bar."""
    errors = [abs(one.error) for one in estimates if one.record.engine == ENGINE]
    return Figures(statistics.median(errors), share_right(pairs(estimates)))


def _tell_records(console: Console, estimates: Sequence[Answer]) -> None:
    console.print(f"{len(estimates)} of {len(records())} records used; left out:")
    for reason, count in Counter(record.left_out for record in records()).items():
        if reason is not None:
            named = ", ".join(record.id for record in records() if record.left_out == reason)
            console.print(f"  {count}: {reason} ({named})")


def _tell_errors(
    console: Console, what: str, estimates: Sequence[Answer], key: Callable[[Answer], str]
) -> None:
    groups: Mapping[str, list[Answer]] = defaultdict(list)
    for one in estimates:
        groups[key(one)].append(one)
    table = Table(what.upper(), "RECORDS", "MEDIAN", "P90", "BIAS", box=None)
    for name, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        errors = [abs(one.error) for one in group]
        bias = statistics.median(one.error for one in group)
        cells = (f"{_quantile(errors, share):.1%}" for share in (0.5, 0.9))
        table.add_row(name, str(len(group)), *cells, f"{bias:+.0%}")
    console.print()
    console.print(table)


def _tell_worst(console: Console, estimates: Sequence[Answer]) -> None:
    table = Table("WORST", "MODEL", "ON", "SCENARIO", "MEASURED", "ESTIMATED", box=None)
    for one in sorted(estimates, key=lambda one: -abs(one.error))[:_WORST]:
        record = one.record
        table.add_row(
            record.id,
            f"{record.model} {record.precision}",
            f"{record.gpus} x {record.accelerator}, vLLM {record.release}",
            f"{record.scenario}, {record.lengths[0]}/{record.lengths[1]}, {record.concurrency}",
            f"{record.measured:.1f}",
            f"{one.tokens_per_second_per_gpu:.1f}",
        )
    console.print()
    console.print(table)


def _tell_pairs(console: Console, estimates: Sequence[Answer]) -> None:
    priced, equal = pairs(estimates), pairs(estimates, priced=False)
    ours = [pair for pair in priced if _engines(pair) == {ENGINE}]
    clear = [pair for pair in priced if not 1 / 1.1 < pair.measured < 1.1]
    for what, some in {
        "cost of a token": priced,
        "cost of a token, both on vLLM": ours,
        "cost of a token, where it differs by a tenth": clear,
        "tokens a second of a GPU": equal,
    }.items():
        right = sum(pair.ranked_right for pair in some)
        console.print(f"\nranked by {what}: {right} of {len(some)} pairs, {right / len(some):.1%}")
    table = Table("WRONG", "", "MEASURED", "ESTIMATED", box=None)
    for pair in priced:
        if not pair.ranked_right:
            names = (
                f"{one.record.id} {one.record.model} on {one.record.accelerator}"
                for one in (pair.first, pair.second)
            )
            table.add_row(*names, f"{pair.measured:.2f}", f"{pair.estimated:.2f}")
    console.print(table)


def _tell_bands(console: Console, estimates: Sequence[Answer]) -> None:
    groups: Mapping[tuple[str, str], list[float]] = defaultdict(list)
    for one in estimates:
        kind = "experts" if one.record.checkpoint().shape.experts else "dense"
        arch = load_catalog().accelerator(one.record.accelerator).arch
        groups[arch, kind].append(abs(1 / (1 + one.error) - 1))
    table = Table("BAND", "", "RECORDS", "FOUR OF FIVE WITHIN", "PUBLISHED", box=None)
    for (arch, kind), apart in sorted(groups.items()):
        published = getattr(load_throughput_data().architectures[arch].band, kind)
        cells = (f"{_quantile(apart, 0.8):.0%}", f"{published:.0%}")
        table.add_row(arch, kind, str(len(apart)), *cells)
    console.print(table)


def _engines(pair: Pair) -> set[str | None]:
    return {pair.first.record.engine, pair.second.record.engine}


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    if share == 0.5:
        return statistics.median(ordered)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _seconds(estimates: Sequence[Answer]) -> float:
    """Seconds of the processor for one estimate when everything that is cached is."""
    first = estimates[0]
    timed = timeit.repeat(
        lambda: estimate_once(first), timer=time.process_time, number=_TIMED, repeat=5
    )
    return min(timed) / _TIMED


if __name__ == "__main__":
    sys.exit(main())
