"""Prometheus' answer is valid as a whole or rejected."""

import math

import pytest

from tonnage.telemetry.series import NotUnderstoodError, Series, read_vector

NOW = 1_800_000_000.0


def body(value="2.5", evaluated=NOW, **labels):
    return {"metric": labels or {"pod": "a"}, "value": [evaluated, value]}


@pytest.mark.parametrize(
    ("result", "want"),
    [
        pytest.param([], (), id="an empty answer is valid"),
        pytest.param([body()], (Series({"pod": "a"}, 2.5, NOW),), id="one series"),
        pytest.param([body(value="0")], (Series({"pod": "a"}, 0.0, NOW),), id="zero is a number"),
        pytest.param([body(value="NaN")], (Series({"pod": "a"}, None, NOW),), id="NaN is none"),
        pytest.param([body(value="+Inf")], (Series({"pod": "a"}, None, NOW),), id="nor infinity"),
        pytest.param([body(value="1e999")], (Series({"pod": "a"}, None, NOW),), id="nor overflow"),
        pytest.param(
            [{"metric": {}, "value": [int(NOW), "1"]}],
            (Series({}, 1.0, NOW),),
            id="an aggregate without labels",
        ),
        pytest.param(
            [{**body(), "histogram": [NOW, {}]}], (Series({"pod": "a"}, 2.5, NOW),), id="more"
        ),
    ],
)
def test_a_valid_answer_is_read(result, want):
    assert read_vector(result, NOW + 1) == want


REFUSED = {
    "a matrix": [{"metric": {}, "values": [[NOW, "1"]]}],
    "a scalar": [NOW, "1"],
    "an object": {"a": 1},
    "text": "NaN",
    "null": None,
    "a native histogram": [{"metric": {}, "histogram": [NOW, {"count": "1"}]}],
    "a value that is a number of JSON": [body(value=1)],
    "a value that is not a number": [body(value="soon")],
    "a value without a time": [{"metric": {}, "value": ["1"]}],
    "a value of three": [{"metric": {}, "value": [NOW, "1", "2"]}],
    "a time that is text": [body(evaluated="now")],
    "a time that is not a number": [body(evaluated=math.nan)],
    "a time beyond floats": [body(evaluated=10**400)],
    "a time in the future": [body(evaluated=NOW + 3600)],
    "a time in the past": [body(evaluated=NOW - 3600)],
    "labels in a list": [{"metric": [], "value": [NOW, "1"]}],
    "a label that is a number": [body(pod=1)],
    "no labels": [{"value": [NOW, "1"]}],
    "a series that is null": [None],
    "one good series and one bad": [body(pod="a"), body(pod="b", value=None)],
    "the same series twice": [body(pod="a", value="1"), body(pod="a", value="9")],
}


@pytest.mark.parametrize("result", [pytest.param(v, id=name) for name, v in REFUSED.items()])
def test_any_other_answer_is_rejected_as_a_whole(result):
    with pytest.raises(NotUnderstoodError):
        read_vector(result, NOW)


def test_the_age_of_a_sample_is_by_prometheus_clock():
    assert Series({}, NOW - 20, NOW).age_seconds == 20
    assert Series({}, None, NOW).age_seconds is None
