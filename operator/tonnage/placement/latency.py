"""Latency targets: what a typical request may take, and whether an estimate keeps to that."""

import math
from collections.abc import Iterator

from tonnage.api.parse import parse_duration
from tonnage.api.workload import LatencyTargets
from tonnage.placement.messages import format_count, tell_band
from tonnage.throughput.model import ThroughputEstimate


def excess(targets: LatencyTargets, estimate: ThroughputEstimate) -> float:
    """How many times as long as asked the worse of both takes; 0 without a target.

    The estimate is taken as it is, without its band.
    """
    ratios = (
        math.inf if longest == 0 else seconds / longest
        for _, seconds, longest, _ in _compare(targets, estimate)
    )
    return max(ratios, default=0.0)


def keeps_to(targets: LatencyTargets, estimate: ThroughputEstimate) -> bool:
    """Whether the estimate breaks no target."""
    return excess(targets, estimate) <= 1


def tell_excess(targets: LatencyTargets, estimate: ThroughputEstimate) -> str:
    """Each target that the estimate breaks, with both figures and the requests held at once."""
    told = "; ".join(
        f"about {_format_above(seconds, longest)} {what}, at most {asked} asked"
        for what, seconds, longest, asked in _compare(targets, estimate)
        if seconds > longest
    )
    batch = format_count(estimate.batch, "request")
    return f"{told} ({tell_band(estimate)}, with {batch} at once on a replica)"


def format_latency(seconds: float) -> str:
    """A duration as Kubernetes writes it, with two or three digits that mean something."""
    if seconds >= 10:
        return f"{seconds:.0f}s"
    if seconds >= 1:
        return f"{seconds:.1f}s"
    milliseconds = seconds * 1000
    return f"{milliseconds:.0f}ms" if milliseconds >= 10 else f"{milliseconds:.1f}ms"


def _compare(
    targets: LatencyTargets, estimate: ThroughputEstimate
) -> Iterator[tuple[str, float, float, str]]:
    """Of each target: what it is of, seconds estimated and asked, and the latter as written."""
    figures = (
        ("to the first token", estimate.time_to_first_token_seconds, targets.time_to_first_token),
        ("between tokens", estimate.time_per_output_token_seconds, targets.time_per_output_token),
    )
    for what, seconds, asked in figures:
        if asked is not None:
            yield what, seconds, parse_duration(asked), asked


def _format_above(seconds: float, longest: float) -> str:
    """Seconds that are more than `longest`, with as many digits as it takes to see that."""
    told = format_latency(seconds)
    return told if parse_duration(told) > longest else f"{seconds * 1000:.9g}ms"
