"""What follows from a measured load, and when nothing does."""

from dataclasses import replace
from math import inf, nan

import pytest

from tests.support.demand import (
    OLDEST_SECONDS,
    judge,
    load,
    measured,
    serving,
    terms,
    to_zero,
)
from tonnage.demand.opinion import NoOpinion, Opinion, judge_load
from tonnage.demand.signals import Queue

BY = terms()
BY_ZERO = terms(scaleToZero=to_zero())
STALE = load(age=OLDEST_SECONDS + 1)


def test_what_all_replicas_tell_is_an_opinion():
    found = judge(load(), load(), by=BY)
    assert isinstance(found, Opinion)
    assert (found.in_flight, found.capacity, found.is_bound, found.is_idle) == (
        20,
        20,
        False,
        False,
    )


@pytest.mark.parametrize(
    ("loads", "ready"),
    [
        pytest.param([load()], 2, id="one has no series"),
        pytest.param([load(), STALE], 2, id="one was not scraped lately"),
    ],
)
def test_what_some_replicas_tell_is_a_lower_bound(loads, ready):
    found = judge(*loads, by=BY, ready=ready)
    assert isinstance(found, Opinion)
    assert (found.in_flight, found.is_bound, found.is_idle) == (10, True, False)


def test_a_replica_that_is_not_ready_counts_if_it_is_seen_and_is_not_missed():
    expected = replace(serving(2), ready=frozenset({"pod-0"}))
    one = judge_load(measured(load()), expected, BY, OLDEST_SECONDS)
    both = judge_load(measured(load(), load()), expected, BY, OLDEST_SECONDS)
    assert (one.in_flight, one.is_bound) == (10, False)
    assert (both.in_flight, both.is_bound) == (20, False)


def test_pods_of_others_are_none_of_ours():
    found = judge_load(measured(load(), load(nan)), serving(1), BY, OLDEST_SECONDS)
    assert found.in_flight == 10


@pytest.mark.parametrize("wrong", [nan, inf, -1.0, 1e13])
@pytest.mark.parametrize("signal", ["running", "waiting", "kv_usage", "age_seconds"])
def test_a_number_that_cannot_be_spoils_all(signal, wrong):
    broken = replace(load(), **{signal: wrong})
    found = judge(load(500.0, 500.0), broken, by=BY)
    assert found == NoOpinion("the metrics of pod pod-1 are not numbers that can be")


@pytest.mark.parametrize("latency", ["first_token", "prefill", "per_token"])
@pytest.mark.parametrize("mean", [(nan, 1.0), (1.0, nan), (-1.0, 1.0), (1.0, inf)])
def test_a_latency_that_cannot_be_spoils_all(latency, mean):
    assert isinstance(judge(load(**{latency: mean}), by=BY), NoOpinion)


def test_more_than_all_of_a_cache_cannot_be_in_use():
    assert isinstance(judge(load(kv_usage=1.0), by=BY), Opinion)
    assert isinstance(judge(load(kv_usage=85.0), by=BY), NoOpinion)


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (judge_load(None, serving(1), BY, 150), "Prometheus gives no answer that can be used"),
        (judge(by=BY, ready=2), "no fresh sample of any of 2 ready replicas"),
        (judge(STALE, STALE, by=BY), "no fresh sample of any of 2 ready replicas"),
        (judge(by=BY), "no replica is ready"),
        (judge(by=BY_ZERO), "no fresh sample of spec.scaling.scaleToZero.queuedRequests"),
        (
            judge(by=BY_ZERO, queue=Queue(3, 151)),
            "no fresh sample of spec.scaling.scaleToZero.queuedRequests",
        ),
        (
            judge(by=BY_ZERO, queue=Queue(nan, 1)),
            "the metric of spec.scaling.scaleToZero.queuedRequests is not a count",
        ),
    ],
)
def test_nothing_follows_and_it_says_why(found, want):
    assert found == NoOpinion(want)


def test_nothing_follows_while_nobody_knows_what_a_replica_holds():
    idle, unknown = load(0.0, 0.0, 0.0), replace(serving(1), reckoned={})
    found = judge_load(measured(idle), unknown, BY, OLDEST_SECONDS)
    assert found == NoOpinion("no replica runs a request, and what one can hold is not known yet")
    assert isinstance(judge_load(measured(load()), unknown, BY, OLDEST_SECONDS), Opinion)


def test_what_queues_in_front_of_no_replica_asks_for_some():
    found = judge(by=BY_ZERO, queue=Queue(30, 1))
    assert isinstance(found, Opinion)
    assert found.need.replicas == pytest.approx(30 / (0.5 * 120) / 0.95)
    assert not found.is_idle


def test_idle_is_only_what_is_seen_as_a_whole():
    idle = load(0.0, 0.0, 0.0)
    assert judge(idle, by=BY).is_idle
    assert judge(idle, by=BY_ZERO, queue=Queue(0, 1)).is_idle
    assert not judge(idle, by=BY_ZERO, queue=Queue(1, 1)).is_idle
    assert not judge(idle, by=BY_ZERO).is_idle  # nobody knows what queues
    assert not judge(idle, by=BY, ready=2).is_idle
