"""Sizes every parallelism that holds the workload on given devices, and counts its replicas.

Algorithm. With `spec.replicas` R every replica has to hold its part of the concurrent requests,
ceil(concurrency / R) x (input + output) tokens, and at least one request of `maxModelLen`. Without
it a replica has to hold one request of `maxModelLen`; its further capacity determines the number of
replicas (`replicas.count_replicas`). Every legal parallelism is sized; the policy chooses the best.
Each data-parallel rank has a KV cache of its own and holds an equal part of the replica's requests.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.fit.legality.compatibility import Compatibility, Incompatible
from tonnage.fit.messages import format_shortage
from tonnage.fit.model import (
    DoesNotFit,
    IllegalParallelism,
    MemoryFit,
    MemoryTerm,
    Parallelism,
)
from tonnage.fit.questions.question import FitQuestion, NodeLimits
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
    compatibility = _judge_compatibility(load, devices, catalog)
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
    `tokens`: None where the load requires more now, or where the engine refuses the
    parallelism."""
    parallelism, adjustments = placed
    required = required_tokens(load, parallelism)
    if required > tokens:
        return None
    load = replace(load, kept=placed, tried=())
    start = next_start(_make_question(load, devices, parallelism), (), adjustments, catalog)
    if start is None or isinstance(start.verdict, IllegalParallelism):
        return None
    compatibility = _judge_compatibility(load, devices, catalog)
    fit = start.verdict
    doubts = [refusal.message for refusal in compatibility.refusals]
    if isinstance(fit, DoesNotFit):
        doubts.append(format_shortage(fit, parallelism, required))
        fit = MemoryFit(fit.account, required, tight=True)
    size = _size(load, devices, parallelism, start, fit, compatibility, catalog)
    doubt = f"stays as placed, though now calculated otherwise: {'; '.join(doubts)}"
    return replace(size, notes=(*size.notes, doubt))


def _judge_compatibility(load: Load, devices: Devices, catalog: Catalog) -> Compatibility:
    question = _make_question(load, devices, Parallelism())
    return load.memory.judge_compatibility(question, load.allow, catalog)


def _make_question(load: Load, devices: Devices, parallelism: Parallelism) -> FitQuestion:
    return FitQuestion(
        load.checkpoint,
        devices.accelerator,
        devices.device_bytes,
        parallelism,
        load.options_for(parallelism),
        required_tokens(load, parallelism),
        load.corrections,
        memory=load.memory,
    )


def _list_parallelisms(
    load: Load, devices: Devices, catalog: Catalog
) -> Iterator[Sequence[Parallelism]]:
    """Return the legal parallelisms on one node, then those on several nodes."""
    limits, shape = _node_limits(devices), load.checkpoint.shape
    yield from load.memory.list_parallelisms(shape, load.options, limits, catalog)


def _node_limits(devices: Devices) -> NodeLimits:
    return NodeLimits(
        devices.most_per_node,
        devices.max_nodes,
        devices.has_interconnect,
        devices.data_parallel,
        devices.tensor_over_nodes,
    )


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
        for parallelism in sorted(
            parallelisms, key=lambda each: (each.gpus, -each.data, each.pipeline)
        )
    ]


def required_tokens(load: Load, parallelism: Parallelism) -> int:
    """Return the tokens that each data-parallel rank of one replica has to hold at once."""
    concurrency = -(-load.share(load.replicas) // parallelism.data) if load.replicas else 1
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
        if not load.memory.has_speed:
            return None
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

    question = _make_question(load, devices, Parallelism())
    scheduled = load.memory.most_requests(question, fit.account, catalog)
    ranks = parallelism.data
    of_rank = min(max(1, fit.account.kv_cache_tokens // load.request_tokens), scheduled)
    most_at_once = ranks * of_rank
    full = fill_replica(load, most_at_once, ranks * scheduled, estimate)
    replicas = count_replicas(load, most_at_once, estimate, full)
    notes = (
        replicas.note,
        load.memory.release_note(load.options, catalog),
        load.checkpoint.shape.estimated,
        *format_overrides(compatibility),
        *compatibility.warnings,
        format_links(devices.accelerator, parallelism),
        format_node_link(parallelism, devices.node_bytes_per_second),
        explain_adjustments(start.adjustments, load.memory),
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


def _reject(load: Load, devices: Devices, starts: Starts) -> Rejection:
    """Return that all starts on these devices ran out of memory; else the shortage with the most
    GPUs, or that the engine refuses every parallelism."""
    if any(start is None for _, start in starts):
        message = format_failed_starts(load.tried, devices.accelerator, load.memory)
        return Rejection(RejectedReason.FAILED_BEFORE, message)
    one_node = load.memory.explain_one_node(
        load.checkpoint.shape, load.options, _node_limits(devices)
    )
    limit = format_partition_limit(devices.accelerator, devices.partition)
    limit += f"; {one_node}" if one_node else ""
    verdicts = [(parallelism, start.verdict) for parallelism, start in starts if start is not None]
    for parallelism, verdict in reversed(verdicts):
        if isinstance(verdict, DoesNotFit):
            reason = _DOES_NOT_FIT.get(verdict.term, RejectedReason.OVERHEAD_DOES_NOT_FIT)
            message = format_shortage(verdict, parallelism, required_tokens(load, parallelism))
            if parallelism.gpus > 1:  # the most GPUs of all
                message = f"even {message}"
            return Rejection(reason, f"{message}{limit}", verdict)
    cause = next((each for _, each in verdicts if isinstance(each, IllegalParallelism)), None)
    message = format_illegal(load.checkpoint.shape, cause, devices.most_per_node)
    return Rejection(RejectedReason.ILLEGAL_PARALLELISM, f"{message}{limit}")
