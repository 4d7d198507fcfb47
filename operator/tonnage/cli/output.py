"""Writes tables, JSON, YAML and generated pages of the documentation."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    RenderableType,
    RenderHook,
)
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tonnage.api.text import escape_controls
from tonnage.cli.errors import ExitCode, InputError

TABLE: Final = "table"
LINES: Final = "jsonl"
_FILE_COLUMNS: Final = 160
"""Width if the output is no terminal; the default of rich, 80, would cut lines in a log."""

_COLUMNS: Final = "COLUMNS"
"""Variable with the width of all output, as in other programs and for `watch`."""


def add_output_argument(parser: argparse.ArgumentParser) -> None:
    """Add the output format."""
    parser.add_argument(
        "-o",
        "--output",
        choices=(TABLE, "json", "yaml"),
        default=TABLE,
        help="form of the answer (default: table)",
    )


def write_data(form: str, data: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """Print data as JSON or YAML."""
    if form == "json":
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
    else:
        _escape_unencodable()
        yaml.dump(data, sys.stdout, NoAliases, sort_keys=False, allow_unicode=True, width=100)


def make_console() -> Console:
    """A console as wide as the variable COLUMNS says, else as the terminal or wide enough for a
    log."""
    _escape_unencodable()
    console = _Console(highlight=False, width=_read_columns())
    console.push_render_hook(_ControlEscaper())
    if not console.is_terminal and _read_columns() is None:
        console.width = _FILE_COLUMNS
    return console


def _escape_unencodable() -> None:
    """A name that the encoding of the output lacks must not end the program."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


class _Console(Console):
    """Leaves it to `main` how the program ends where the reader has closed the pipe."""

    def on_broken_pipe(self) -> None:
        """Implement Console, which would end it with 1, as `--diff` ends on a difference."""
        raise BrokenPipeError


def print_line(console: Console, markup: str) -> None:
    """Print one line of text, which COLUMNS wraps. Without that variable it stays one line: the
    terminal wraps it, and in a log it can be searched."""
    if _read_columns() is None:
        console.print(markup, soft_wrap=True)
        return
    text = markup.lstrip(" ")
    console.print(Padding(Text.from_markup(text), (0, 0, 0, len(markup) - len(text))))


def _read_columns() -> int | None:
    """The width that the user asks for; None if the variable is unset or no number above 0."""
    text = os.environ.get(_COLUMNS, "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


class _ControlEscaper(RenderHook):
    """Escapes control characters in names and messages, so that only rich controls the terminal."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Implement RenderHook."""
        return [_Escaped(renderable) for renderable in renderables]


@dataclass(frozen=True, slots=True)
class _Escaped:
    content: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.content, options):
            yield (
                segment
                if segment.control
                else Segment(escape_controls(segment.text), segment.style)
            )


def make_table(*headings: str, right: Sequence[str] = ()) -> Table:
    """An empty table in the style of kubectl, without lines; `right` are right-aligned columns."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return table


class NoAliases(yaml.SafeDumper):
    """Writes equal values out, because `*id001` makes a plan hard to read."""

    def ignore_aliases(self, data: object) -> bool:
        """No value gets an anchor."""
        return True


def add_page_argument(parser: argparse.ArgumentParser) -> None:
    """Add the output file."""
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the page to this file (default: print)"
    )


def write_page(page: str, file: Path | None) -> int:
    """Print the page, or write it to `file`. Raises InputError if the file cannot be written."""
    if file is None:
        sys.stdout.write(page)
        return ExitCode.DONE
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--output {file}: cannot write there: {error.strerror}") from None
    return ExitCode.DONE
