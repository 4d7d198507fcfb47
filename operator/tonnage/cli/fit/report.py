"""Makes the report of `tonnage fit`: the verdict, the limits of the layout, and next steps."""

from dataclasses import dataclass, replace
from typing import Any

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.rules import Settings
from tonnage.cli.fit.cost import ReplicaCost, compute_cost, cost_data
from tonnage.cli.fit.flags import Flags, Workload
from tonnage.cli.fit.judgement import Judgement, Outcome, judge_for_user
from tonnage.cli.fit.prediction import as_data
from tonnage.fit.context import context_limit
from tonnage.fit.model import DoesNotFit, FitVerdict, MemoryFit, Parallelism
from tonnage.fit.questions.advice import Change, Setting, advise
from tonnage.fit.questions.limits import (
    batch_of,
    concurrent_requests,
    judge_degrees,
    longest_context,
    smallest_fit,
)
from tonnage.fit.questions.question import FitQuestion


@dataclass(frozen=True, slots=True)
class LayoutLimits:
    """What the memory of a layout can hold.

    `margin_bytes` is the memory of one GPU beyond the question, negative for a shortage, and
    `band_bytes` its uncertainty; `context_limit` is the longest context that vLLM accepts (None:
    any). The KV cache holds `requests` of `max_model_len` or `typical` ones of the workload, of
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
    """The answer; `degrees` (by tensor-parallel size) is empty if the user chose one.

    `judged` is the question at the size that the user chose, else at the smallest one that fits,
    else at the largest. `cost` is None if the model does not start.
    """

    flags: Flags
    judged: Judgement
    degrees: tuple[tuple[Parallelism, FitVerdict], ...]
    smallest: Parallelism | None
    limits: LayoutLimits | None
    changes: tuple[Change, ...]
    cost: ReplicaCost | None

    @property
    def outcome(self) -> Outcome:
        """The outcome of the judgement."""
        return self.judged.outcome

    @property
    def notes(self) -> tuple[str, ...]:
        """Further hints for the user."""
        return (*self.flags.notes, *self.judged.notes)


def make_report(flags: Flags, catalog: Catalog) -> FitReport:
    """Judge the question, at every legal size if the user chose none, and advise changes."""
    question = flags.question
    degrees: tuple[tuple[Parallelism, FitVerdict], ...] = ()
    smallest = None
    if Setting.SPLIT not in flags.chosen:
        degrees = judge_degrees(question, flags.max_gpus, catalog)
        smallest = smallest_fit(degrees)
        largest = degrees[-1][0] if degrees else question.parallelism
        question = replace(question, parallelism=smallest or largest)
    judged = judge_for_user(question, flags.allow, catalog)
    fits = judged.outcome is Outcome.FITS
    changes = () if fits else advise(question, flags.chosen, flags.allow, flags.max_gpus, catalog)
    limits = _compute_limits(judged, flags.workload, catalog)
    max_num_seqs = limits.max_num_seqs if limits is not None else 1
    cost = compute_cost(judged, flags.workload, max_num_seqs, flags.nodes, catalog)
    return FitReport(flags, judged, degrees, smallest, limits, changes, cost)


def report_data(report: FitReport) -> dict[str, Any]:
    """The report as JSON data; docs/fit.md describes it."""
    question, limits = report.judged.question, report.limits
    data = as_data(report.judged)
    data["accelerator"] = question.accelerator.id
    data["vllmVersion"] = question.options.vllm_version
    data["tensorParallelSize"] = question.parallelism.tensor
    data["pipelineParallelSize"] = question.parallelism.pipeline
    data["nodesPerReplica"] = report.flags.nodes
    data["maxModelLen"] = question.options.max_model_len
    if limits is not None:
        data["longestContext"] = limits.longest_context
        data["concurrentRequests"] = min(limits.requests, limits.max_num_seqs)
        if limits.typical is not None:
            data["concurrentTypicalRequests"] = min(limits.typical, limits.max_num_seqs)
    if report.degrees:
        data["degrees"] = [
            {"tensorParallelSize": parallelism.tensor, **_verdict_data(verdict)}
            for parallelism, verdict in report.degrees
        ]
    if report.cost is not None:
        data |= cost_data(report.cost)
    data["nextSteps"] = [_change_data(change) for change in report.changes]
    data["settings"] = _settings_data(report.judged.settings)
    data["notes"] = list(report.notes)
    return data


def _settings_data(settings: Settings) -> dict[str, Any]:
    """The settings that the server needs."""
    image = {"image": settings.image} if settings.image else {}
    return {"env": dict(settings.env), "args": list(settings.args), **image}


def _compute_limits(judged: Judgement, workload: Workload, catalog: Catalog) -> LayoutLimits | None:
    """The limits of the layout; None if vLLM refuses it."""
    question, account = judged.question, judged.account
    if account is None:
        return None
    longest_request = question.options.max_model_len
    typical = (
        None
        if not workload.stated
        else concurrent_requests(question, account, workload.request_tokens, catalog)
    )
    return LayoutLimits(
        margin_bytes=account.margin_bytes,
        band_bytes=account.band_bytes,
        longest_context=longest_context(question, catalog),
        context_limit=_context_limit(question, catalog),
        max_num_seqs=batch_of(question, catalog).max_num_seqs,
        requests=concurrent_requests(question, account, longest_request, catalog),
        typical=typical,
    )


def _context_limit(question: FitQuestion, catalog: Catalog) -> int | None:
    shape, options = question.checkpoint.shape, question.options
    return context_limit(shape, options, catalog.release(options.vllm_version))


def _verdict_data(verdict: FitVerdict) -> dict[str, Any]:
    if isinstance(verdict, MemoryFit):
        return {"verdict": Outcome.FITS.value, "tight": verdict.tight}
    lacking = {"lacking": verdict.term.value} if isinstance(verdict, DoesNotFit) else {}
    return {"verdict": Outcome.DOES_NOT_FIT.value, **lacking}


def _change_data(change: Change) -> dict[str, Any]:
    return {
        "arguments": [step.argument for step in change.steps],
        "tight": change.fit.tight,
        "gpus": change.question.parallelism.gpus,
    }
