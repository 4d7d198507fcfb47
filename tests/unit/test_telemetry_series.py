"""An answer of Prometheus counts as a whole or not at all."""

import math

import pytest

from tonnage.telemetry.series import NotUnderstoodError, Series, read_vector

NOW = 1_800_000_000.0


def body(value="2.5", evaluated=NOW, **labels):
    return {"metric": labels or {"pod": "a"}, "value": [evaluated, value]}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param([], (), id="an empty answer is an opinion"),
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
def test_what_prometheus_says_is_read(found, want):
    assert read_vector(found, NOW + 1) == want


REFUSED = {
    "a matrix": [{"metric": {}, "values": [[NOW, "1"]]}],
    "a scalar": [NOW, "1"],
    "an object": {"a": 1},
    "text": "NaN",
    "null": None,
    "a native histogram": [{"metric": {}, "histogram": [NOW, {"count": "1"}]}],
    "a value that is a number of JSON": [body(value=1)],
    "a value that is no number": [body(value="soon")],
    "a value without a time": [{"metric": {}, "value": ["1"]}],
    "a value of three": [{"metric": {}, "value": [NOW, "1", "2"]}],
    "a time that is text": [body(evaluated="now")],
    "a time that is not a number": [body(evaluated=math.nan)],
    "a time beyond floats": [body(evaluated=10**400)],
    "a time of the future": [body(evaluated=NOW + 3600)],
    "a time of the past": [body(evaluated=NOW - 3600)],
    "labels in a list": [{"metric": [], "value": [NOW, "1"]}],
    "a label that is a number": [body(pod=1)],
    "no labels": [{"value": [NOW, "1"]}],
    "a series that is null": [None],
    "one good series and one bad": [body(pod="a"), body(pod="b", value=None)],
    "the same series twice": [body(pod="a", value="1"), body(pod="a", value="9")],
}


@pytest.mark.parametrize("found", [pytest.param(v, id=name) for name, v in REFUSED.items()])
def test_anything_else_is_refused_as_a_whole(found):
    with pytest.raises(NotUnderstoodError):
        read_vector(found, NOW)


def test_a_sample_is_as_old_as_prometheus_says():
    assert Series({}, NOW - 20, NOW).age_seconds == 20
    assert Series({}, None, NOW).age_seconds is None
