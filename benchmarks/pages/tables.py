"""A benchmark's report in the terminal and as Markdown. Pure but for printing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.pages.figures import SUBJECT, Report, ResultTable

_DISTURBING_CORES: Final = 0.1
_FILE_WIDTH: Final = 150
"""Columns of a table that goes to a file or a pipe."""


def open_console() -> Console:
    """The terminal, as wide as it is; a file gets tables whose lines do not wrap."""
    console = Console(soft_wrap=True)
    return console if console.is_terminal else Console(soft_wrap=True, width=_FILE_WIDTH)


def figures_table(report: Report) -> ResultTable:
    """Each figure next to its bar: the last and most important table."""
    others = [name for name in report.controllers if name != SUBJECT]
    rows = [
        (
            figure.name,
            figure.shown_bar,
            figure.show(SUBJECT),
            *(figure.show(name) for name in others),
            figure.verdict,
        )
        for figure in report.figures
    ]
    columns = ("Figure", "Bar", SUBJECT, *others, "Met")
    return ResultTable(f"figures of bench-{report.benchmark}", columns, rows)


def print_report(console: Console, report: Report) -> None:
    """All tables, that of the figures last."""
    for table in (*report.tables, figures_table(report)):
        print_table(console, table)
    for line in notes(report):
        console.print(line, highlight=False)


def print_table(console: Console, table: ResultTable) -> None:
    """One table; numbers stand to the right."""
    rich_table = Table(title=table.title)
    for number, column in enumerate(table.columns):
        rich_table.add_column(column, justify="left" if number == 0 else "right")
    for row in table.rows:
        rich_table.add_row(*row)
    console.print(rich_table)


def notes(report: Report) -> Iterator[str]:
    """What a reader of the figures has to know about the run."""
    if report.run["short"]:
        yield "A short run, to try the benchmark: the bars are for a full one."
    run = report.run
    yield (
        f"Measured on {run['date']} at commit {run['commit']}, {run['cores']} cores"
        f" ({run['machine']}), Python {run['python']}."
    )
    yield f"Load: {_shown_load(run['load'])}."
    if (busy := run.get("other_cores")) is not None and busy >= _DISTURBING_CORES:
        yield (
            f"Other programs used {busy:.1f} of the cores meanwhile: compare controllers of this"
            " run, not times of different runs."
        )


def _shown_load(load: Mapping[str, Any]) -> str:
    return "; ".join(f"{name.replace('_', ' ')}: {value}" for name, value in load.items())


def markdown_table(table: ResultTable) -> str:
    """The table as GitHub reads it."""
    lines = [_markdown_row(table.columns), _markdown_row("---" for _ in table.columns)]
    return "\n".join([*lines, *map(_markdown_row, table.rows)]) + "\n"


def _markdown_row(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
