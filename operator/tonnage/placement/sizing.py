"""How many replicas of which split the workload needs on given devices.

Algorithm. With `spec.replicas` R every replica has to hold its share of the requests at once,
ceil(concurrency / R) x (input + output) tokens, and at least one request of `maxModelLen`. Without
it a replica has to hold one request of `maxModelLen`; what it holds beyond that decides how many
replicas hold all requests. Every legal split is sized; which one is best is the policy's question.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec, Workload
from tonnage.catalog.catalog import Catalog
from tonnage.fit.compatibility import Compatibility, judge_compatibility
from tonnage.fit.memory import judge_fit
from tonnage.fit.model import (
    DoesNotFit,
    EngineOptions,
    FitVerdict,
    IllegalParallelism,
    MemoryFit,
    MemoryTerm,
    Parallelism,
)
from tonnage.fit.parallelism import legal_degrees
from tonnage.placement.messages import tell_illegal, tell_links, tell_rules, tell_shortage
from tonnage.placement.model import Request
from tonnage.placement.reasons import RejectedReason
from tonnage.placement.screening import Devices, Rejection
from tonnage.throughput.estimate import estimate_throughput
from tonnage.throughput.model import Demand, ThroughputEstimate

MAX_REPLICAS: Final = 64
"""Most replicas that a workload gets by itself; more is a decision for `spec.replicas`."""


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


def size_replicas(
    request: Request, devices: Devices, options: EngineOptions, catalog: Catalog
) -> Sequence[Size] | Rejection:
    """All splits over the devices of one node that hold the workload, fewest GPUs first."""
    compatibility = judge_compatibility(
        request.checkpoint, devices.accelerator, options, request.spec.placement.allow, catalog
    )
    if compatibility.refusals:
        first = compatibility.refusals[0]
        return Rejection(RejectedReason.INCOMPATIBLE, f"{first.message} (rule {first.rule})")
    judged = list(_judge_splits(request, devices, options, catalog))
    sizes = [
        _size(request, devices, parallelism, verdict, options, compatibility, catalog)
        for parallelism, verdict in judged
        if isinstance(verdict, MemoryFit)
    ]
    return sizes or _reject(request, devices, judged)


def _judge_splits(
    request: Request, devices: Devices, options: EngineOptions, catalog: Catalog
) -> Iterator[tuple[Parallelism, FitVerdict]]:
    required = required_tokens(request.spec)
    release = catalog.release(options.vllm_version)
    degrees = legal_degrees(request.checkpoint.shape, options, release, devices.largest_node)
    for parallelism in sorted(degrees, key=lambda degree: (degree.gpus, degree.pipeline)):
        yield (
            parallelism,
            judge_fit(
                request.checkpoint,
                devices.accelerator,
                devices.device_bytes,
                parallelism,
                options,
                required,
                catalog,
            ),
        )


def _size(
    request: Request,
    devices: Devices,
    parallelism: Parallelism,
    fit: MemoryFit,
    options: EngineOptions,
    compatibility: Compatibility,
    catalog: Catalog,
) -> Size:
    workload, replicas = request.spec.workload, wanted_replicas(request.spec, fit)
    share = -(-workload.concurrency // max(1, replicas))
    demand = Demand(workload.input_tokens, workload.output_tokens, share)
    estimate = estimate_throughput(
        request.checkpoint, devices.accelerator, parallelism, options, fit.account, demand, catalog
    )
    doubts = (catalog.release(options.vllm_version).note, request.checkpoint.shape.estimated)
    links = tell_links(devices.accelerator, parallelism)
    return Size(
        parallelism=parallelism,
        fit=fit,
        replicas=replicas,
        estimate=estimate,
        compatibility=compatibility,
        notes=tuple(
            note
            for note in (*doubts, *tell_rules(compatibility), *compatibility.warnings, links)
            if note is not None
        ),
    )


def _reject(
    request: Request, devices: Devices, judged: Sequence[tuple[Parallelism, FitVerdict]]
) -> Rejection:
    """What the split over the most GPUs lacks, or that vLLM refuses every one."""
    for parallelism, verdict in reversed(judged):
        if isinstance(verdict, DoesNotFit):
            reason = _DOES_NOT_FIT.get(verdict.term, RejectedReason.OVERHEAD_DOES_NOT_FIT)
            even = "even " if parallelism.gpus > 1 else ""  # it is the largest that was judged
            told = even + tell_shortage(verdict, parallelism, required_tokens(request.spec))
            return Rejection(reason, told, verdict)
    why = next((found for _, found in judged if isinstance(found, IllegalParallelism)), None)
    told = tell_illegal(request.checkpoint.shape, why, devices.largest_node)
    return Rejection(RejectedReason.ILLEGAL_PARALLELISM, told)


def required_tokens(spec: InferenceDeploymentSpec) -> int:
    """Tokens that one replica has to hold at once."""
    at_once = 1
    if spec.replicas:
        at_once = -(-spec.workload.concurrency // spec.replicas)
    return max(spec.workload.max_model_len, at_once * _request_tokens(spec.workload))


def wanted_replicas(spec: InferenceDeploymentSpec, fit: MemoryFit) -> int:
    """`spec.replicas`, else as many as hold all requests of the workload at once."""
    if spec.replicas is not None:
        return spec.replicas
    held = max(1, fit.account.kv_cache_tokens // _request_tokens(spec.workload))
    return min(MAX_REPLICAS, -(-spec.workload.concurrency // held))


def _request_tokens(workload: Workload) -> int:
    return workload.input_tokens + workload.output_tokens
