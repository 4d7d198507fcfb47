"""Figures with their bars, and the report of a benchmark as JSON. Pure but for reading files."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from e2e.harness.failure import HarnessError

SUBJECT: Final = "Tonnage"
"""Whose values the bars are for."""

_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Bar:
    """The most that a value may be: `limit` in the figure's unit, or so many times the value of the
    controller `of`."""

    limit: float
    of: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity, by controller; None where it was not measured."""

    name: str
    unit: str
    values: Mapping[str, float | None]
    bar: Bar | None = None

    @property
    def limit(self) -> float | None:
        """The bar in the figure's unit; None without a bar, or while its base is not measured."""
        if self.bar is None or not self.bar.of:
            return self.bar.limit if self.bar else None
        base = self.values.get(self.bar.of)
        return None if base is None else self.bar.limit * base

    @property
    def verdict(self) -> str:
        """`met`, `missed`, `not measured`, or nothing where there is no bar."""
        if self.bar is None:
            return ""
        value, limit = self.values.get(SUBJECT), self.limit
        if value is None or limit is None:
            return "not measured"
        return "met" if value <= limit else "missed"

    def show(self, controller: str) -> str:
        """A controller's value with its unit."""
        return show_value(self.values.get(controller), self.unit)

    @property
    def shown_bar(self) -> str:
        """The bar in words."""
        if self.bar is None:
            return ""
        if not self.bar.of:
            return f"at most {show_value(self.bar.limit, self.unit)}"
        return f"at most {self.bar.limit:g} x {self.bar.of} = {show_value(self.limit, self.unit)}"


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A table of text: what a terminal and a page show alike."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Report:
    """All that one benchmark measured. `run` says when and where, with which load; `samples` are
    the raw results that a plot needs."""

    benchmark: str
    run: Mapping[str, Any]
    controllers: Sequence[str]
    figures: Sequence[Figure]
    tables: Sequence[ResultTable] = ()
    samples: Sequence[Mapping[str, Any]] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write it as JSON. Raises HarnessError."""
        try:
            path.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")
        except OSError as error:
            raise HarnessError(f"{path}: {error.strerror}") from None


def read_report(path: Path) -> Report:
    """Read what `Report.write` wrote. Raises HarnessError."""
    try:
        content = json.loads(path.read_text("utf-8"))
        figures = [
            Figure(**{**figure, "bar": Bar(**figure["bar"]) if figure["bar"] else None})
            for figure in content["figures"]
        ]
        tables = [ResultTable(**table) for table in content["tables"]]
        return Report(**{**content, "figures": figures, "tables": tables})
    except OSError as error:
        raise HarnessError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise HarnessError(
            f"{path} is no report of a benchmark ({type(error).__name__}: {error});"
            " expected what `--figures` wrote"
        ) from None


def describe_run(load: Mapping[str, Any], *, is_short: bool) -> dict[str, Any]:
    """Date, machine, commit and load of a run that begins."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit.stdout.strip() or "unknown",
        "cores": os.cpu_count() or 1,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "short": is_short,
        "load": dict(load),
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share (0 to 1) of the sorted values does not exceed, linear between two
    adjacent ones. Raises ValueError where there is no value."""
    if not values:
        raise ValueError("no values have no percentile")
    if len(values) == 1:
        return values[0]
    if share >= 1:
        return max(values)
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]


def show_value(value: float | None, unit: str) -> str:
    """A value with its unit: three significant digits, and no exponent."""
    if value is None:
        return "-"
    rounded = float(f"{value:.3g}")
    digits = 0 if rounded >= 100 or rounded == int(rounded) else 1 if rounded >= 10 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()
