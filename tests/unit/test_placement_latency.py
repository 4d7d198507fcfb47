"""Durations as people read them, and a target that is broken by little."""

import pytest

from tonnage.api.workload import LatencyTargets
from tonnage.placement.latency import excess, format_latency, keeps_to, tell_excess
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
def test_each_target_counts(first: float, between: float, want: bool) -> None:
    targets = LatencyTargets(time_to_first_token="2s", time_per_output_token="50ms")
    assert keeps_to(targets, estimate(first, between)) is want


def test_what_is_not_asked_may_take_any_time() -> None:
    assert keeps_to(LatencyTargets(), estimate(1e9, 1e9))


def test_a_target_of_no_time_at_all_is_kept_by_nothing() -> None:
    targets = LatencyTargets(time_per_output_token="0s")
    assert not keeps_to(targets, estimate(1.0, 0.001))
    assert excess(targets, estimate(1.0, 0.001)) == float("inf")


def test_both_figures_are_told_with_the_band_and_the_batch() -> None:
    targets = LatencyTargets(time_to_first_token="1s", time_per_output_token="50ms")
    assert tell_excess(targets, estimate(2.04, 0.085)) == (
        "about 2.0s to the first token, at most 1s asked; about 85ms between tokens, at most 50ms"
        " asked (estimate ±30 %, with 12 requests at once on a replica)"
    )


def test_figures_that_round_to_what_was_asked_are_told_apart() -> None:
    targets = LatencyTargets(time_per_output_token="50ms")
    assert "about 50.2ms between tokens, at most 50ms asked" in tell_excess(
        targets, estimate(1.0, 0.0502)
    )
