"""Latency targets: the most time a typical request may take, and whether an estimate meets them."""

import math
from collections.abc import Iterator

from tonnage.api.parse import parse_duration
from tonnage.api.workload import LatencyTargets
from tonnage.fit.messages import format_count
from tonnage.placement.messages import format_band
from tonnage.throughput.model import ThroughputEstimate


def excess_ratio(targets: LatencyTargets, estimate: ThroughputEstimate) -> float:
    """Return the larger ratio of an estimated latency to its target; 0 without a target.

    The estimate's uncertainty band does not count.
    """
    ratios = (
        math.inf if target == 0 else seconds / target
        for _, seconds, target, _ in _compare(targets, estimate)
    )
    return max(ratios, default=0.0)


def meets_targets(targets: LatencyTargets, estimate: ThroughputEstimate) -> bool:
    """Whether the estimate meets all targets."""
    return excess_ratio(targets, estimate) <= 1


def format_excess(targets: LatencyTargets, estimate: ThroughputEstimate) -> str:
    """Format each target that the estimate exceeds, both figures, and the concurrent requests."""
    exceeded = "; ".join(
        f"about {_format_above(seconds, target)} {name}, at most {spec_text} asked"
        for name, seconds, target, spec_text in _compare(targets, estimate)
        if seconds > target
    )
    batch = format_count(estimate.batch, "request")
    return f"{exceeded} ({format_band(estimate)}, with {batch} at once on a replica)"


def format_latency(seconds: float) -> str:
    """Format a duration as Kubernetes does, with two or three significant digits."""
    if seconds >= 10:
        return f"{seconds:.0f}s"
    if seconds >= 1:
        return f"{seconds:.1f}s"
    milliseconds = seconds * 1000
    return f"{milliseconds:.0f}ms" if milliseconds >= 10 else f"{milliseconds:.1f}ms"


def _compare(
    targets: LatencyTargets, estimate: ThroughputEstimate
) -> Iterator[tuple[str, float, float, str]]:
    """Return for each target its name, the estimated and target seconds, and its text in spec."""
    figures = (
        ("to the first token", estimate.time_to_first_token_seconds, targets.time_to_first_token),
        ("between tokens", estimate.time_per_output_token_seconds, targets.time_per_output_token),
    )
    for name, seconds, target in figures:
        if target is not None:
            yield name, seconds, parse_duration(target), target


def _format_above(seconds: float, target: float) -> str:
    """Format seconds above `target`, with enough digits to show that they are above."""
    text = format_latency(seconds)
    return text if parse_duration(text) > target else f"{seconds * 1000:.9g}ms"
