"""Chooses the next start of a replica on given devices, after starts that ran out of memory.

Algorithm. The first start of a parallelism uses the engine's own settings. Further starts lower the
settings step by step, by a plan that depends on which request for memory failed (`plan`). The
next start is the first step that was not tried, that fits by the corrections from earlier starts,
and that frees at least the missing memory. Settings never go up, so no start repeats and the plan
ends; then only other devices are left.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tonnage.catalog.catalog import Catalog
from tonnage.fit.calibration.corrections import (
    MemoryCorrection,
    Origin,
)
from tonnage.fit.model import (
    EngineOptions,
    FitVerdict,
    IllegalParallelism,
    MemoryAccount,
    MemoryFit,
)
from tonnage.fit.questions.measured import key_of
from tonnage.fit.questions.question import FitQuestion, answer
from tonnage.placement.adjustments import (
    UNADJUSTED,
    EngineAdjustments,
    FailedStart,
    MemoryShortfall,
    ShortfallKind,
)
from tonnage.placement.oom_fallback.plan import load_oom_fallback_plan


@dataclass(frozen=True, slots=True)
class Start:
    """A way to start a replica: its adjustments, the resulting options, and whether it fits."""

    adjustments: EngineAdjustments
    options: EngineOptions
    verdict: FitVerdict


def next_start(
    question: FitQuestion,
    tried: Sequence[FailedStart],
    current: EngineAdjustments | None,
    catalog: Catalog,
) -> Start | None:
    """Return how to start the model of the question next, None when no way is left.

    `tried` are all starts of the object that ran out of memory, oldest first. `current` is what
    replicas of this parallelism run with, None where none runs: it is kept until it fails, too. A
    start that follows a failed one always fits.
    """
    failed = [start for start in tried if _is_evidence(start, question)]
    if len(tried) >= load_oom_fallback_plan().starts or len(failed) >= _max_starts(question, tried):
        return None
    if not failed:
        return _start(question, current or UNADJUSTED, catalog)
    failed_adjustments = {start.adjustments for start in failed}
    question = _with_corrections(question, failed, catalog)
    if current is not None and current not in failed_adjustments:
        return _start(question, current, catalog)
    for adjustments in _lower_settings(question, failed[-1], catalog):
        start = _start(question, adjustments, catalog)
        untried = adjustments not in failed_adjustments
        if untried and _suffices(question, start, failed[-1], catalog):
            return start
    return None


def _max_starts(question: FitQuestion, tried: Sequence[FailedStart]) -> int:
    """Return how often to start a parallelism; more often if it is the first on the accelerator."""
    plan, here = load_oom_fallback_plan(), (question.memory.name, question.accelerator.id)
    parallelisms = [one.parallelism for one in tried if one.is_of(*here)]
    first = not parallelisms or parallelisms[0] == question.parallelism
    return plan.starts_of_first_parallelism if first else plan.starts_of_further_parallelisms


def _is_evidence(tried: FailedStart, question: FitQuestion) -> bool:
    """Whether the start would fail here as well: on the same accelerator, without more memory."""
    return (
        tried.is_of(question.memory.name, question.accelerator.id)
        and tried.device_bytes >= question.device_bytes
        and tried.parallelism == question.parallelism
    )


def _lower_settings(
    question: FitQuestion, last: FailedStart, catalog: Catalog
) -> Iterator[EngineAdjustments]:
    """Generate settings below those of the last start that may help against its shortfall."""
    shortfall = last.shortfall
    if shortfall is None:
        return
    plan = load_oom_fallback_plan().engines.get(question.memory.name)
    if plan is None:
        return
    defaults = _engine_defaults(question, catalog)

    def is_accepted(settings: EngineAdjustments) -> bool:
        options = settings.applied_to(question.options)
        return question.memory.accepts_batch(replace(question, options=options), catalog)

    steps = (
        _share_of_free_memory(shortfall, question.device_bytes, defaults)
        if shortfall.kind is ShortfallKind.FREE_MEMORY
        else plan.steps(shortfall.kind, defaults, is_accepted)
    )
    for step in steps:
        lower = last.adjustments.minimum(step.difference(defaults))
        if lower != last.adjustments:
            yield lower


def _share_of_free_memory(
    shortfall: MemoryShortfall, device_bytes: int, defaults: EngineAdjustments
) -> Iterator[EngineAdjustments]:
    """Generate the share of the device that was free, in whole hundredths."""
    share = (shortfall.available_bytes or 0) * 100 // device_bytes / 100
    if share and defaults.gpu_memory_utilization and share < defaults.gpu_memory_utilization:
        yield replace(defaults, gpu_memory_utilization=share)


def _engine_defaults(question: FitQuestion, catalog: Catalog) -> EngineAdjustments:
    """Return the engine's own values of the settings that the user left open."""
    options, own = question.options, question.memory.own_settings(question, catalog)
    return EngineAdjustments(
        own.gpu_memory_utilization if options.gpu_memory_utilization is None else None,
        own.max_num_seqs if options.max_num_seqs is None else None,
        own.max_num_batched_tokens if options.max_num_batched_tokens is None else None,
    )


def _start(question: FitQuestion, adjustments: EngineAdjustments, catalog: Catalog) -> Start:
    options = adjustments.applied_to(question.options)
    return Start(adjustments, options, answer(replace(question, options=options), catalog))


def _suffices(question: FitQuestion, start: Start, last: FailedStart, catalog: Catalog) -> bool:
    """Whether the start fits, and frees the memory that the last one lacked."""
    if not isinstance(start.verdict, MemoryFit):
        return False
    shortfall = last.shortfall
    if shortfall is None or shortfall.kind is not ShortfallKind.ALLOCATION:
        return True  # a correction contains the shortage, or the share was computed from it
    before = _account(question, last.adjustments, catalog)
    freed = _freed_bytes(before, start.verdict.account) if before else 0
    return freed > 0 and freed >= shortfall.lacking_bytes


def _freed_bytes(before: MemoryAccount, after: MemoryAccount) -> int:
    """Return the peak memory in bytes that is freed. The log does not say when the peak was: in
    the profile run, or once the KV cache had filled the share."""
    profiling = before.activation_bytes - after.activation_bytes
    profiling += before.graph_bytes - after.graph_bytes
    return max(profiling, before.budget_bytes - after.budget_bytes)


def _with_corrections(
    question: FitQuestion, failed: Sequence[FailedStart], catalog: Catalog
) -> FitQuestion:
    """Return the question with a correction for the KV cache memory that each start lacked."""
    key = key_of(question, catalog)
    corrections = question.corrections
    for tried in failed:
        shortfall, account = tried.shortfall, _account(question, tried.adjustments, catalog)
        if account and shortfall and shortfall.kind is ShortfallKind.KV_CACHE:
            extra = account.correction_bytes + missed_kv_bytes(account, shortfall)
            corrections = corrections.with_correction(MemoryCorrection(key, extra, Origin.FAILURE))
    return replace(question, corrections=corrections)


def missed_kv_bytes(account: MemoryAccount, shortfall: MemoryShortfall) -> int:
    """Return the bytes by which the KV cache was smaller than planned, and its need larger."""
    missing_bytes = account.kv_cache_bytes - (shortfall.available_bytes or 0)
    return missing_bytes + max(0, (shortfall.needed_bytes or 0) - account.request_kv_bytes)


def _account(
    question: FitQuestion, adjustments: EngineAdjustments, catalog: Catalog
) -> MemoryAccount | None:
    verdict = _start(question, adjustments, catalog).verdict
    return None if isinstance(verdict, IllegalParallelism) else verdict.account
