"""Sizes every parallelism that holds the workload on given devices, and counts its replicas.

Algorithm. With `spec.replicas` R every replica has to hold its part of the concurrent requests,
ceil(concurrency / R) x (input + output) tokens, and at least one request of `maxModelLen`. Without
it a replica has to hold one request of `maxModelLen`; its further capacity determines the number of
replicas (`replicas.count_replicas`). Every legal parallelism is sized; the policy chooses the best.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.fit.batch import plan_batch
from tonnage.fit.legality.compatibility import (
    Compatibility,
    Incompatible,
    judge_compatibility,
)
from tonnage.fit.legality.parallelism import legal_degrees, legal_over_nodes
from tonnage.fit.messages import format_shortage
from tonnage.fit.model import (
    DoesNotFit,
    IllegalParallelism,
    MemoryFit,
    MemoryTerm,
    Parallelism,
)
from tonnage.fit.questions.question import FitQuestion
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments
from tonnage.placement.filters.screening import Devices
from tonnage.placement.load import FullReplica, Load
from tonnage.placement.messages import (
    format_illegal,
    format_links,
    format_node_link,
    format_overrides,
    format_partition_limit,
)
from tonnage.placement.model import Rejection
from tonnage.placement.oom_fallback.failed_starts import explain_adjustments, format_failed_starts
from tonnage.placement.oom_fallback.next_start import Start, next_start
from tonnage.placement.reasons import RejectedReason
from tonnage.placement.scoring.replicas import count_replicas, fill_replica
from tonnage.throughput.estimate import estimate_throughput
from tonnage.throughput.model import Demand, ThroughputEstimate

Starts = Sequence[tuple[Parallelism, Start | None]]
"""Each legal parallelism, and how its replicas start; None where no way is left to try."""

_DOES_NOT_FIT: Final = {
    MemoryTerm.WEIGHTS: RejectedReason.WEIGHTS_DO_NOT_FIT,
    MemoryTerm.KV_CACHE: RejectedReason.KV_CACHE_DOES_NOT_FIT,
}


@dataclass(frozen=True, slots=True)
class Size:
    """A parallelism that fits, the wanted replicas, and the estimate of one.

    `compatibility` is the result of the rules for the model on these devices, `notes` are remarks
    for the user. `adjustments` are engine settings that Tonnage chose. `needed` are the replicas
    that the measured load needs, not rounded.
    """

    parallelism: Parallelism
    fit: MemoryFit
    replicas: int
    estimate: ThroughputEstimate | None
    compatibility: Compatibility
    notes: tuple[str, ...] = ()
    adjustments: EngineAdjustments = UNADJUSTED
    full: FullReplica | None = None
    needed: Fraction | None = None


def size_replicas(load: Load, devices: Devices, catalog: Catalog) -> Sequence[Size] | Rejection:
    """Size every parallelism that holds the load, the fewest GPUs first: on one node's devices, and
    on several nodes."""
    compatibility = judge_compatibility(
        load.checkpoint, devices.accelerator, load.options, load.allow, catalog
    )
    if compatibility.refusals:
        return _reject_incompatible(compatibility.refusals[0])
    starts: list[tuple[Parallelism, Start | None]] = []
    sizes: list[Size] = []
    for parallelisms in _list_parallelisms(load, devices, catalog):
        if sizes and devices.prefers_one_node:
            break
        tried = _find_starts(load, devices, parallelisms, catalog)
        starts += tried
        sizes += [
            _size(load, devices, parallelism, start, start.verdict, compatibility, catalog)
            for parallelism, start in tried
            if start is not None and isinstance(start.verdict, MemoryFit)
        ]
    return sizes or _reject(load, devices, starts)


def _reject_incompatible(refusal: Incompatible) -> Rejection:
    reason = (
        RejectedReason.UNSUPPORTED_ARCHITECTURE
        if refusal.model_class
        else RejectedReason.INCOMPATIBLE
    )
    return Rejection(reason, f"{refusal.message} (rule {refusal.rule})")


def size_as_placed(
    load: Load,
    devices: Devices,
    placed: tuple[Parallelism, EngineAdjustments],
    tokens: int,
    catalog: Catalog,
) -> Size | None:
    """Size replicas that run and that `size_replicas` rejects. They were placed to hold so many
    `tokens`: None where the load requires more now, or where vLLM refuses the parallelism."""
    parallelism, adjustments = placed
    if required_tokens(load) > tokens:
        return None
    load = replace(load, kept=placed, tried=())
    start = next_start(_make_question(load, devices, parallelism), (), adjustments, catalog)
    if start is None or isinstance(start.verdict, IllegalParallelism):
        return None
    compatibility = judge_compatibility(
        load.checkpoint, devices.accelerator, load.options, load.allow, catalog
    )
    fit = start.verdict
    doubts = [refusal.message for refusal in compatibility.refusals]
    if isinstance(fit, DoesNotFit):
        doubts.append(format_shortage(fit, parallelism, required_tokens(load)))
        fit = MemoryFit(fit.account, required_tokens(load), tight=True)
    size = _size(load, devices, parallelism, start, fit, compatibility, catalog)
    doubt = f"stays as placed, though now calculated otherwise: {'; '.join(doubts)}"
    return replace(size, notes=(*size.notes, doubt))


def _make_question(load: Load, devices: Devices, parallelism: Parallelism) -> FitQuestion:
    return FitQuestion(
        load.checkpoint,
        devices.accelerator,
        devices.device_bytes,
        parallelism,
        load.options,
        required_tokens(load),
        load.corrections,
    )


def _list_parallelisms(
    load: Load, devices: Devices, catalog: Catalog
) -> Iterator[Sequence[Parallelism]]:
    """Return the legal parallelisms on one node, then those on several nodes."""
    release, shape = catalog.release(load.options.vllm_version), load.checkpoint.shape
    yield legal_degrees(shape, load.options, release, devices.most_per_node)
    yield legal_over_nodes(shape, load.options, release, devices.most_per_node, devices.max_nodes)


def _find_starts(
    load: Load, devices: Devices, parallelisms: Sequence[Parallelism], catalog: Catalog
) -> Starts:
    return [
        (
            parallelism,
            next_start(
                _make_question(load, devices, parallelism),
                load.tried,
                load.adjustments_now(parallelism),
                catalog,
            ),
        )
        for parallelism in sorted(parallelisms, key=lambda each: (each.gpus, each.pipeline))
    ]


def required_tokens(load: Load) -> int:
    """Return the tokens that one replica has to hold at once."""
    concurrency = load.share(load.replicas) if load.replicas else 1
    return max(load.workload.max_model_len, concurrency * load.request_tokens)


def _size(
    load: Load,
    devices: Devices,
    parallelism: Parallelism,
    start: Start,
    fit: MemoryFit,
    compatibility: Compatibility,
    catalog: Catalog,
) -> Size:
    load = replace(load, options=start.options)
    share = 1.0 if devices.partition is None else devices.partition.share

    def estimate(concurrency: int) -> ThroughputEstimate | None:
        demand = Demand(load.workload.input_tokens, load.workload.output_tokens, concurrency)
        return estimate_throughput(
            load.checkpoint,
            devices.accelerator,
            parallelism,
            load.options,
            fit.account,
            demand,
            catalog,
            share,
            devices.node_bytes_per_second,
        )

    scheduled = _max_num_seqs(load, devices, catalog)
    most_at_once = min(max(1, fit.account.kv_cache_tokens // load.request_tokens), scheduled)
    full = fill_replica(load, most_at_once, scheduled, estimate)
    replicas = count_replicas(load, most_at_once, estimate, full)
    notes = (
        replicas.note,
        catalog.release(load.options.vllm_version).note,
        load.checkpoint.shape.estimated,
        *format_overrides(compatibility),
        *compatibility.warnings,
        format_links(devices.accelerator, parallelism),
        format_node_link(parallelism, devices.node_bytes_per_second),
        explain_adjustments(start.adjustments),
    )
    return Size(
        parallelism=parallelism,
        fit=fit,
        replicas=replicas.count,
        needed=replicas.needed,
        estimate=replicas.estimate,
        compatibility=compatibility,
        notes=tuple(note for note in notes if note is not None),
        adjustments=start.adjustments,
        full=full,
    )


def _max_num_seqs(load: Load, devices: Devices, catalog: Catalog) -> int:
    """Return the number of requests that vLLM schedules at once."""
    release = catalog.release(load.options.vllm_version)
    accelerator, shape = devices.accelerator, load.checkpoint.shape
    batch = plan_batch(
        shape, load.options, Parallelism(), accelerator, devices.device_bytes, release
    )
    return batch.max_num_seqs


def _reject(load: Load, devices: Devices, starts: Starts) -> Rejection:
    """Return that all starts on these devices ran out of memory; else the shortage with the most
    GPUs, or that vLLM refuses every parallelism."""
    if any(start is None for _, start in starts):
        message = format_failed_starts(load.tried, devices.accelerator)
        return Rejection(RejectedReason.FAILED_BEFORE, message)
    limit = format_partition_limit(devices.accelerator, devices.partition)
    verdicts = [(parallelism, start.verdict) for parallelism, start in starts if start is not None]
    for parallelism, verdict in reversed(verdicts):
        if isinstance(verdict, DoesNotFit):
            reason = _DOES_NOT_FIT.get(verdict.term, RejectedReason.OVERHEAD_DOES_NOT_FIT)
            message = format_shortage(verdict, parallelism, required_tokens(load))
            if parallelism.gpus > 1:  # the most GPUs of all
                message = f"even {message}"
            return Rejection(reason, f"{message}{limit}", verdict)
    cause = next((each for _, each in verdicts if isinstance(each, IllegalParallelism)), None)
    message = format_illegal(load.checkpoint.shape, cause, devices.most_per_node)
    return Rejection(RejectedReason.ILLEGAL_PARALLELISM, f"{message}{limit}")
