"""Prints the reports of several accelerators side by side."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tonnage.catalog.prices import format_money
from tonnage.cli.fit.engine import WORDS, engine_of, engine_version
from tonnage.cli.fit.judgement import Outcome
from tonnage.cli.fit.report import FitReport
from tonnage.cli.fit.view import format_choice, format_next_steps, format_settings, format_verdict
from tonnage.cli.output import make_table, print_line
from tonnage.fit.messages import format_gib
from tonnage.fit.model import MemoryFit

_NUMBERS: Final = ("GiB", "TP", "GPUS", "TOKENS", "REQUESTS", "TOKENS/S", "$/H", "$/1M TOKENS")
_UNKNOWN: Final = "-"
_TEXTS: Final = {
    Outcome.FITS: "fits",
    Outcome.DOES_NOT_FIT: "does not fit",
    Outcome.REFUSED: "refused",
}


def show_comparison(console: Console, reports: Sequence[FitReport]) -> None:
    """Print a line for each accelerator, and below the table why the others do not fit."""
    question = reports[0].judged.question
    engine = f"{WORDS[engine_of(question)].name} {escape(engine_version(question))}, "
    console.print(
        f"[bold]{escape(question.checkpoint.shape.architecture)}[/bold], "
        f"{engine if reports[0].choice is None else ''}{question.options.max_model_len:,} tokens"
    )
    console.print(_tabulate(reports))
    for report in reports:
        _show_details(console, report)
    for line in _format_basis(reports):
        print_line(console, f"  {line}")
    notes = dict.fromkeys(note for report in reports for note in report.flags.notes)
    for note in notes:
        print_line(console, f"  note: {escape(note)}")


def _tabulate(reports: Sequence[FitReport]) -> Table:
    memory, *numbers = _NUMBERS
    names = ("VERDICT",) if reports[0].choice is None else ("ENGINE", "VERDICT")
    table = make_table("ACCELERATOR", memory, *names, *numbers, right=_NUMBERS)
    for report in reports:
        question = report.judged.question
        table.add_row(
            escape(question.accelerator.id),
            format_gib(question.device_bytes),
            *_format_engine(report),
            _format_outcome(report),
            *_format_figures(report),
        )
    return table


def _format_engine(report: FitReport) -> tuple[str, ...]:
    """The engine that is taken; nothing where one engine was judged."""
    if report.choice is None:
        return ()
    taken = report.choice.taken
    return (_UNKNOWN if taken is None else WORDS[taken].name,)


def _format_outcome(report: FitReport) -> str:
    verdict = report.judged.verdict
    tight = report.outcome is Outcome.FITS and isinstance(verdict, MemoryFit) and verdict.tight
    return _TEXTS[report.outcome] + (", tight" if tight else "")


def _format_figures(report: FitReport) -> tuple[str, ...]:
    """The figures of the layout; those of its cost only if it starts."""
    parallelism, account, cost = (
        report.judged.question.parallelism,
        report.judged.account,
        report.cost,
    )
    layout = (
        str(parallelism.tensor),
        str(parallelism.gpus),
        _UNKNOWN if account is None else f"{account.kv_cache_tokens:,}",
    )
    if cost is None:
        return (*layout, *(_UNKNOWN,) * 4)
    per_hour, per_million_tokens, estimate = cost.per_hour, cost.per_million_tokens, cost.estimate
    return (
        *layout,
        _UNKNOWN if estimate is None else f"{estimate.batch:,}",
        _UNKNOWN if estimate is None else f"{estimate.tokens_per_second:,.0f}",
        _UNKNOWN if per_hour is None else format_money(per_hour),
        _UNKNOWN if per_million_tokens is None else format_money(per_million_tokens),
    )


def _show_details(console: Console, report: FitReport) -> None:
    """Print why the model does not fit and what to change, and what a server there needs."""
    accelerator = escape(report.judged.question.accelerator.id)
    if report.outcome is not Outcome.FITS:
        for line in (*format_verdict(report.judged), *list(format_next_steps(report))[:1]):
            print_line(console, f"  {accelerator}: {line.strip()}")
    for line in format_choice(report):
        print_line(console, f"  {accelerator}: {line}")
    for setting in format_settings(report.judged.settings):
        print_line(console, f"  {accelerator}: start with: {escape(setting)}")
    for note in report.judged.notes:
        print_line(console, f"  {accelerator}: note: {escape(note)}")


def _format_basis(reports: Sequence[FitReport]) -> Sequence[str]:
    """What the costs and the speeds of the table are based on."""
    costs = [report.cost for report in reports if report.cost is not None]
    estimates = [cost.estimate for cost in costs if cost.estimate is not None]
    dates = sorted({cost.price.date for cost in costs if cost.price is not None})
    lines = []
    if dates:
        span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        lines.append(f"cost: of one replica, by list prices of {span}")
    if estimates:
        workload = reports[0].flags.workload
        band = max(estimate.band for estimate in estimates) * 100
        lines.append(
            f"speed: estimate +/- {band:.0f} % of one replica at REQUESTS at a time, each "
            f"{workload.input_tokens:,} tokens in and {workload.output_tokens:,} out"
        )
    return lines
