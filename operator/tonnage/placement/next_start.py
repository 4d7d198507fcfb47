"""How a replica is started next on given devices, after starts of it that died of memory.

Algorithm. As long as a split was not tried, it is started as vLLM is by itself. After that its
settings go down a ladder that depends on what memory did not suffice for (`ladder`), from rung to
rung: the first one is taken that was not tried, that fits by all that the starts before have
taught, and that frees at least what lacked. Settings only ever go down, so no start comes twice and
the ladder ends; then only other devices are left.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.engine import EngineRelease
from tonnage.fit.batch import plan_batch, whole_prompt_tokens
from tonnage.fit.corrections import MemoryCorrection, Origin, correction_key, served_model
from tonnage.fit.model import (
    EngineOptions,
    FitVerdict,
    IllegalParallelism,
    MemoryAccount,
    MemoryFit,
)
from tonnage.fit.question import FitQuestion, answer
from tonnage.placement.adjustments import (
    UNADJUSTED,
    EngineAdjustments,
    MemoryShortfall,
    ShortfallKind,
    Tried,
)
from tonnage.placement.ladder import load_ladder


@dataclass(frozen=True, slots=True)
class Start:
    """A way to start a replica: with which adjustments, as which options, and whether it fits."""

    adjustments: EngineAdjustments
    options: EngineOptions
    verdict: FitVerdict


def next_start(
    question: FitQuestion,
    tried: Sequence[Tried],
    now: EngineAdjustments | None,
    catalog: Catalog,
) -> Start | None:
    """How to start what the question asks about, None when every way that is left was tried.

    `tried` are all starts of the object that died of memory, oldest first. `now` is what replicas
    of this split run with, None where none does: that stays until it died, too. The verdict of a
    start that follows another is always that it fits.
    """
    before = [one for one in tried if _concerns(one, question)]
    if len(tried) >= load_ladder().starts or len(before) >= _most_starts(question, tried):
        return None
    if not before:
        return _start(question, now or UNADJUSTED, catalog)
    known = {one.adjustments for one in before}
    question = _with_lessons(question, before, catalog)
    if now is not None and now not in known:
        return _start(question, now, catalog)
    for adjustments in _lower_settings(question, before[-1], catalog):
        start = _start(question, adjustments, catalog)
        if adjustments not in known and _suffices(question, start, before[-1], catalog):
            return start
    return None


def _most_starts(question: FitQuestion, tried: Sequence[Tried]) -> int:
    """How often the split is started, by whether it is the first one on such devices."""
    ladder, device = load_ladder(), question.accelerator.id
    splits = [one.parallelism for one in tried if one.accelerator_id == device]
    first = not splits or splits[0] == question.parallelism
    return ladder.starts_of_first_split if first else ladder.starts_of_further_splits


def _concerns(tried: Tried, question: FitQuestion) -> bool:
    """What died on a device dies on a smaller one of the kind as well."""
    return (
        tried.accelerator_id == question.accelerator.id
        and tried.device_bytes >= question.device_bytes
        and tried.parallelism == question.parallelism
    )


def _lower_settings(
    question: FitQuestion, last: Tried, catalog: Catalog
) -> Iterator[EngineAdjustments]:
    """All settings below those of the last start that may help against what it lacked."""
    shortfall = last.shortfall
    if shortfall is None:
        return
    top = _open_settings(question, catalog.release(question.options.vllm_version))

    def is_accepted(settings: EngineAdjustments) -> bool:
        return _takes(question, settings.applied_to(question.options), catalog)

    rungs = (
        _share_that_is_free(shortfall, question.device_bytes, top)
        if shortfall.kind is ShortfallKind.FREE_MEMORY
        else load_ladder().rungs(shortfall.kind, top, is_accepted)
    )
    for rung in rungs:
        lower = last.adjustments.lowered_to(rung.apart_from(top))
        if lower != last.adjustments:
            yield lower


def _share_that_is_free(
    shortfall: MemoryShortfall, device_bytes: int, top: EngineAdjustments
) -> Iterator[EngineAdjustments]:
    """vLLM's share of the device as large as what was free, in whole hundredths."""
    share = (shortfall.available_bytes or 0) * 100 // device_bytes / 100
    if share and top.gpu_memory_utilization and share < top.gpu_memory_utilization:
        yield replace(top, gpu_memory_utilization=share)


def _open_settings(question: FitQuestion, release: EngineRelease) -> EngineAdjustments:
    """The values that vLLM takes by itself for what the user left open."""
    options = question.options
    batch = plan_batch(
        question.checkpoint.shape,
        options,
        question.parallelism,
        question.accelerator,
        question.device_bytes,
        release,
    )
    tokens, seqs = batch.max_num_batched_tokens, batch.max_num_seqs
    return EngineAdjustments(
        release.gpu_memory_utilization if options.gpu_memory_utilization is None else None,
        seqs if options.max_num_seqs is None else None,
        tokens if options.max_num_batched_tokens is None else None,
    )


def _start(question: FitQuestion, adjustments: EngineAdjustments, catalog: Catalog) -> Start:
    options = adjustments.applied_to(question.options)
    return Start(adjustments, options, answer(replace(question, options=options), catalog))


def _suffices(question: FitQuestion, start: Start, last: Tried, catalog: Catalog) -> bool:
    """Whether the start fits, and frees what the last one lacked."""
    if not isinstance(start.verdict, MemoryFit):
        return False
    shortfall = last.shortfall
    if shortfall is None or shortfall.kind is not ShortfallKind.ALLOCATION:
        return True  # What lacked was learnt, or is what the share follows from.
    before = _account(question, last.adjustments, catalog)
    freed = _freed_bytes(before, start.verdict.account) if before else 0
    return freed > 0 and freed >= shortfall.lacking_bytes


def _freed_bytes(before: MemoryAccount, after: MemoryAccount) -> int:
    """What the device has more left at its fullest. vLLM's words do not say when that was: in the
    profile run, or once the KV cache had filled the share."""
    profiling = before.activation_bytes - after.activation_bytes
    profiling += before.graph_bytes - after.graph_bytes
    return max(profiling, before.budget_bytes - after.budget_bytes)


def _takes(question: FitQuestion, options: EngineOptions, catalog: Catalog) -> bool:
    """Whether vLLM starts with such a batch (vllm/config/scheduler.py verify_max_model_len)."""
    release = catalog.release(options.vllm_version)
    shape, on = question.checkpoint.shape, question.accelerator
    batch = plan_batch(shape, options, question.parallelism, on, question.device_bytes, release)
    seqs = options.max_num_seqs or batch.max_num_seqs
    least = max(seqs, whole_prompt_tokens(shape, options, on, release))
    return batch.max_num_batched_tokens >= least


def _with_lessons(question: FitQuestion, before: Sequence[Tried], catalog: Catalog) -> FitQuestion:
    """The question, with the memory that each start lacked for its KV cache counted from now on."""
    release = catalog.release(question.options.vllm_version)
    served = served_model(question.checkpoint.shape, question.options, release)
    key = correction_key(served, question.accelerator, question.parallelism)
    corrections = question.corrections
    for tried in before:
        shortfall, account = tried.shortfall, _account(question, tried.adjustments, catalog)
        if account and shortfall and shortfall.kind is ShortfallKind.KV_CACHE:
            extra = account.correction_bytes + missed_kv_bytes(account, shortfall)
            corrections = corrections.learn(MemoryCorrection(key, extra, Origin.FAILURE))
    return replace(question, corrections=corrections)


def missed_kv_bytes(account: MemoryAccount, shortfall: MemoryShortfall) -> int:
    """How far the KV cache was from what had been counted on, or the need for it was."""
    less = account.kv_cache_bytes - (shortfall.available_bytes or 0)
    return less + max(0, (shortfall.needed_bytes or 0) - account.request_kv_bytes)


def _account(
    question: FitQuestion, adjustments: EngineAdjustments, catalog: Catalog
) -> MemoryAccount | None:
    verdict = _start(question, adjustments, catalog).verdict
    return None if isinstance(verdict, IllegalParallelism) else verdict.account
