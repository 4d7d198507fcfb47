"""Writes tables, JSON, YAML and generated pages of the documentation."""

import argparse
import json
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
from rich.segment import Segment
from rich.table import Table

from tonnage.api.text import escape_controls
from tonnage.cli.errors import ExitCode, InputError

TABLE: Final = "table"
_FILE_COLUMNS: Final = 160
"""Width if the output is no terminal; the default of rich, 80, would cut lines in a log."""


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
        yaml.dump(data, sys.stdout, NoAliases, sort_keys=False, allow_unicode=True, width=100)


def make_console() -> Console:
    """A console that is as wide as the terminal, or wide enough for a log."""
    if isinstance(sys.stdout, TextIOWrapper):  # an unencodable name must not end the program
        sys.stdout.reconfigure(errors="backslashreplace")
    console = Console(highlight=False)
    console.push_render_hook(_ControlEscaper())
    if not console.is_terminal:
        console.width = _FILE_COLUMNS
    return console


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
