"""The user's bounds on latency and cost: placement takes no option that exceeds one.

It takes no option without an estimate or a price either, as nothing shows that the bound is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.workload import LatencyTargets
from tonnage.catalog.prices import format_money
from tonnage.fit.messages import format_count
from tonnage.placement.filters.latency import excess_ratio, format_excess, meets_targets
from tonnage.placement.messages import format_devices, format_fit
from tonnage.placement.model import Option, Rejection
from tonnage.placement.reasons import RejectedReason, nearness
from tonnage.placement.scoring.ranking import rank


@dataclass(frozen=True, slots=True)
class _Violation:
    """The first bound that an option exceeds, and its value as a multiple of the bound."""

    option: Option
    reason: RejectedReason
    message: str
    ratio: float = 0.0


def keep_within_bounds(
    spec: InferenceDeploymentSpec, options: Sequence[Option]
) -> Sequence[Option] | Rejection:
    """Return the options within all bounds; without any, the rejection of the nearest one."""
    if not spec.workload.latency_targets.are_set and spec.placement.max_cost_per_hour is None:
        return options
    checked = [(option, _find_violation(spec, option)) for option in options]
    kept = [option for option, violation in checked if violation is None]
    if kept:
        return kept
    nearest = min(
        (violation for _, violation in checked if violation is not None),
        key=lambda each: (nearness(each.reason), each.ratio, rank(each.option, spec.placement)),
    )
    message = f"{format_fit(nearest.option)}; {nearest.message}"
    return Rejection(nearest.reason, message, option=nearest.option)


def _find_violation(spec: InferenceDeploymentSpec, option: Option) -> _Violation | None:
    targets, bound = spec.workload.latency_targets, spec.placement.max_cost_per_hour
    slow = _check_targets(targets, option) if targets.are_set else None
    return slow or (_check_budget(Decimal(bound), option) if bound is not None else None)


def _check_targets(targets: LatencyTargets, option: Option) -> _Violation | None:
    estimate = option.estimate
    if estimate is None:
        message = "no estimate shows that it keeps to spec.workload.latencyTargets"
        return _Violation(option, RejectedReason.NO_ESTIMATE, message)
    if meets_targets(targets, estimate):
        return None
    message = f"spec.workload.latencyTargets: {format_excess(targets, estimate)}"
    return _Violation(option, RejectedReason.TOO_SLOW, message, excess_ratio(targets, estimate))


def _check_budget(bound: Decimal, option: Option) -> _Violation | None:
    cost = option.cost_per_hour
    if cost is not None and cost <= bound:
        return None
    limit = f"spec.placement.maxCostPerHour is {format_money(bound)}"
    devices = format_devices(option.pool, option.parallelism.gpus)
    replicas = f"{format_count(option.replicas, 'replica')} of {devices}"
    if cost is None:
        message = (
            f"no price known for {replicas}, and {limit}; set costPerGPUHour of an AcceleratorPool"
        )
        return _Violation(option, RejectedReason.NO_PRICE_KNOWN, message)
    message = f"{_format_above(cost, bound)}/h for {replicas}, and {limit}"
    ratio = float(cost / bound if bound else cost)
    return _Violation(option, RejectedReason.OVER_BUDGET, message, ratio)


def _format_above(cost: Decimal, bound: Decimal) -> str:
    """Format a cost above the bound, with enough digits to show that it is above."""
    text = format_money(cost)
    return text if Decimal(text) > bound else f"{cost.normalize():f}"
