"""The error of the estimate against published measurements, and the data behind it."""

from collections import Counter
from functools import cache

import pytest

from benchmarks.in_memory.throughput import ENGINE, MEDIAN_ERROR_BAR, RANKED_RIGHT_BAR, measure
from benchmarks.in_memory.throughput_estimates import Answer, answer, answers
from benchmarks.in_memory.throughput_pairs import Pair, pairs, share_right
from benchmarks.in_memory.throughput_records import records

OPTIONS_OF_ONE_ACCELERATOR = {"mi300x"}
"""Accelerators with records of several parallelisms."""


@cache
def estimated() -> tuple[Answer, ...]:
    return answers()


def by_id(record_id: str) -> Answer:
    return answer(next(record for record in records() if record.id == record_id))


def test_the_estimate_meets_its_targets() -> None:
    measured = measure(estimated())
    assert measured.median_error <= MEDIAN_ERROR_BAR
    assert measured.ranked_right >= RANKED_RIGHT_BAR


def test_the_estimate_does_not_regress() -> None:
    measured = measure(estimated())
    assert measured.median_error <= 0.11
    assert measured.ranked_right >= 0.91
    assert share_right(pairs(estimated(), priced=False)) >= 0.92


def test_numbers_of_records_and_estimates() -> None:
    assert len(records()) == 182
    assert len(estimated()) == 175
    assert Counter(estimate.record.engine for estimate in estimated())[ENGINE] == 83


def test_records_have_a_source_and_a_date() -> None:
    for record in records():
        assert record.source.startswith("https://")
        assert record.published[:4].isdigit()
    assert len({record.id for record in records()}) == len(records())


def test_pairs_are_of_one_model_precision_and_workload_and_two_options() -> None:
    all_pairs = pairs(estimated())
    assert len(all_pairs) == 147
    for pair in all_pairs:
        first, second = pair.first.record, pair.second.record
        assert (first.model, first.precision, first.lengths, first.metric) == (
            second.model,
            second.precision,
            second.lengths,
            second.metric,
        )
        if first.accelerator == second.accelerator:
            assert first.accelerator in OPTIONS_OF_ONE_ACCELERATOR
            assert first.tensor != second.tensor


@pytest.mark.parametrize(
    ("measured", "estimated", "want"),
    [(1.2, 1.1, True), (0.8, 0.9, True), (1.2, 0.9, False), (0.8, 1.1, False), (1.2, 1.0, False)],
)
def test_a_pair_is_ranked_right_when_estimate_and_measurement_agree(
    measured: float, estimated: float, want: bool
) -> None:
    any_answer = by_id("tp-127")
    assert Pair(any_answer, any_answer, measured, estimated).ranked_right is want


def test_a_price_decides_between_equal_speeds() -> None:
    mi300x, h100 = by_id("tp-144"), by_id("tp-128")
    (priced,) = pairs([mi300x, h100])
    (equal,) = pairs([mi300x, h100], priced=False)
    assert priced.measured / equal.measured == pytest.approx(2.99 / 1.99)


def test_options_without_a_price_are_compared_by_gpus() -> None:
    gb300, gb200 = by_id("tp-056"), by_id("tp-054")  # one of them has no on-demand price
    (priced,) = pairs([gb300, gb200])
    (equal,) = pairs([gb300, gb200], priced=False)
    assert (priced.measured, priced.estimated) == (equal.measured, equal.estimated)


@pytest.mark.parametrize("record_id", ["tp-031", "tp-028", "tp-046", "tp-070"])
def test_the_estimate_of_a_scenario_with_limits_meets_them(record_id: str) -> None:
    result = by_id(record_id)
    limits = result.record.limits
    assert limits is not None
    assert result.estimate.time_to_first_token_seconds <= limits[0]
    assert result.estimate.time_per_output_token_seconds <= limits[1]
