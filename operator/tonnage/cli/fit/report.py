"""Makes the report of `tonnage fit`: the verdict, the limits of the layout, and next steps."""

from dataclasses import dataclass, replace
from typing import Any

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.rules import Settings
from tonnage.cli.fit.cost import ReplicaCost, compute_cost, cost_data
from tonnage.cli.fit.engine import (
    Engine,
    EngineChoice,
    engine_of,
    engine_version,
    fraction_of,
)
from tonnage.cli.fit.flags import Flags, Workload
from tonnage.cli.fit.judgement import Judgement, Outcome, judge_for_user
from tonnage.cli.fit.prediction import as_data
from tonnage.fit.model import DoesNotFit, FitVerdict, MemoryFit, Parallelism
from tonnage.fit.questions.adapters import smaller_with_targets
from tonnage.fit.questions.advice import Change, Setting, advise
from tonnage.fit.questions.limits import (
    concurrent_requests,
    context_limit_of,
    judge_degrees,
    longest_context,
    most_requests,
    smallest_fit,
)


@dataclass(frozen=True, slots=True)
class LayoutLimits:
    """What the memory of a layout can hold.

    `margin_bytes` is the memory of one GPU beyond the question, negative for a shortage, and
    `band_bytes` its uncertainty; `context_limit` is the longest context that the engine accepts
    (None: any). The KV cache holds `requests` of `max_model_len` or `typical` ones of the workload,
    of which the engine serves `max_num_seqs` at a time.
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
    else at the largest. `cost` is None if the model does not start. `choice` is set where several
    engines were judged.
    """

    flags: Flags
    judged: Judgement
    degrees: tuple[tuple[Parallelism, FitVerdict], ...]
    smallest: Parallelism | None
    limits: LayoutLimits | None
    changes: tuple[Change, ...]
    cost: ReplicaCost | None
    choice: EngineChoice | None = None

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
    if Setting.ADAPTER_TARGETS not in flags.chosen:
        judged = _with_note(judged, smaller_with_targets(flags.question, degrees, catalog))
    fits = judged.outcome is Outcome.FITS
    changes: tuple[Change, ...] = ()
    if not fits and engine_of(question) is Engine.VLLM:  # the advice is about vLLM's settings
        changes = advise(question, flags.chosen, flags.allow, flags.max_gpus, catalog)
    limits = _compute_limits(judged, flags.workload, catalog)
    max_num_seqs = limits.max_num_seqs if limits is not None else 1
    cost = compute_cost(judged, flags.workload, max_num_seqs, flags.nodes, catalog)
    return FitReport(flags, judged, degrees, smallest, limits, changes, cost)


def _with_note(judged: Judgement, note: str | None) -> Judgement:
    return judged if note is None else replace(judged, notes=(*judged.notes, note))


def report_data(report: FitReport) -> dict[str, Any]:
    """The report as JSON data; docs/fit.md describes it."""
    question, limits = report.judged.question, report.limits
    data = as_data(report.judged)
    data["accelerator"] = question.accelerator.id
    data |= _engine_data(report.judged)
    if report.choice is not None:
        data |= _choice_data(report.choice)
    data["tensorParallelSize"] = question.parallelism.tensor
    data["pipelineParallelSize"] = question.parallelism.pipeline
    data["dataParallelSize"] = question.parallelism.data
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


def _engine_data(judged: Judgement) -> dict[str, Any]:
    """The engine with its version; of SGLang also the share of the memory that it takes."""
    question = judged.question
    if engine_of(question) is Engine.VLLM:
        return {"vllmVersion": engine_version(question)}
    data: dict[str, Any] = {
        "engine": engine_of(question),
        "sglangVersion": engine_version(question),
    }
    static = None if judged.account is None else fraction_of(question)
    if static is not None:
        data["memFractionStatic"] = round(static.fraction, 6)
    return data


def _choice_data(choice: EngineChoice) -> dict[str, Any]:
    """The engine that is taken, null where none is, with the reason and the answer of each."""
    return {
        "engine": choice.taken,
        "engineReason": choice.reason,
        "engines": [
            {"engine": answer.engine, "fits": answer.fits, "reason": answer.message}
            for answer in choice.answers
        ],
    }


def _settings_data(settings: Settings) -> dict[str, Any]:
    """The settings that the server needs."""
    image = {"image": settings.image} if settings.image else {}
    return {"env": dict(settings.env), "args": list(settings.args), **image}


def _compute_limits(judged: Judgement, workload: Workload, catalog: Catalog) -> LayoutLimits | None:
    """The limits of the layout; None if it is refused."""
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
        context_limit=context_limit_of(question, catalog),
        max_num_seqs=most_requests(question, account, catalog),
        requests=concurrent_requests(question, account, longest_request, catalog),
        typical=typical,
    )


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
