"""Draws the memory of one GPU as a table of bars, each starting where the previous one ends.

Bars use block characters on a terminal, and ASCII in files, on terminals without block characters,
and with NO_COLOR.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tonnage.cli.output import make_table
from tonnage.fit.messages import format_gib
from tonnage.fit.model import MemoryAccount, MemoryTerm

_COLOURS: Final = {
    MemoryTerm.WEIGHTS: "blue",
    MemoryTerm.LORA: "bright_blue",
    MemoryTerm.ACTIVATION: "magenta",
    MemoryTerm.NON_TORCH: "yellow",
    MemoryTerm.GRAPHS: "cyan",
    MemoryTerm.CORRECTION: "red",
    MemoryTerm.KV_CACHE: "green",
}
_OTHER_COLOUR: Final = "bright_black"
_LEFT_ALONE: Final = "left alone"
_DEVICE: Final = "device"
_OTHER_COLUMNS: Final = 28
_BAR_COLUMNS: Final = (10, 60)


def tabulate_memory(
    console: Console, account: MemoryAccount, terms: Collection[MemoryTerm] = tuple(MemoryTerm)
) -> Table:
    """A table with a bar for each of `terms`; those beyond the device extend beyond its bar."""
    least, most = _BAR_COLUMNS
    width = min(max(console.width - _OTHER_COLUMNS, least), most)
    spans = tuple(_spans(account, terms))
    longest = max(span.end for span in spans)
    bars = _PlainBars(longest, width) if _is_plain(console) else _BlockBars(longest, width)
    table = make_table("ONE GPU", "GiB", "", right=("GiB",))
    for span in spans:
        table.add_row(span.name, format_gib(span.size_bytes), bars.draw(span))
    return table


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of the memory, in bytes; a missing part has a negative size and no length."""

    name: str
    size_bytes: int
    begin: int

    @property
    def end(self) -> int:
        return self.begin + max(0, self.size_bytes)


def _spans(account: MemoryAccount, terms: Collection[MemoryTerm]) -> Iterator[_Span]:
    sizes = (
        (MemoryTerm.WEIGHTS, account.weights_bytes),
        *_if_any(MemoryTerm.LORA, account.lora_bytes),
        (MemoryTerm.ACTIVATION, account.activation_bytes),
        (MemoryTerm.NON_TORCH, account.non_torch_bytes),
        (MemoryTerm.GRAPHS, account.graph_bytes),
        *_if_any(MemoryTerm.CORRECTION, account.correction_bytes),
        (MemoryTerm.KV_CACHE, account.kv_cache_bytes),
    )
    begin = 0
    for term, size_bytes in sizes:
        if term not in terms:
            continue
        span = _Span(term, size_bytes, begin)
        yield span
        begin += size_bytes  # a correction may be negative
    yield _Span(_LEFT_ALONE, account.device_bytes - account.budget_bytes, account.budget_bytes)
    yield _Span(_DEVICE, account.device_bytes, 0)


def _if_any(term: MemoryTerm, size_bytes: int) -> Iterator[tuple[MemoryTerm, int]]:
    if size_bytes:
        yield term, size_bytes


def _is_plain(console: Console) -> bool:
    supports_blocks = console.is_terminal and not console.is_dumb_terminal
    return not supports_blocks or console.no_color or console.options.ascii_only


@dataclass(frozen=True, slots=True)
class _BlockBars:
    """Bars in eighths of a column; the smallest stays visible."""

    longest_bytes: int
    width: int

    def draw(self, span: _Span) -> RenderableType:
        colour = next((c for term, c in _COLOURS.items() if term == span.name), _OTHER_COLOUR)
        if span.end == span.begin:
            return ""
        least = self.longest_bytes / self.width / 4  # of a column; less would be rounded away
        begin = min(span.begin, self.longest_bytes - least)
        end = max(span.end, begin + least)
        return Bar(self.longest_bytes, begin, end, width=self.width, color=colour)


@dataclass(frozen=True, slots=True)
class _PlainBars:
    """Bars of whole columns between two lines; a bar that is not empty has at least one."""

    longest_bytes: int
    width: int

    def draw(self, span: _Span) -> RenderableType:
        edges = (span.begin, span.end)
        first, last = (round(edge * self.width / self.longest_bytes) for edge in edges)
        if span.end > span.begin:
            first = min(first, self.width - 1)
            last = max(last, first + 1)
        return Text(f"|{' ' * first}{'#' * (last - first)}".ljust(self.width + 1) + "|")
