"""Prints the report: the memory of one GPU by term, the verdict, and the next steps."""

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tonnage.catalog.prices import format_money
from tonnage.catalog.rules import Settings
from tonnage.cli.fit.bars import tabulate_memory
from tonnage.cli.fit.cost import ReplicaCost
from tonnage.cli.fit.engine import WORDS, Engine, engine_of, engine_version, fraction_of
from tonnage.cli.fit.judgement import Judgement, Outcome
from tonnage.cli.fit.prediction import format_reason
from tonnage.cli.fit.report import FitReport, LayoutLimits
from tonnage.cli.output import make_table, print_line
from tonnage.fit.messages import format_count, format_gib, format_parallelism
from tonnage.fit.model import DoesNotFit, FitVerdict, MemoryAccount, MemoryFit
from tonnage.fit.questions.advice import Change

_MAX_ALTERNATIVES: Final = 4


def show_report(console: Console, report: FitReport) -> None:
    """Print the whole report."""
    question = report.judged.question
    words = WORDS[engine_of(question)]
    console.print(
        f"[bold]{escape(question.checkpoint.shape.architecture)}[/bold] on "
        f"{escape(question.accelerator.name)} ({format_gib(question.device_bytes)} GiB), "
        f"{format_parallelism(question.parallelism)}, "
        f"{words.name} {escape(engine_version(question))}, "
        f"{question.options.max_model_len:,} tokens"
    )
    if report.degrees:
        console.print(_tabulate_degrees(report))
    account = report.judged.account
    if account is not None:
        console.print(tabulate_memory(console, account, words.terms))
        if account.stages:
            console.print(_tabulate_stages(account))
    verdict = format_verdict(report.judged)
    limits, cost = _format_limits(report), _format_cost(report)
    share = _format_share(report)
    choice = (f"  {line}" for line in format_choice(report))
    for line in (*verdict, *choice, *share, *limits, *cost, *format_next_steps(report)):
        print_line(console, line)
    for setting in format_settings(report.judged.settings):
        print_line(console, f"  start with: {escape(setting)}")
    for note in report.notes:
        print_line(console, f"  note: {escape(note)}")


def format_settings(settings: Settings) -> Iterator[str]:
    """The settings that the server needs, as arguments and environment variables."""
    yield from (f"{name}={value}" for name, value in settings.env.items())
    yield from settings.args
    if settings.image is not None:
        yield f"image {settings.image}"


def format_verdict(judged: Judgement) -> Iterator[str]:
    """The verdict with its reason."""
    words = WORDS[engine_of(judged.question)]
    match judged.outcome:
        case Outcome.REFUSED:
            refused = f"Refused by {words.name}" if judged.by_engine else "Refused"
            reason = f"{escape(format_reason(judged))} (rule {judged.rule})"
            yield f"[bold red]{refused}[/bold red]: {reason}"
        case Outcome.DOES_NOT_FIT:
            yield f"[bold red]Does not fit[/bold red]: {escape(format_reason(judged))}"
            if isinstance(judged.verdict, DoesNotFit) and judged.verdict.narrowly:
                yield f"  the shortage is within the uncertainty: {words.if_narrow}"
        case Outcome.FITS if isinstance(judged.verdict, MemoryFit) and judged.verdict.tight:
            yield (
                "[bold yellow]Fits, tight[/bold yellow]: the margin is within the uncertainty; "
                f"{words.if_tight}"
            )
        case Outcome.FITS:
            yield "[bold green]Fits[/bold green]"


def format_choice(report: FitReport) -> Iterator[str]:
    """The engine that is taken, with the reason; nothing where one engine was judged."""
    choice = report.choice
    if choice is None:
        return
    name = "none" if choice.taken is None else WORDS[choice.taken].name
    yield f"engine: {name}; {escape(choice.reason)}"
    for answer in choice.answers:
        if answer.fits and answer.engine != choice.taken and choice.taken is not None:
            yield f"{WORDS[Engine(answer.engine)].name}: {escape(answer.message)}"


def _format_share(report: FitReport) -> Iterator[str]:
    """The share of the free memory that SGLang takes; nothing for vLLM."""
    question, account = report.judged.question, report.judged.account
    static = None if account is None else fraction_of(question)
    if static is None:
        return
    given = static.fraction / static.aiter_factor
    less = "" if static.aiter_factor == 1 else f" ({given:.3f} x {static.aiter_factor:g} for aiter)"
    chunk = f"--chunked-prefill-size {static.chunked_prefill}"
    yield f"  --mem-fraction-static: {static.fraction:.3f}{less}, with {chunk}"


def _format_limits(report: FitReport) -> Iterator[str]:
    limits, question = report.limits, report.judged.question
    if limits is None:
        return
    yield f"  margin: {_format_margin(limits, report)}"
    yield f"  longest context: {_format_context(limits)}"
    flag = WORDS[engine_of(question)].requests_flag
    requests = _format_requests(limits.requests, question.options.max_model_len, limits, flag)
    if limits.typical is not None:
        tokens = report.flags.workload.request_tokens
        typical = _format_requests(limits.typical, tokens, limits, flag)
        requests += f", or {typical}"
    yield f"  requests at a time: {requests}"


def _format_margin(limits: LayoutLimits, report: FitReport) -> str:
    tokens = report.judged.question.required_tokens
    size = f"{format_gib(abs(limits.margin_bytes))} GiB a GPU, +/- {format_gib(limits.band_bytes)},"
    lacking = "" if limits.margin_bytes >= 0 else " are lacking"
    towards = "beyond" if limits.margin_bytes >= 0 else "for"
    return f"{size}{lacking} {towards} the {tokens:,} tokens asked for"


def _format_context(limits: LayoutLimits) -> str:
    if limits.longest_context == 0:
        return "none"
    longest = f"{limits.longest_context:,} tokens"
    if limits.context_limit is None:
        return f"{longest} or more (its config.json names no maximum)"
    if limits.longest_context == limits.context_limit:
        return f"{longest} (the model's own maximum)"
    return f"{longest} (the model's own maximum: {limits.context_limit:,})"


def _format_requests(requests: int, tokens: int, limits: LayoutLimits, flag: str) -> str:
    """The concurrent requests of `tokens` each, and what limits them."""
    if requests <= limits.max_num_seqs:
        return f"{requests:,} of {tokens:,} tokens"
    return f"{limits.max_num_seqs:,} of {tokens:,} tokens ({flag}; the KV cache holds {requests:,})"


def _format_cost(report: FitReport) -> Iterator[str]:
    cost = report.cost
    if cost is None:
        return
    if cost.price is None or cost.per_hour is None:
        yield f"  cost: no price of {escape(report.judged.question.accelerator.name)} is known"
    else:
        gpus = format_count(cost.gpus, "GPU")
        price = f"${format_money(cost.per_hour)} an hour for {gpus}"
        yield f"  cost: {price} (list price of {cost.price.date}){_format_token_cost(cost)}"
    if cost.estimate is not None:
        speed = f"{cost.estimate.tokens_per_second:,.0f} tokens/s"
        requests = format_count(cost.estimate.batch, "request")
        size = report.flags.workload
        yield (
            f"  speed: about {speed} with {requests} at a time, each {size.input_tokens:,} tokens "
            f"in and {size.output_tokens:,} out (estimate +/- {cost.estimate.band * 100:.0f} %)"
        )


def _format_token_cost(cost: ReplicaCost) -> str:
    amount = cost.per_million_tokens
    return "" if amount is None else f", ${format_money(amount)} per million generated tokens"


def format_next_steps(report: FitReport) -> Iterator[str]:
    """The changes that make the model fit, the smallest first; none if it does, or for SGLang."""
    if report.outcome is Outcome.FITS or engine_of(report.judged.question) is Engine.SGLANG:
        return
    for number, change in enumerate(report.changes[: _MAX_ALTERNATIVES + 1]):
        lead = "[bold]next step[/bold]" if number == 0 else "or"
        yield f"  {lead}: {escape(_format_change(change))}"
    if not report.judged.by_engine:
        yield f"  to override the rule: --allow {report.judged.rule}"
    elif report.outcome is Outcome.DOES_NOT_FIT and not report.changes:
        gpus = format_count(report.flags.max_gpus, "GPU")
        yield (
            f"  no setting of vLLM makes it fit on up to {gpus} of this kind: take devices with "
            "more memory, a checkpoint with smaller weights, or more nodes a replica (--nodes)"
        )


def _format_change(change: Change) -> str:
    arguments = " ".join(step.argument for step in change.steps)
    tight = ", though tightly" if change.fit.tight else ""
    tokens = f"{change.fit.account.kv_cache_tokens:,} tokens"
    return f"{arguments} (fits{tight}; the KV cache then holds {tokens})"


def _tabulate_stages(account: MemoryAccount) -> Table:
    """What differs between the pipeline stages; the bars are those of the marked one."""
    numbers = ("STAGE", "LAYERS", "WEIGHTS", "KV CACHE", "TOKENS")
    table = make_table(*numbers, "", right=numbers)
    for number, stage in enumerate(account.stages):
        limiting = stage.weights_bytes == account.weights_bytes
        table.add_row(
            str(number),
            str(stage.layers),
            format_gib(stage.weights_bytes),
            format_gib(stage.kv_cache_bytes),
            f"{stage.kv_cache_tokens:,}",
            "<- fewest" if limiting else "",
        )
    return table


def _tabulate_degrees(report: FitReport) -> Table:
    numbers = ("TP", "WEIGHTS", "KV CACHE", "TOKENS")
    table = make_table(*numbers, "VERDICT", right=numbers)
    for parallelism, verdict in report.degrees:
        account = verdict.account if isinstance(verdict, MemoryFit | DoesNotFit) else None
        figures = (
            ("-",) * 3
            if account is None
            else (
                format_gib(account.weights_bytes),
                format_gib(account.kv_cache_bytes),
                f"{account.kv_cache_tokens:,}",
            )
        )
        mark = " <- smallest" if parallelism == report.smallest else ""
        table.add_row(str(parallelism.tensor), *figures, _format_short(verdict) + mark)
    return table


def _format_short(verdict: FitVerdict) -> str:
    if isinstance(verdict, DoesNotFit):
        return f"does not fit: {verdict.term}"
    return "fits, tight" if isinstance(verdict, MemoryFit) and verdict.tight else "fits"
