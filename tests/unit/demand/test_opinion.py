"""The need that follows from a measured load, and when there is no opinion."""

from dataclasses import replace
from math import inf, nan

import pytest

from tests.support.load.demand import (
    OLDEST_SECONDS,
    judge,
    load,
    measured,
    serving,
    terms,
    to_zero,
)
from tonnage.demand.opinion import LoadEstimate, NoOpinion, judge_load
from tonnage.demand.signals import QueueSample

BY = terms()
BY_ZERO = terms(scaleToZero=to_zero())
STALE = load(age=OLDEST_SECONDS + 1)


def test_fresh_samples_of_all_replicas_make_an_opinion():
    opinion = judge(load(), load(), by=BY)
    assert isinstance(opinion, LoadEstimate)
    assert (opinion.in_flight, opinion.capacity, opinion.is_lower_bound, opinion.is_idle) == (
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
def test_fresh_samples_of_some_replicas_make_a_lower_bound(loads, ready):
    opinion = judge(*loads, by=BY, ready=ready)
    assert isinstance(opinion, LoadEstimate)
    assert (opinion.in_flight, opinion.is_lower_bound, opinion.is_idle) == (10, True, False)


def test_a_replica_that_is_not_ready_counts_only_if_it_has_a_sample():
    expected = replace(serving(2), ready=frozenset({"pod-0"}))
    one = judge_load(measured(load()), expected, BY, OLDEST_SECONDS)
    both = judge_load(measured(load(), load()), expected, BY, OLDEST_SECONDS)
    assert (one.in_flight, one.is_lower_bound) == (10, False)
    assert (both.in_flight, both.is_lower_bound) == (20, False)


def test_pods_of_other_objects_are_ignored():
    opinion = judge_load(measured(load(), load(nan)), serving(1), BY, OLDEST_SECONDS)
    assert opinion.in_flight == 10


@pytest.mark.parametrize("invalid", [nan, inf, -1.0, 1e13])
@pytest.mark.parametrize("signal", ["running", "waiting", "kv_usage", "age_seconds"])
def test_a_value_out_of_range_makes_the_whole_sample_unusable(signal, invalid):
    broken = replace(load(), **{signal: invalid})
    opinion = judge(load(500.0, 500.0), broken, by=BY)
    assert opinion == NoOpinion("the metrics of pod pod-1 are out of range")


@pytest.mark.parametrize("latency", ["first_token", "prefill", "per_token"])
@pytest.mark.parametrize("mean", [(nan, 1.0), (1.0, nan), (-1.0, 1.0), (1.0, inf)])
def test_a_latency_out_of_range_makes_the_whole_sample_unusable(latency, mean):
    assert isinstance(judge(load(**{latency: mean}), by=BY), NoOpinion)


def test_a_cache_usage_above_1_is_out_of_range():
    assert isinstance(judge(load(kv_usage=1.0), by=BY), LoadEstimate)
    assert isinstance(judge(load(kv_usage=85.0), by=BY), NoOpinion)


@pytest.mark.parametrize(
    ("opinion", "why"),
    [
        (judge_load(None, serving(1), BY, 150), "Prometheus gives no answer that can be used"),
        (judge(by=BY, ready=2), "no fresh sample of any of 2 ready replicas"),
        (judge(STALE, STALE, by=BY), "no fresh sample of any of 2 ready replicas"),
        (judge(by=BY), "no replica is ready"),
        (judge(by=BY_ZERO), "no fresh sample of spec.scaling.scaleToZero.queuedRequests"),
        (
            judge(by=BY_ZERO, queue=QueueSample(3, 151)),
            "no fresh sample of spec.scaling.scaleToZero.queuedRequests",
        ),
        (
            judge(by=BY_ZERO, queue=QueueSample(nan, 1)),
            "the metric of spec.scaling.scaleToZero.queuedRequests is not a count",
        ),
    ],
)
def test_without_an_opinion_there_is_a_reason(opinion, why):
    assert opinion == NoOpinion(why)


def test_there_is_no_opinion_while_the_capacity_of_a_replica_is_unknown():
    idle, unknown = load(0.0, 0.0, 0.0), replace(serving(1), reckoned={})
    opinion = judge_load(measured(idle), unknown, BY, OLDEST_SECONDS)
    why = "no replica runs a request, and the capacity of a replica is unknown yet"
    assert opinion == NoOpinion(why)
    assert isinstance(judge_load(measured(load()), unknown, BY, OLDEST_SECONDS), LoadEstimate)


def test_requests_queued_in_front_of_no_replica_need_replicas():
    opinion = judge(by=BY_ZERO, queue=QueueSample(30, 1))
    assert isinstance(opinion, LoadEstimate)
    assert opinion.need.replicas == pytest.approx(30 / (0.5 * 120) / 0.95)
    assert not opinion.is_idle


def test_only_a_complete_sample_can_be_idle():
    idle = load(0.0, 0.0, 0.0)
    assert judge(idle, by=BY).is_idle
    assert judge(idle, by=BY_ZERO, queue=QueueSample(0, 1)).is_idle
    assert not judge(idle, by=BY_ZERO, queue=QueueSample(1, 1)).is_idle
    assert not judge(idle, by=BY_ZERO).is_idle  # the queue is unknown
    assert not judge(idle, by=BY, ready=2).is_idle


@pytest.mark.parametrize(("answered", "want"), [(None, True), (0.0, True), (0.008, False)])
def test_a_replica_that_answered_a_request_between_two_scrapes_is_not_idle(answered, want):
    latencies = {} if answered is None else {"first_token": (answered / 10, answered)}
    one = load(0.0, 0.0, 0.0, **latencies)
    assert judge(one, by=BY_ZERO, queue=QueueSample(0, 1)).is_idle is want
