"""Formatted durations, and a target that is narrowly missed."""

import pytest

from tonnage.api.workload import LatencyTargets
from tonnage.placement.filters.latency import (
    excess_ratio,
    format_excess,
    format_latency,
    meets_targets,
)
from tonnage.throughput.model import ThroughputEstimate

FIGURES = (
    (0.0004, "0.4ms"),
    (0.00951, "9.5ms"),
    (0.0311, "31ms"),
    (0.42, "420ms"),
    (1.26, "1.3s"),
    (12.6, "13s"),
    (4000, "4000s"),
)


@pytest.mark.parametrize(("seconds", "want"), FIGURES)
def test_a_duration_has_two_or_three_digits(seconds: float, want: str) -> None:
    assert format_latency(seconds) == want


def estimate(first: float, between: float) -> ThroughputEstimate:
    return ThroughputEstimate(100.0, first, between, 12, 0.3)


@pytest.mark.parametrize(
    ("first", "between", "want"),
    [(1.9, 0.05, True), (2.0, 0.05, True), (2.1, 0.05, False), (1.9, 0.0501, False)],
)
def test_each_target_applies(first: float, between: float, want: bool) -> None:
    targets = LatencyTargets(time_to_first_token="2s", time_per_output_token="50ms")
    assert meets_targets(targets, estimate(first, between)) is want


def test_without_targets_any_latency_is_accepted() -> None:
    assert meets_targets(LatencyTargets(), estimate(1e9, 1e9))


def test_no_estimate_meets_a_target_of_zero() -> None:
    targets = LatencyTargets(time_per_output_token="0s")
    assert not meets_targets(targets, estimate(1.0, 0.001))
    assert excess_ratio(targets, estimate(1.0, 0.001)) == float("inf")


def test_both_figures_are_formatted_with_the_band_and_the_batch() -> None:
    targets = LatencyTargets(time_to_first_token="1s", time_per_output_token="50ms")
    assert format_excess(targets, estimate(2.04, 0.085)) == (
        "about 2.0s to the first token, at most 1s asked; about 85ms between tokens, at most 50ms"
        " asked (estimate ±30 %, with 12 requests at once on a replica)"
    )


def test_figures_that_round_to_the_target_are_distinguishable() -> None:
    targets = LatencyTargets(time_per_output_token="50ms")
    assert "about 50.2ms between tokens, at most 50ms asked" in format_excess(
        targets, estimate(1.0, 0.0502)
    )
