"""The report as people read it: where the memory of one GPU goes, the verdict, the way out."""

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tonnage.catalog.rules import Settings
from tonnage.cli.fit_bars import tabulate_memory
from tonnage.cli.fit_judging import Judgement, Outcome
from tonnage.cli.fit_prediction import tell
from tonnage.cli.fit_report import FitReport, Reach
from tonnage.cli.output import make_table
from tonnage.fit.advice import Change
from tonnage.fit.model import DoesNotFit, FitVerdict, MemoryFit
from tonnage.placement.messages import format_count, format_gib, format_split

_ALTERNATIVES: Final = 4


def show_report(console: Console, report: FitReport) -> None:
    """Print the whole report."""
    question = report.judged.question
    console.print(
        f"[bold]{escape(question.checkpoint.shape.architecture)}[/bold] on "
        f"{escape(question.accelerator.name)} ({format_gib(question.device_bytes)} GiB), "
        f"{format_split(question.parallelism)}, vLLM {escape(question.options.vllm_version)}, "
        f"{question.options.max_model_len:,} tokens"
    )
    if report.degrees:
        console.print(_tabulate_degrees(report))
    if report.judged.account is not None:
        console.print(tabulate_memory(console, report.judged.account))
    for line in (*_verdict(report.judged), *_reach(report), *_way_out(report)):
        console.print(line, soft_wrap=True)
    for setting in write_settings(report.judged.settings):
        console.print(f"  start with: {escape(setting)}", soft_wrap=True)
    for note in report.notes:
        console.print(f"  note: {escape(note)}", soft_wrap=True)


def write_settings(settings: Settings) -> Iterator[str]:
    """What the server has to be started with, each as it is written."""
    yield from (f"{name}={value}" for name, value in settings.env.items())
    yield from settings.args
    if settings.image is not None:
        yield f"image {settings.image}"


def _verdict(judged: Judgement) -> Iterator[str]:
    match judged.outcome:
        case Outcome.REFUSED:
            who = "Refused by vLLM" if judged.by_vllm else "Refused"
            yield f"[bold red]{who}[/bold red]: {escape(tell(judged))} (rule {judged.rule})"
        case Outcome.DOES_NOT_FIT:
            yield f"[bold red]Does not fit[/bold red]: {escape(tell(judged))}"
            if isinstance(judged.verdict, DoesNotFit) and judged.verdict.narrowly:
                yield "  what lacks is less than this may be off by: it may start all the same"
        case Outcome.FITS if isinstance(judged.verdict, MemoryFit) and judged.verdict.tight:
            yield (
                "[bold yellow]Fits, tight[/bold yellow]: what is left is less than the calculation "
                "may be off; it may fail to start"
            )
        case Outcome.FITS:
            yield "[bold green]Fits[/bold green]"


def _reach(report: FitReport) -> Iterator[str]:
    reach, question = report.reach, report.judged.question
    if reach is None:
        return
    yield f"  margin: {_margin(reach, report)}"
    yield f"  longest context: {_context(reach)}"
    held = _held(reach.requests, question.options.max_model_len, reach)
    if reach.typical is not None and report.flags.request_tokens is not None:
        held += f", or {_held(reach.typical, report.flags.request_tokens, reach)}"
    yield f"  requests at a time: {held}"


def _margin(reach: Reach, report: FitReport) -> str:
    tokens = report.judged.question.required_tokens
    size = f"{format_gib(abs(reach.margin_bytes))} GiB a GPU, +/- {format_gib(reach.band_bytes)},"
    lacking = "" if reach.margin_bytes >= 0 else " are lacking"
    towards = "beyond" if reach.margin_bytes >= 0 else "for"
    return f"{size}{lacking} {towards} the {tokens:,} tokens asked for"


def _context(reach: Reach) -> str:
    if reach.longest_context == 0:
        return "none"
    found = f"{reach.longest_context:,} tokens"
    if reach.context_limit is None:
        return f"{found} or more (its config.json names no maximum)"
    if reach.longest_context == reach.context_limit:
        return f"{found} (the model's own maximum)"
    return f"{found} (the model's own maximum: {reach.context_limit:,})"


def _held(requests: int, tokens: int, reach: Reach) -> str:
    """How many requests of so many tokens are served at a time, and by what they are limited."""
    if requests <= reach.max_num_seqs:
        return f"{requests:,} of {tokens:,} tokens"
    return (
        f"{reach.max_num_seqs:,} of {tokens:,} tokens (--max-num-seqs; the KV cache has room for "
        f"{requests:,})"
    )


def _way_out(report: FitReport) -> Iterator[str]:
    if report.outcome is Outcome.FITS:
        return
    for number, change in enumerate(report.changes[: _ALTERNATIVES + 1]):
        lead = "[bold]next step[/bold]" if number == 0 else "or"
        yield f"  {lead}: {escape(_tell_change(change))}"
    if not report.judged.by_vllm:
        yield f"  to override the rule: --allow {report.judged.rule}"
    elif not report.changes:
        gpus = format_count(report.flags.max_gpus, "GPU")
        yield (
            f"  no setting of vLLM makes it fit on up to {gpus} of this kind: take devices with "
            "more memory, or a checkpoint with smaller weights"
        )


def _tell_change(change: Change) -> str:
    arguments = " ".join(step.argument for step in change.steps)
    tight = ", though tightly" if change.fit.tight else ""
    held = f"{change.fit.account.kv_cache_tokens:,} tokens"
    return f"{arguments} (fits{tight}; the KV cache then holds {held})"


def _tabulate_degrees(report: FitReport) -> Table:
    numbers = ("TP", "WEIGHTS", "KV CACHE", "TOKENS")
    table = make_table(*numbers, "VERDICT", right=numbers)
    for split, found in report.degrees:
        account = found.account if isinstance(found, MemoryFit | DoesNotFit) else None
        figures = (
            ("-",) * 3
            if account is None
            else (
                format_gib(account.weights_bytes),
                format_gib(account.kv_cache_bytes),
                f"{account.kv_cache_tokens:,}",
            )
        )
        chosen = " <- smallest" if split == report.smallest else ""
        table.add_row(str(split.tensor), *figures, _word(found) + chosen)
    return table


def _word(found: FitVerdict) -> str:
    if isinstance(found, DoesNotFit):
        return f"does not fit: {found.term}"
    return "fits, tight" if isinstance(found, MemoryFit) and found.tight else "fits"
