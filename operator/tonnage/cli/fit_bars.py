"""The memory of one GPU as a table of bars, each beginning where the one before it ends.

Bars are of block characters on a terminal, and of plain ones in files, on terminals that know no
others and where NO_COLOR is set.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tonnage.cli.output import make_table
from tonnage.fit.model import MemoryAccount, MemoryTerm
from tonnage.placement.messages import format_gib

_COLOURS: Final = {
    MemoryTerm.WEIGHTS: "blue",
    MemoryTerm.ACTIVATION: "magenta",
    MemoryTerm.NON_TORCH: "yellow",
    MemoryTerm.GRAPHS: "cyan",
    MemoryTerm.CORRECTION: "red",
    MemoryTerm.KV_CACHE: "green",
}
_OTHERS: Final = "bright_black"
_LEFT_ALONE: Final = "left alone"
_DEVICE: Final = "device"
_BESIDE_THE_BAR: Final = 28
_BAR_COLUMNS: Final = (10, 60)


def tabulate_memory(console: Console, account: MemoryAccount) -> Table:
    """Each term with its bar; what goes beyond the device goes beyond its bar."""
    least, most = _BAR_COLUMNS
    width = min(max(console.width - _BESIDE_THE_BAR, least), most)
    spans = tuple(_spans(account))
    whole = max(span.end for span in spans)
    draw = _Plain(whole, width) if _is_plain(console) else _Blocks(whole, width)
    table = make_table("ONE GPU", "GiB", "", right=("GiB",))
    for span in spans:
        table.add_row(span.name, format_gib(span.size_bytes), draw.bar(span))
    return table


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of the memory; one that lacks has a negative size and no length."""

    name: str
    size_bytes: int
    begin: int

    @property
    def end(self) -> int:
        return self.begin + max(0, self.size_bytes)


def _spans(account: MemoryAccount) -> Iterator[_Span]:
    terms = (
        (MemoryTerm.WEIGHTS, account.weights_bytes),
        (MemoryTerm.ACTIVATION, account.activation_bytes),
        (MemoryTerm.NON_TORCH, account.non_torch_bytes),
        (MemoryTerm.GRAPHS, account.graph_bytes),
        *_correction(account),
        (MemoryTerm.KV_CACHE, account.kv_cache_bytes),
    )
    begin = 0
    for term, size_bytes in terms:
        span = _Span(term, size_bytes, begin)
        yield span
        begin += size_bytes  # a correction may give room back
    yield _Span(_LEFT_ALONE, account.device_bytes - account.budget_bytes, account.budget_bytes)
    yield _Span(_DEVICE, account.device_bytes, 0)


def _correction(account: MemoryAccount) -> Iterator[tuple[MemoryTerm, int]]:
    if account.correction_bytes:
        yield MemoryTerm.CORRECTION, account.correction_bytes


def _is_plain(console: Console) -> bool:
    knows_blocks = console.is_terminal and not console.is_dumb_terminal
    return not knows_blocks or console.no_color or console.options.ascii_only


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Bars in eighths of a column; the smallest is still seen."""

    whole: int
    width: int

    def bar(self, span: _Span) -> RenderableType:
        colour = next((c for term, c in _COLOURS.items() if term == span.name), _OTHERS)
        if span.end == span.begin:
            return ""
        least = self.whole / self.width / 4  # of a column; less would be rounded away
        begin = min(span.begin, self.whole - least)
        return Bar(self.whole, begin, max(span.end, begin + least), width=self.width, color=colour)


@dataclass(frozen=True, slots=True)
class _Plain:
    """Bars of whole columns between two lines; each that is not empty has at least one."""

    whole: int
    width: int

    def bar(self, span: _Span) -> RenderableType:
        first, last = (round(edge * self.width / self.whole) for edge in (span.begin, span.end))
        if span.end > span.begin:
            first = min(first, self.width - 1)
            last = max(last, first + 1)
        return Text(f"|{' ' * first}{'#' * (last - first)}".ljust(self.width + 1) + "|")
