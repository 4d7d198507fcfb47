"""Answers for people (tables) and for programs (JSON, YAML), on standard output."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
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

from tonnage.api.text import harmless

TABLE: Final = "table"
_WIDTH_OF_A_FILE: Final = 160
"""Columns when the output is no terminal; rich would take 80 and cut what stands in a log."""


def add_output_argument(parser: argparse.ArgumentParser) -> None:
    """The form of the answer."""
    parser.add_argument(
        "-o",
        "--output",
        choices=(TABLE, "json", "yaml"),
        default=TABLE,
        help="form of the answer (default: table)",
    )


def write_data(form: str, data: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """Print data for programs, as JSON or YAML."""
    if form == "json":
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
    else:
        yaml.dump(data, sys.stdout, NoAliases, sort_keys=False, allow_unicode=True, width=100)


def make_console() -> Console:
    """A console that is as wide as the terminal, or wide enough for a log."""
    if isinstance(sys.stdout, TextIOWrapper):  # a name out of a file must not end the program
        sys.stdout.reconfigure(errors="backslashreplace")
    console = Console(highlight=False)
    console.push_render_hook(_WrittenOut())
    if not console.is_terminal:
        console.width = _WIDTH_OF_A_FILE
    return console


class _WrittenOut(RenderHook):
    """Names and messages out of files and clusters steer no terminal; only rich's own codes do."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Implement RenderHook."""
        return [_Harmless(one) for one in renderables]


@dataclass(frozen=True, slots=True)
class _Harmless:
    content: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.content, options):
            yield segment if segment.control else Segment(harmless(segment.text), segment.style)


def make_table(*headings: str, right: Sequence[str] = ()) -> Table:
    """An empty table as kubectl draws them: no lines; `right` are the columns with numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return table


class NoAliases(yaml.SafeDumper):
    """Equal values are written out; `*id001` helps nobody who reads a plan."""

    def ignore_aliases(self, data: object) -> bool:
        """No value gets an anchor."""
        return True
