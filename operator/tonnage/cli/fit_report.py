"""All that `tonnage fit` tells of one question: the verdict, how far it reaches, what to change."""

from dataclasses import dataclass, replace
from typing import Any

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.rules import Settings
from tonnage.cli.fit_flags import Flags
from tonnage.cli.fit_judging import Judgement, Outcome, judge_for_user
from tonnage.cli.fit_prediction import as_data
from tonnage.fit.advice import Change, Setting, advise
from tonnage.fit.context import context_limit
from tonnage.fit.limits import (
    batch_of,
    concurrent_requests,
    judge_degrees,
    longest_context,
    smallest_fit,
)
from tonnage.fit.model import DoesNotFit, FitVerdict, MemoryFit, Parallelism
from tonnage.fit.question import FitQuestion


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the memory of a layout goes.

    `margin_bytes` is what one GPU has beyond what is asked for, negative when it lacks, and
    `band_bytes` how far that may be off; `context_limit` what vLLM takes at most (None: anything).
    The KV cache has room for `requests` of `max_model_len` or `typical` ones of the workload, of
    which vLLM serves `max_num_seqs` at a time.
    """

    margin_bytes: int
    band_bytes: int
    longest_context: int
    context_limit: int | None
    max_num_seqs: int
    requests: int
    typical: int | None = None


@dataclass(frozen=True, slots=True)
class FitReport:
    """The answer for people and programs; `degrees` is empty where the user chose one.

    `judged` is the question at the degree that the user chose, else at the smallest one that fits,
    else at the largest.
    """

    flags: Flags
    judged: Judgement
    degrees: tuple[tuple[Parallelism, FitVerdict], ...]
    smallest: Parallelism | None
    reach: Reach | None
    changes: tuple[Change, ...]

    @property
    def outcome(self) -> Outcome:
        """The verdict in a word."""
        return self.judged.outcome

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know beside the verdict."""
        return (*self.flags.notes, *self.judged.notes)


def make_report(flags: Flags, catalog: Catalog) -> FitReport:
    """Judge the question, at every legal degree where none was chosen, and look for a way out."""
    question = flags.question
    degrees: tuple[tuple[Parallelism, FitVerdict], ...] = ()
    smallest = None
    if Setting.SPLIT not in flags.given:
        degrees = judge_degrees(question, flags.max_gpus, catalog)
        smallest = smallest_fit(degrees)
        largest = degrees[-1][0] if degrees else question.parallelism
        question = replace(question, parallelism=smallest or largest)
    judged = judge_for_user(question, flags.allow, catalog)
    fits = judged.outcome is Outcome.FITS
    changes = () if fits else advise(question, flags.given, flags.allow, flags.max_gpus, catalog)
    return FitReport(
        flags, judged, degrees, smallest, _measure(judged, flags.request_tokens, catalog), changes
    )


def report_data(report: FitReport) -> dict[str, Any]:
    """The report for programs; docs/fit.md describes it."""
    question, reach = report.judged.question, report.reach
    data = as_data(report.judged)
    data["accelerator"] = question.accelerator.id
    data["vllmVersion"] = question.options.vllm_version
    data["tensorParallelSize"] = question.parallelism.tensor
    data["pipelineParallelSize"] = question.parallelism.pipeline
    data["maxModelLen"] = question.options.max_model_len
    if reach is not None:
        data["longestContext"] = reach.longest_context
        data["concurrentRequests"] = min(reach.requests, reach.max_num_seqs)
        if reach.typical is not None:
            data["concurrentTypicalRequests"] = min(reach.typical, reach.max_num_seqs)
    if report.degrees:
        data["degrees"] = [
            {"tensorParallelSize": split.tensor, **_short(found)} for split, found in report.degrees
        ]
    data["nextSteps"] = [_change_data(change) for change in report.changes]
    data["settings"] = _settings_data(report.judged.settings)
    data["notes"] = list(report.notes)
    return data


def _settings_data(settings: Settings) -> dict[str, Any]:
    """What the server has to be started with."""
    image = {"image": settings.image} if settings.image else {}
    return {"env": dict(settings.env), "args": list(settings.args), **image}


def _measure(judged: Judgement, request_tokens: int | None, catalog: Catalog) -> Reach | None:
    """How far the memory goes, None for a layout that vLLM refuses."""
    question, account = judged.question, judged.account
    if account is None:
        return None
    held = question.options.max_model_len
    typical = (
        None
        if request_tokens is None
        else concurrent_requests(question, account, request_tokens, catalog)
    )
    return Reach(
        margin_bytes=account.margin_bytes,
        band_bytes=account.band_bytes,
        longest_context=longest_context(question, catalog),
        context_limit=_context_limit(question, catalog),
        max_num_seqs=batch_of(question, catalog).max_num_seqs,
        requests=concurrent_requests(question, account, held, catalog),
        typical=typical,
    )


def _context_limit(question: FitQuestion, catalog: Catalog) -> int | None:
    shape, options = question.checkpoint.shape, question.options
    return context_limit(shape, options, catalog.release(options.vllm_version))


def _short(found: FitVerdict) -> dict[str, Any]:
    if isinstance(found, MemoryFit):
        return {"verdict": Outcome.FITS.value, "tight": found.tight}
    lacking = {"lacking": found.term.value} if isinstance(found, DoesNotFit) else {}
    return {"verdict": Outcome.DOES_NOT_FIT.value, **lacking}


def _change_data(change: Change) -> dict[str, Any]:
    return {
        "arguments": [step.argument for step in change.steps],
        "tight": change.fit.tight,
        "gpus": change.question.parallelism.gpus,
    }
