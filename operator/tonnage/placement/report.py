"""A decision as it stands in status: numbers in GiB and dollars, and not too many of them."""

from collections import Counter
from dataclasses import asdict
from decimal import Decimal
from typing import Any, Final

from tonnage.api.conditions import MAX_MESSAGE_BYTES
from tonnage.api.status import (
    AdjustmentsStatus,
    CandidateStatus,
    EstimateStatus,
    InferenceDeploymentStatus,
    MemoryStatus,
    PlacementStatus,
)
from tonnage.api.text import truncate
from tonnage.fit.model import MemoryFit
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments
from tonnage.placement.latency import format_latency
from tonnage.placement.messages import GIB
from tonnage.placement.model import Candidate, Decision, Option
from tonnage.placement.pricing import format_money
from tonnage.placement.reasons import ChosenReason, FeasibleReason, RejectedReason

MAX_STATUS_BYTES: Final = 64 * 1024
"""Size of a whole status as JSON, far below what etcd takes; it is written again and again."""

MAX_CANDIDATES: Final = 50
"""Candidates that a status lists."""

MAX_CANDIDATES_BYTES: Final = 48 * 1024
"""Size of the listed candidates as JSON."""

_MAX_CANDIDATE_MESSAGE_BYTES: Final = 400
_MAX_COUNT_BYTES: Final = len('"":1000000,')
_OMITTED_BYTES: Final = sum(
    len(reason) + _MAX_COUNT_BYTES for reason in (*ChosenReason, *FeasibleReason, *RejectedReason)
)
"""Most that the count by reason takes as JSON."""

_TOKENS_PER_COST: Final = 1_000_000
_SECONDS_PER_HOUR: Final = 3600


def with_candidates(
    status: InferenceDeploymentStatus, decision: Decision
) -> InferenceDeploymentStatus:
    """The status with as many candidates as keep the whole of it within MAX_STATUS_BYTES."""
    taken = len(status.model_dump_json(by_alias=True, exclude_none=True).encode())
    left = MAX_STATUS_BYTES - taken - _OMITTED_BYTES
    candidates, omitted = list_candidates(decision, max_bytes=min(left, MAX_CANDIDATES_BYTES))
    return status.model_copy(update={"candidates": candidates, "omitted_candidates": omitted})


def list_candidates(
    decision: Decision, limit: int = MAX_CANDIDATES, max_bytes: int = MAX_CANDIDATES_BYTES
) -> tuple[list[CandidateStatus], dict[str, int]]:
    """The candidates for status, best first, and how many were left out by reason."""
    listed: list[CandidateStatus] = []
    size = 0
    for candidate in decision.candidates[:limit]:
        entry = _candidate_status(candidate)
        size += len(entry.model_dump_json(by_alias=True, exclude_none=True).encode()) + len(",")
        if size > max_bytes:
            break
        listed.append(entry)
    omitted = Counter(candidate.reason for candidate in decision.candidates[len(listed) :])
    return listed, {str(reason): count for reason, count in sorted(omitted.items())}


def placement_status(
    decision: Decision, option: Option, *, image: str, replicas: int, ready_replicas: int
) -> PlacementStatus:
    """One placement for status: `replicas` of the option were given GPUs on its pool."""
    found = next(found for found in decision.candidates if found.pool.name == option.pool.name)
    return PlacementStatus(
        name=option.placement or option.accelerator.id,
        pool=option.pool.name,
        accelerator=option.accelerator.id,
        tensor_parallel_size=option.parallelism.tensor,
        pipeline_parallel_size=option.parallelism.pipeline,
        gpus_per_replica=option.parallelism.gpus,
        replicas=replicas,
        ready_replicas=ready_replicas,
        image=image,
        reason=found.reason,
        message=truncate(found.message, MAX_MESSAGE_BYTES),
        overridden_rules=list(option.overridden) or None,
        adjustments=adjustments_status(option.adjustments),
        memory=_memory_status(option.fit),
        kv_cache_tokens=option.fit.account.kv_cache_tokens,
        cost_per_hour=_money(option.cost_per_hour),
        price_source=option.price_source.kind,
        estimate=_estimate_status(option),
    )


def adjustments_status(adjustments: EngineAdjustments) -> AdjustmentsStatus | None:
    """What Tonnage set of the engine, None where it set nothing."""
    if adjustments == UNADJUSTED:
        return None
    return AdjustmentsStatus(**asdict(adjustments))


def _candidate_status(candidate: Candidate) -> CandidateStatus:
    option, accelerator = candidate.option, candidate.pool.accelerator
    return CandidateStatus(
        pool=candidate.pool.name,
        accelerator=accelerator.id if accelerator else None,
        verdict=candidate.verdict.value,
        reason=candidate.reason,
        message=truncate(candidate.message, _MAX_CANDIDATE_MESSAGE_BYTES),
        **(_figures(option) if option is not None else {}),
    )


def _figures(option: Option) -> dict[str, Any]:
    """The figures of a candidate. Room counts only as far as it is wanted, and free GPUs are told
    only where they lack: a status must not change with every pod of somebody else."""
    room, grown = (min(found, option.replicas) for found in (option.room, option.grown_room))
    return {
        "overridden_rules": list(option.overridden) or None,
        "tensor_parallel_size": option.parallelism.tensor,
        "gpus_per_replica": option.parallelism.gpus,
        "replicas": option.replicas,
        "room": room,
        "room_after_growth": grown if grown > room else None,
        "free_gpus": option.pool.free if room < option.replicas else None,
        "kv_cache_tokens": option.fit.account.kv_cache_tokens,
        "cost_per_hour": _money(option.cost_per_hour),
        "price_source": option.price_source.kind,
        "estimate": _estimate_status(option),
    }


def _memory_status(fit: MemoryFit) -> MemoryStatus:
    return MemoryStatus(
        device_gi_b=_gib(fit.account.device_bytes),
        budget_gi_b=_gib(fit.account.budget_bytes),
        weights_gi_b=_gib(fit.account.weights_bytes),
        activation_gi_b=_gib(fit.account.activation_bytes),
        non_torch_gi_b=_gib(fit.account.non_torch_bytes),
        graph_gi_b=_gib(fit.account.graph_bytes),
        correction_gi_b=_gib(fit.account.correction_bytes) or None,
        kv_cache_gi_b=_gib(fit.account.kv_cache_bytes),
        uncertainty_gi_b=_gib(fit.account.band_bytes),
    )


def _estimate_status(option: Option) -> EstimateStatus | None:
    speed, cost = option.tokens_per_second, None
    if option.estimate is None or speed is None:
        return None
    if option.compared_cost is not None:
        tokens_per_hour = Decimal(speed) * _SECONDS_PER_HOUR
        cost = format_money(option.compared_cost * _TOKENS_PER_COST / tokens_per_hour)
    return EstimateStatus(
        tokens_per_second=round(speed),
        time_to_first_token=format_latency(option.estimate.time_to_first_token_seconds),
        time_per_output_token=format_latency(option.estimate.time_per_output_token_seconds),
        cost_per_million_tokens=cost,
        band_percent=round(option.estimate.band * 100),
    )


def _gib(size_bytes: int) -> float:
    return round(size_bytes / GIB, 1)


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else format_money(amount)
