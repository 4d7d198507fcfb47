"""Which splits of a replica hold the workload on given devices, and how many replicas of each.

Algorithm. With `spec.replicas` R every replica has to hold its share of the requests at once,
ceil(concurrency / R) x (input + output) tokens, and at least one request of `maxModelLen`. Without
it a replica has to hold one request of `maxModelLen`; what it holds beyond that decides how
many replicas there are (`replicas.count_replicas`). Every legal split is sized; which one is best
is the policy's question.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.fit.batch import plan_batch
from tonnage.fit.compatibility import Compatibility, judge_compatibility
from tonnage.fit.memory import judge_fit
from tonnage.fit.model import (
    DoesNotFit,
    FitVerdict,
    IllegalParallelism,
    MemoryFit,
    MemoryTerm,
    Parallelism,
)
from tonnage.fit.parallelism import legal_degrees
from tonnage.placement.load import Load
from tonnage.placement.messages import (
    tell_illegal,
    tell_links,
    tell_no_group,
    tell_rules,
    tell_shortage,
)
from tonnage.placement.model import Rejection
from tonnage.placement.reasons import RejectedReason
from tonnage.placement.replicas import count_replicas
from tonnage.placement.screening import Devices
from tonnage.throughput.estimate import estimate_throughput
from tonnage.throughput.model import Demand, ThroughputEstimate

Judged = Sequence[tuple[Parallelism, FitVerdict]]
"""Each legal split, and whether a replica of it fits."""

_DOES_NOT_FIT: Final = {
    MemoryTerm.WEIGHTS: RejectedReason.WEIGHTS_DO_NOT_FIT,
    MemoryTerm.KV_CACHE: RejectedReason.KV_CACHE_DOES_NOT_FIT,
}


@dataclass(frozen=True, slots=True)
class Size:
    """A split that fits, how many replicas of it are wanted, and how fast one of them is.

    `compatibility` is what the rules make of the model on these devices, `notes` are sentences on
    what the user should know of it, though nothing forbids it.
    """

    parallelism: Parallelism
    fit: MemoryFit
    replicas: int
    estimate: ThroughputEstimate | None
    compatibility: Compatibility
    notes: tuple[str, ...] = ()


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
        _size(load, devices, parallelism, verdict, compatibility, catalog)
        for parallelism, verdict in judged
        if isinstance(verdict, MemoryFit)
    ]
    return sizes or _reject(load, devices, judged)


def _judge_splits(load: Load, devices: Devices, catalog: Catalog) -> Judged:
    release, required = catalog.release(load.options.vllm_version), required_tokens(load)
    shape = load.checkpoint.shape
    degrees = legal_degrees(shape, load.options, release, devices.most_per_replica)
    return [
        (
            parallelism,
            judge_fit(
                load.checkpoint,
                devices.accelerator,
                devices.device_bytes,
                parallelism,
                load.options,
                required,
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
    fit: MemoryFit,
    compatibility: Compatibility,
    catalog: Catalog,
) -> Size:
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

    replicas = count_replicas(load, _most_at_once(load, devices, fit, catalog), estimate)
    notes = (
        replicas.note,
        catalog.release(load.options.vllm_version).note,
        load.checkpoint.shape.estimated,
        *tell_rules(compatibility),
        *compatibility.warnings,
        tell_links(devices.accelerator, parallelism),
    )
    return Size(
        parallelism=parallelism,
        fit=fit,
        replicas=replicas.count,
        estimate=replicas.estimate,
        compatibility=compatibility,
        notes=tuple(note for note in notes if note is not None),
    )


def _most_at_once(load: Load, devices: Devices, fit: MemoryFit, catalog: Catalog) -> int:
    """Typical requests that a replica holds at once: as its KV cache has room for them, and as vLLM
    schedules them."""
    release = catalog.release(load.options.vllm_version)
    on, shape = devices.accelerator, load.checkpoint.shape
    batch = plan_batch(shape, load.options, Parallelism(), on, devices.device_bytes, release)
    held = max(1, fit.account.kv_cache_tokens // load.request_tokens)
    return min(held, batch.max_num_seqs)


def _reject(load: Load, devices: Devices, judged: Judged) -> Rejection:
    """What the split over the most GPUs lacks, or that vLLM refuses every one."""
    alone = tell_no_group(devices.accelerator, devices.partition)
    for parallelism, verdict in reversed(judged):
        if isinstance(verdict, DoesNotFit):
            reason = _DOES_NOT_FIT.get(verdict.term, RejectedReason.OVERHEAD_DOES_NOT_FIT)
            told = tell_shortage(verdict, parallelism, required_tokens(load))
            if parallelism.gpus > 1:  # it is the largest that was judged
                told = f"even {told}"
            return Rejection(reason, f"{told}{alone}", verdict)
    why = next((found for _, found in judged if isinstance(found, IllegalParallelism)), None)
    told = tell_illegal(load.checkpoint.shape, why, devices.most_per_replica)
    return Rejection(RejectedReason.ILLEGAL_PARALLELISM, f"{told}{alone}")
