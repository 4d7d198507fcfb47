"""Which splits of a replica hold the workload on given devices, and how many replicas of each.

Algorithm. With `spec.replicas` R every replica has to hold its share of the requests at once,
ceil(concurrency / R) x (input + output) tokens, and at least one request of `maxModelLen`. Without
it a replica has to hold one request of `maxModelLen`; what it holds beyond that decides how
many replicas there are (`replicas.count_replicas`). Every legal split is sized; which one is best
is the policy's question.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.fit.batch import plan_batch
from tonnage.fit.compatibility import Compatibility, judge_compatibility
from tonnage.fit.model import (
    DoesNotFit,
    IllegalParallelism,
    MemoryFit,
    MemoryTerm,
    Parallelism,
)
from tonnage.fit.parallelism import legal_degrees
from tonnage.fit.question import FitQuestion
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments
from tonnage.placement.history import tell_adjustments, tell_tried
from tonnage.placement.load import FullReplica, Load
from tonnage.placement.messages import (
    tell_illegal,
    tell_links,
    tell_no_group,
    tell_rules,
    tell_shortage,
)
from tonnage.placement.model import Rejection
from tonnage.placement.next_start import Start, next_start
from tonnage.placement.reasons import RejectedReason
from tonnage.placement.replicas import count_replicas, fill_replica
from tonnage.placement.screening import Devices
from tonnage.throughput.estimate import estimate_throughput
from tonnage.throughput.model import Demand, ThroughputEstimate

Judged = Sequence[tuple[Parallelism, Start | None]]
"""Each legal split, and how a replica of it is started; None where nothing is left to try."""

_DOES_NOT_FIT: Final = {
    MemoryTerm.WEIGHTS: RejectedReason.WEIGHTS_DO_NOT_FIT,
    MemoryTerm.KV_CACHE: RejectedReason.KV_CACHE_DOES_NOT_FIT,
}


@dataclass(frozen=True, slots=True)
class Size:
    """A split that fits, how many replicas of it are wanted, and how fast one of them is.

    `compatibility` is what the rules make of the model on these devices, `notes` are sentences on
    what the user should know of it, though nothing forbids it. `adjustments` are what Tonnage sets
    of the engine. `needed` are the replicas that the measured load needs, not rounded.
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
    """All splits over the devices of one node that hold the load, fewest GPUs first."""
    compatibility = judge_compatibility(
        load.checkpoint, devices.accelerator, load.options, load.allow, catalog
    )
    if compatibility.refusals:
        first = compatibility.refusals[0]
        return Rejection(RejectedReason.INCOMPATIBLE, f"{first.message} (rule {first.rule})")
    judged = _judge_splits(load, devices, catalog)
    sizes = [
        _size(load, devices, parallelism, start, start.verdict, compatibility, catalog)
        for parallelism, start in judged
        if start is not None and isinstance(start.verdict, MemoryFit)
    ]
    return sizes or _reject(load, devices, judged)


def _judge_splits(load: Load, devices: Devices, catalog: Catalog) -> Judged:
    release, required = catalog.release(load.options.vllm_version), required_tokens(load)
    shape = load.checkpoint.shape
    degrees = legal_degrees(shape, load.options, release, devices.most_per_replica)
    return [
        (
            parallelism,
            next_start(
                FitQuestion(
                    load.checkpoint,
                    devices.accelerator,
                    devices.device_bytes,
                    parallelism,
                    load.options,
                    required,
                    load.corrections,
                ),
                load.tried,
                load.adjustments_now(parallelism),
                catalog,
            ),
        )
        for parallelism in sorted(degrees, key=lambda degree: (degree.gpus, degree.pipeline))
    ]


def required_tokens(load: Load) -> int:
    """Tokens that one replica has to hold at once."""
    at_once = load.share(load.replicas) if load.replicas else 1
    return max(load.workload.max_model_len, at_once * load.request_tokens)


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

    def estimate(at_once: int) -> ThroughputEstimate | None:
        demand = Demand(load.workload.input_tokens, load.workload.output_tokens, at_once)
        return estimate_throughput(
            load.checkpoint,
            devices.accelerator,
            parallelism,
            load.options,
            fit.account,
            demand,
            catalog,
            share,
        )

    scheduled = _max_num_seqs(load, devices, catalog)
    most_at_once = min(max(1, fit.account.kv_cache_tokens // load.request_tokens), scheduled)
    full = fill_replica(load, most_at_once, scheduled, estimate)
    replicas = count_replicas(load, most_at_once, estimate, full)
    notes = (
        replicas.note,
        catalog.release(load.options.vllm_version).note,
        load.checkpoint.shape.estimated,
        *tell_rules(compatibility),
        *compatibility.warnings,
        tell_links(devices.accelerator, parallelism),
        tell_adjustments(start.adjustments),
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
    """Requests that vLLM schedules at once."""
    release = catalog.release(load.options.vllm_version)
    on, shape = devices.accelerator, load.checkpoint.shape
    batch = plan_batch(shape, load.options, Parallelism(), on, devices.device_bytes, release)
    return batch.max_num_seqs


def _reject(load: Load, devices: Devices, judged: Judged) -> Rejection:
    """That starts on these devices died of memory and none is left; else what the split over the
    most GPUs lacks, or that vLLM refuses every one."""
    if any(start is None for _, start in judged):
        told = tell_tried(load.tried, devices.accelerator)
        return Rejection(RejectedReason.FAILED_BEFORE, told)
    alone = tell_no_group(devices.accelerator, devices.partition)
    verdicts = [(split, start.verdict) for split, start in judged if start is not None]
    for parallelism, verdict in reversed(verdicts):
        if isinstance(verdict, DoesNotFit):
            reason = _DOES_NOT_FIT.get(verdict.term, RejectedReason.OVERHEAD_DOES_NOT_FIT)
            told = tell_shortage(verdict, parallelism, required_tokens(load))
            if parallelism.gpus > 1:  # it is the largest that was judged
                told = f"even {told}"
            return Rejection(reason, f"{told}{alone}", verdict)
    why = next((found for _, found in verdicts if isinstance(found, IllegalParallelism)), None)
    told = tell_illegal(load.checkpoint.shape, why, devices.most_per_replica)
    return Rejection(RejectedReason.ILLEGAL_PARALLELISM, f"{told}{alone}")
