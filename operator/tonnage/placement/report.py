"""Renders a decision for status: GiB and dollars, within a size limit."""

from collections import Counter
from dataclasses import asdict
from decimal import Decimal
from typing import Any, Final

from tonnage.api.conditions import MAX_MESSAGE_BYTES
from tonnage.api.status import (
    AdjustmentsStatus,
    CandidateStatus,
    EstimateStatus,
    FailedPlan,
    InferenceDeploymentStatus,
    MemoryStatus,
    PlacementStatus,
    ProposedPlan,
)
from tonnage.api.text import truncate
from tonnage.catalog.prices import cost_per_million_tokens, format_money
from tonnage.fit.messages import GIB
from tonnage.fit.model import MemoryFit, Parallelism
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments
from tonnage.placement.filters.latency import format_latency
from tonnage.placement.model import Candidate, Decision, Option
from tonnage.placement.reasons import ChosenReason, FeasibleReason, RejectedReason

MAX_STATUS_BYTES: Final = 64 * 1024
"""Size of a whole status as JSON, far below etcd's limit, since it is written often."""

MAX_CANDIDATES: Final = 50
"""Most candidates in a status."""

MAX_CANDIDATES_BYTES: Final = 48 * 1024
"""Largest size of the listed candidates as JSON."""

_MAX_CANDIDATE_MESSAGE_BYTES: Final = 400
_MAX_COUNT_BYTES: Final = len('"":1000000,')
_OMITTED_BYTES: Final = sum(
    len(reason) + _MAX_COUNT_BYTES for reason in (*ChosenReason, *FeasibleReason, *RejectedReason)
)
"""Largest size of the count by reason as JSON."""


def with_candidates(
    status: InferenceDeploymentStatus, decision: Decision
) -> InferenceDeploymentStatus:
    """Return the status with as many candidates as fit within MAX_STATUS_BYTES."""
    used = len(status.model_dump_json(by_alias=True, exclude_none=True).encode())
    available = MAX_STATUS_BYTES - used - _OMITTED_BYTES
    candidates, omitted = list_candidates(decision, max_bytes=min(available, MAX_CANDIDATES_BYTES))
    return status.model_copy(update={"candidates": candidates, "omitted_candidates": omitted})


def list_candidates(
    decision: Decision, limit: int = MAX_CANDIDATES, max_bytes: int = MAX_CANDIDATES_BYTES
) -> tuple[list[CandidateStatus], dict[str, int]]:
    """Return the candidates for status, best first, and the number of omitted ones by reason."""
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
    """Render one placement for status: `replicas` of the option hold GPUs on its pool."""
    candidate = next(each for each in decision.candidates if each.pool.name == option.pool.name)
    return PlacementStatus(
        name=option.placement_name,
        pool=option.pool.name,
        engine=chosen_engine(option),
        accelerator=option.accelerator.id,
        tensor_parallel_size=option.parallelism.tensor,
        pipeline_parallel_size=option.parallelism.pipeline,
        **optional_sizes(option.parallelism),
        gpus_per_replica=option.parallelism.gpus,
        replicas=replicas,
        ready_replicas=ready_replicas,
        image=image,
        reason=candidate.reason,
        message=truncate(candidate.message, MAX_MESSAGE_BYTES),
        overridden_rules=list(option.overridden) or None,
        adjustments=adjustments_status(option.adjustments),
        memory=_memory_status(option.fit),
        kv_cache_tokens=option.kv_cache_tokens,
        cost_per_hour=_money(option.cost_per_hour),
        price_source=option.price_source.kind,
        estimate=_estimate_status(option),
    )


def adjustments_status(adjustments: EngineAdjustments) -> AdjustmentsStatus | None:
    """Render the engine settings that Tonnage chose, None where it chose none."""
    if adjustments == UNADJUSTED:
        return None
    return AdjustmentsStatus(**asdict(adjustments))


def read_adjustments(reported: AdjustmentsStatus | None) -> EngineAdjustments:
    """Read the engine settings that a status has."""
    return EngineAdjustments(**reported.model_dump()) if reported else UNADJUSTED


def optional_sizes(parallelism: Parallelism) -> dict[str, int | None]:
    """Render the data-parallel size and the nodes of a replica, None for 1."""
    return {
        "data_parallel_size": _above_one(parallelism.data),
        "nodes_per_replica": _above_one(parallelism.nodes),
    }


def read_parallelism(reported: PlacementStatus | ProposedPlan | FailedPlan) -> Parallelism:
    """Read the parallelism that a status has."""
    return Parallelism(
        tensor=reported.tensor_parallel_size,
        pipeline=reported.pipeline_parallel_size,
        data=reported.data_parallel_size or 1,
        nodes=reported.nodes_per_replica or 1,
    )


def _above_one(number: int) -> int | None:
    return number if number > 1 else None


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
    """Return the figures of a candidate. Capacity counts only up to the wanted replicas, and free
    GPUs appear only where they are too few: a status must not change with every foreign pod."""
    capacity, grown = (
        min(count, option.replicas) for count in (option.capacity, option.grown_capacity)
    )
    return {
        "engine": chosen_engine(option),
        "overridden_rules": list(option.overridden) or None,
        "tensor_parallel_size": option.parallelism.tensor,
        "pipeline_parallel_size": _above_one(option.parallelism.pipeline),
        **optional_sizes(option.parallelism),
        "gpus_per_replica": option.parallelism.gpus,
        "replicas": option.replicas,
        "room": capacity,
        "room_after_growth": grown if grown > capacity else None,
        "free_gpus": option.pool.free if capacity < option.replicas else None,
        "kv_cache_tokens": option.kv_cache_tokens,
        "cost_per_hour": _money(option.cost_per_hour),
        "price_source": option.price_source.kind,
        "estimate": _estimate_status(option),
    }


def chosen_engine(option: Option) -> str | None:
    """Return the engine where the operator chose it."""
    return None if option.engine_reason is None else option.engine


def _memory_status(fit: MemoryFit) -> MemoryStatus:
    return MemoryStatus(
        device_gi_b=_gib(fit.account.device_bytes),
        budget_gi_b=_gib(fit.account.budget_bytes),
        weights_gi_b=_gib(fit.account.weights_bytes),
        lora_gi_b=_gib(fit.account.lora_bytes) if fit.account.lora_bytes else None,
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
        cost = format_money(cost_per_million_tokens(option.compared_cost, speed))
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
