"""The estimate held to published measurements: the figures, and what they are made of."""

from collections import Counter
from functools import cache

import pytest

from tests.benchmarks.throughput import ENGINE, MEDIAN_ERROR_BAR, RANKED_RIGHT_BAR, measure
from tests.benchmarks.throughput_estimates import Answer, answer, answers
from tests.benchmarks.throughput_pairs import Pair, pairs, share_right
from tests.benchmarks.throughput_records import records

OPTIONS_OF_ONE_ACCELERATOR = {"mi300x"}
"""Records state more than one layout of these."""


@cache
def estimated() -> tuple[Answer, ...]:
    return answers()


def by_id(record_id: str) -> Answer:
    return answer(next(record for record in records() if record.id == record_id))


def test_the_figures_are_reached() -> None:
    reached = measure(estimated())
    assert reached.median_error <= MEDIAN_ERROR_BAR
    assert reached.ranked_right >= RANKED_RIGHT_BAR


def test_no_figure_is_worse_than_it_was() -> None:
    reached = measure(estimated())
    assert reached.median_error <= 0.10
    assert reached.ranked_right >= 0.91
    assert share_right(pairs(estimated(), priced=False)) >= 0.92


def test_every_record_is_used_or_says_why_not() -> None:
    assert len(records()) == 182
    assert len(estimated()) == 175
    assert Counter(one.record.engine for one in estimated())[ENGINE] == 83


def test_records_have_a_source_and_a_date() -> None:
    for record in records():
        assert record.source.startswith("https://")
        assert record.published[:4].isdigit()
    assert len({record.id for record in records()}) == len(records())


def test_pairs_are_of_one_model_precision_and_workload_and_two_options() -> None:
    found = pairs(estimated())
    assert len(found) == 147
    for pair in found:
        one, other = pair.first.record, pair.second.record
        assert (one.model, one.precision, one.lengths, one.metric) == (
            other.model,
            other.precision,
            other.lengths,
            other.metric,
        )
        if one.accelerator == other.accelerator:
            assert one.accelerator in OPTIONS_OF_ONE_ACCELERATOR
            assert one.tensor != other.tensor


@pytest.mark.parametrize(
    ("measured", "estimated", "want"),
    [(1.2, 1.1, True), (0.8, 0.9, True), (1.2, 0.9, False), (0.8, 1.1, False), (1.2, 1.0, False)],
)
def test_a_pair_is_ranked_right_when_both_call_the_same_cheaper(
    measured: float, estimated: float, want: bool
) -> None:
    some = by_id("tp-127")
    assert Pair(some, some, measured, estimated).ranked_right is want


def test_a_price_decides_between_equal_speeds() -> None:
    mi300x, h100 = by_id("tp-144"), by_id("tp-128")
    (priced,) = pairs([mi300x, h100])
    (equal,) = pairs([mi300x, h100], priced=False)
    assert priced.measured / equal.measured == pytest.approx(2.99 / 1.99)


def test_options_without_a_price_are_compared_by_gpus() -> None:
    gb300, gb200 = by_id("tp-056"), by_id("tp-054")  # the one has no on-demand price
    (priced,) = pairs([gb300, gb200])
    (equal,) = pairs([gb300, gb200], priced=False)
    assert (priced.measured, priced.estimated) == (equal.measured, equal.estimated)


@pytest.mark.parametrize("record_id", ["tp-031", "tp-028", "tp-046", "tp-070"])
def test_a_scenario_with_limits_is_served_within_them(record_id: str) -> None:
    found = by_id(record_id)
    limits = found.record.limits
    assert limits is not None
    assert found.estimate.time_to_first_token_seconds <= limits[0]
    assert found.estimate.time_per_output_token_seconds <= limits[1]
