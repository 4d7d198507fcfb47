"""What the user allows at most, latency and cost: a split beyond it is not taken.

What is not known is not taken either: without an estimate or a price nothing shows that a bound
holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.workload import LatencyTargets
from tonnage.placement.latency import excess, keeps_to, tell_excess
from tonnage.placement.messages import format_count, format_devices, tell_fit
from tonnage.placement.model import Option, Rejection
from tonnage.placement.pricing import format_money
from tonnage.placement.ranking import rank
from tonnage.placement.reasons import RejectedReason, nearness


@dataclass(frozen=True, slots=True)
class _Miss:
    """The first bound that an option breaks, and how many times over."""

    option: Option
    reason: RejectedReason
    told: str
    times: float = 0.0


def keep_within_bounds(
    spec: InferenceDeploymentSpec, options: Sequence[Option]
) -> Sequence[Option] | Rejection:
    """The options that break no bound; where each of them does, why the nearest one is out."""
    if not spec.workload.latency_targets.are_set and spec.placement.max_cost_per_hour is None:
        return options
    judged = [(option, _find_miss(spec, option)) for option in options]
    kept = [option for option, miss in judged if miss is None]
    if kept:
        return kept
    misses = [miss for _, miss in judged if miss is not None]
    policy = spec.placement.policy
    nearest = min(
        misses, key=lambda miss: (nearness(miss.reason), miss.times, rank(miss.option, policy))
    )
    message = f"{tell_fit(nearest.option)}; {nearest.told}"
    return Rejection(nearest.reason, message, option=nearest.option)


def _find_miss(spec: InferenceDeploymentSpec, option: Option) -> _Miss | None:
    targets, bound = spec.workload.latency_targets, spec.placement.max_cost_per_hour
    slow = _miss_targets(targets, option) if targets.are_set else None
    return slow or (_miss_budget(Decimal(bound), option) if bound is not None else None)


def _miss_targets(targets: LatencyTargets, option: Option) -> _Miss | None:
    estimate = option.estimate
    if estimate is None:
        told = "no estimate shows that it keeps to spec.workload.latencyTargets"
        return _Miss(option, RejectedReason.NO_ESTIMATE, told)
    if keeps_to(targets, estimate):
        return None
    told = f"spec.workload.latencyTargets: {tell_excess(targets, estimate)}"
    return _Miss(option, RejectedReason.TOO_SLOW, told, excess(targets, estimate))


def _miss_budget(bound: Decimal, option: Option) -> _Miss | None:
    cost = option.cost_per_hour
    if cost is not None and cost <= bound:
        return None
    asked = f"spec.placement.maxCostPerHour is {format_money(bound)}"
    devices = format_devices(option.pool, option.parallelism.gpus)
    what = f"{format_count(option.replicas, 'replica')} of {devices}"
    if cost is None:
        told = f"no price known for {what}, and {asked}; set costPerGPUHour of an AcceleratorPool"
        return _Miss(option, RejectedReason.NO_PRICE_KNOWN, told)
    told = f"{_format_above(cost, bound)}/h for {what}, and {asked}"
    return _Miss(option, RejectedReason.OVER_BUDGET, told, float(cost / bound if bound else cost))


def _format_above(cost: Decimal, bound: Decimal) -> str:
    """A cost above the bound, with as many digits as it takes to see that."""
    told = format_money(cost)
    return told if Decimal(told) > bound else f"{cost.normalize():f}"
