"""A decision as it stands in status: numbers in GiB and dollars, and not too many of them."""

from decimal import Decimal
from typing import Final

from tonnage.api.status import CandidateStatus, EstimateStatus, MemoryStatus, PlacementStatus
from tonnage.fit.model import MemoryFit
from tonnage.placement.messages import GIB
from tonnage.placement.model import Candidate, Decision, Option
from tonnage.placement.pricing import format_money

MAX_CANDIDATES: Final = 50
"""Candidates that a status lists; it must stay well below what etcd takes."""

MAX_CANDIDATES_BYTES: Final = 48 * 1024
"""Size of the listed candidates as JSON."""

_MAX_MESSAGE_CHARS: Final = 400
_TOKENS_PER_COST: Final = 1_000_000
_SECONDS_PER_HOUR: Final = 3600


def list_candidates(
    decision: Decision, limit: int = MAX_CANDIDATES
) -> tuple[list[CandidateStatus], dict[str, int]]:
    """The candidates for status, best first, and how many were left out by reason."""
    listed: list[CandidateStatus] = []
    omitted: dict[str, int] = {}
    size = 0
    for candidate in decision.candidates:
        entry = _candidate_status(candidate)
        size += len(entry.model_dump_json(by_alias=True, exclude_none=True).encode())
        if len(listed) < limit and size <= MAX_CANDIDATES_BYTES:
            listed.append(entry)
        else:
            omitted[candidate.reason] = omitted.get(candidate.reason, 0) + 1
    return listed, omitted


def placement_status(
    decision: Decision, option: Option, *, image: str, replicas: int, ready_replicas: int
) -> PlacementStatus:
    """One placement for status: `replicas` of the option were given GPUs on its pool."""
    assert option.pool.accelerator is not None, "placement chooses recognised pools only"
    found = next(found for found in decision.candidates if found.pool.name == option.pool.name)
    return PlacementStatus(
        name=option.pool.accelerator.id,
        pool=option.pool.name,
        accelerator=option.pool.accelerator.id,
        tensor_parallel_size=option.parallelism.tensor,
        pipeline_parallel_size=option.parallelism.pipeline,
        gpus_per_replica=option.parallelism.gpus,
        replicas=replicas,
        ready_replicas=ready_replicas,
        image=image,
        reason=found.reason,
        message=found.message,
        overridden_rules=list(option.overridden) or None,
        memory=_memory_status(option.fit),
        kv_cache_tokens=option.fit.account.kv_cache_tokens,
        cost_per_hour=_money(option.cost_per_hour),
        estimate=_estimate_status(option),
    )


def _candidate_status(candidate: Candidate) -> CandidateStatus:
    option, accelerator = candidate.option, candidate.pool.accelerator
    entry = CandidateStatus(
        pool=candidate.pool.name,
        accelerator=accelerator.id if accelerator else None,
        verdict=candidate.verdict.value,
        reason=candidate.reason,
        message=candidate.message[:_MAX_MESSAGE_CHARS],
    )
    if option is None:
        return entry
    return entry.model_copy(
        update={
            "overridden_rules": list(option.overridden) or None,
            "tensor_parallel_size": option.parallelism.tensor,
            "gpus_per_replica": option.parallelism.gpus,
            "replicas": option.replicas,
            "cost_per_hour": _money(option.cost_per_hour),
        }
    )


def _memory_status(fit: MemoryFit) -> MemoryStatus:
    return MemoryStatus(
        device_gi_b=_gib(fit.account.device_bytes),
        budget_gi_b=_gib(fit.account.budget_bytes),
        weights_gi_b=_gib(fit.account.weights_bytes),
        activation_gi_b=_gib(fit.account.activation_bytes),
        non_torch_gi_b=_gib(fit.account.non_torch_bytes),
        graph_gi_b=_gib(fit.account.graph_bytes),
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
        cost_per_million_tokens=cost,
        band_percent=round(option.estimate.band * 100),
    )


def _gib(size_bytes: int) -> float:
    return round(size_bytes / GIB, 1)


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else format_money(amount)
