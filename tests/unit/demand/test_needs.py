"""Replicas that a measured load needs, counted in work and not in pods."""

from dataclasses import replace

import pytest

from tests.support.load.demand import (
    OLDEST_SECONDS,
    RECKONED,
    judge,
    load,
    measured,
    serving,
    terms,
)
from tonnage.demand.capacity import EstimatedCapacity
from tonnage.demand.opinion import LoadEstimate, judge_load


def need(*loads, by, ready=None, queue=None):
    opinion = judge(*loads, by=by, ready=ready, queue=queue)
    assert isinstance(opinion, LoadEstimate), opinion
    return opinion.need.target, pytest.approx(opinion.need.replicas)


IDLE = load(running=0.0, kv_usage=0.0)


BUSY = 0.95
"""Most of its work that a replica should do."""
QUEUE = 0.5 * 120
"""Requests that a replica answers in the time in which it has to work off a queue."""


@pytest.mark.parametrize(
    ("targets", "loads", "want"),
    [
        # 10 of 20 requests are 7/9 of the work
        ({"waitingRequests": 1}, [load()] * 4, ("waitingRequests", 4 * 7 / 9 / BUSY)),
        # With a queue a replica is full with its running requests; one may wait for each
        (
            {"waitingRequests": 1},
            [load(10, 20, 0.5)] * 2,
            ("waitingRequests", (2 + 38 / QUEUE) / BUSY),
        ),
        # Fewer than one waiting request on average is no queue
        (
            {"waitingRequests": 1},
            [load(10, 0.5, 0.5)] * 2,
            ("waitingRequests", 2 * 7 / 9 / BUSY),
        ),
        # max_num_seqs limits the capacity, however little of the cache the requests take
        (
            {"waitingRequests": 5},
            [load(90, 0, 0.1)] * 2,
            ("waitingRequests", 2 * 0.9 * 108 / 98 / BUSY),
        ),
        ({"waitingRequests": 1}, [IDLE] * 4, ("waitingRequests", 0.0)),
        # 18 of 20 requests would exceed most_busy, 8 are 7/10
        ({"kvCacheUsage": 0.9}, [load()] * 2, ("requests in flight", 2 * 7 / 9 / BUSY)),
        ({"kvCacheUsage": 0.4}, [load()] * 2, ("kvCacheUsage", 2 * 7 / 9 / 0.7)),
        # Without another target no request may wait
        (
            {"kvCacheUsage": 0.8},
            [load(10, 10, 0.5)] * 2,
            ("requests in flight", (2 + 20 / QUEUE) / BUSY),
        ),
        (
            {"runningRequests": 5},
            [load(10, 5, 0.5)] * 2,
            ("runningRequests", (2 + 10 / QUEUE) / (0.5 * 18 / 13)),
        ),
        # The target that needs most
        (
            {"runningRequests": 10, "kvCacheUsage": 0.25},
            [load()] * 2,
            ("kvCacheUsage", 2 * 7 / 9 / (0.25 * 28 / 13)),
        ),
    ],
)
def test_each_target_has_its_need(targets, loads, want):
    assert need(*loads, by=terms(targets)) == want


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_the_need_does_not_depend_on_the_number_of_replicas(replicas):
    """The work of 0.8 full replicas, spread over one or many: fewer requests run on each."""
    share = 0.8 / replicas
    running = share * 8 / (1 + 8 / 20 - share)  # of which 20 x (running + 8) do 28 x running
    loads = [load(running, 0.0, running / 20)] * replicas
    assert need(*loads, by=terms())[1] == pytest.approx(0.8 / BUSY)


@pytest.mark.parametrize(
    ("prefill", "waiting", "allowed"),
    [
        (1.0, 20.0, 0.5),  # a replica answers 0.5 requests/s, and 1 s is left after the prefill
        (0.2, 20.0, 0.9),
        (1.0, 0.4, 0.5),
        (3.0, 20.0, 0.0),  # no number of replicas makes a prompt shorter
    ],
)
def test_requests_that_get_their_first_token_in_time_may_wait(prefill, waiting, allowed):
    means = {"first_token": (9.0, 3.0), "prefill": (prefill * 2, 2.0)}
    actual = need(*[load(10, waiting, 0.5, **means)] * 2, by=terms({"timeToFirstToken": "2s"}))
    work = 2.0 if waiting >= 1 else 2 * 7 / 9
    excess = max(0.0, 2 * waiting - 2 * allowed)
    assert actual == ("timeToFirstToken", (work + excess / QUEUE) / BUSY)


@pytest.mark.parametrize(
    ("running", "milliseconds", "batch"),
    [
        (10, 80.0, 3.25),  # 5/8 of the time with ten requests, which is twice that with one
        (10, 50.0, 10.0),
        (10, 40.0, 14.5),
        (2, 800.0, 1.0),  # even a single request misses the target
    ],
)
def test_requests_that_keep_the_time_between_tokens_may_run(running, milliseconds, batch):
    each = load(running, 0.0, running / 20, per_token=(milliseconds, 1000.0))
    actual = need(*[each] * 2, by=terms({"timePerOutputToken": "50ms"}))
    work, share = (n / 20 * 28 / (n + 8) for n in (running, batch))
    assert actual == ("timePerOutputToken", 2 * work / share)


def test_the_need_is_at_most_one_replica_for_each_request():
    slow = replace(serving(1), reckoned={"mi300x": replace(RECKONED, requests_per_second=1e-6)})
    opinion = judge_load(measured(load(10, 5, 0.5)), slow, terms(), OLDEST_SECONDS)
    assert opinion.need.replicas == 15


def test_latencies_without_observations_need_no_replica():
    by = terms({"timeToFirstToken": "2s", "timePerOutputToken": "50ms"})
    none = (0.0, 0.0)
    idle = load(0.0, 0.0, 0.0, first_token=none, prefill=none, per_token=none)
    assert need(idle, idle, by=by) == ("timeToFirstToken", 0.0)


def test_replicas_of_a_placement_without_an_estimate_count_by_their_capacity():
    # An H100 holds 10 requests and an MI300X 40: a full H100 is a quarter of an MI300X.
    loads = [load(20, 0, 0.5), *[load(5, 0, 0.5)] * 2]
    opinion = judge_load(measured(*loads), serving(1, "mi300x", h100=2), terms(), OLDEST_SECONDS)
    assert opinion.capacity == 40
    own, other = 0.5 * 48 / 28, 0.5 * 18 / 13
    assert opinion.need.replicas == pytest.approx((own + 2 * other / 4) / BUSY)


def test_a_secondary_placement_counts_by_its_throughput_and_not_by_its_capacity():
    """A full replica of it holds as many requests as the others and answers half as many."""
    slow = replace(RECKONED, requests_at_once=20, requests_per_second=0.25)
    expected = replace(serving(2, h100=2), reckoned={"mi300x": RECKONED, "h100": slow})
    full = [load(20.0, kv_usage=1.0)] * 4
    opinion = judge_load(measured(*full), expected, terms(), OLDEST_SECONDS)
    assert opinion.need.replicas == pytest.approx((2 + 2 * 0.5) / BUSY)
    assert (opinion.capacity, opinion.smallest_capacity) == (20, 20)


def test_the_smallest_capacity_is_that_of_the_placement_that_holds_fewest_for_its_throughput():
    """An H100 holds a quarter of the requests for half of the throughput: ten against twenty."""
    small = replace(RECKONED, requests_at_once=5, requests_per_second=0.25)
    expected = replace(serving(1, h100=1), reckoned={"mi300x": RECKONED, "h100": small})
    opinion = judge_load(
        measured(load(20.0, kv_usage=1.0), load(5.0, kv_usage=1.0)),
        expected,
        terms(),
        OLDEST_SECONDS,
    )
    assert (opinion.capacity, opinion.smallest_capacity) == (20, 10)


def test_without_a_throughput_estimate_requests_slow_each_other_down_as_usual():
    unknown = EstimatedCapacity(requests_at_once=20, max_num_seqs=100)
    expected = replace(serving(2), reckoned={"mi300x": unknown})
    full = judge_load(measured(*[load(20, 10, 1)] * 2), expected, terms(), OLDEST_SECONDS)
    half = judge_load(measured(*[load(10, 0, 0.5)] * 2), expected, terms(), OLDEST_SECONDS)
    # Without an estimate, replicas run the waiting requests concurrently.
    assert full.need.replicas == pytest.approx((2 + 18 / 20) / BUSY)
    assert half.need.replicas == pytest.approx(2 * 0.5 * 5 / (1 + 4 * 9 / 19) / BUSY)


@pytest.mark.parametrize("running", [5e-324, 1e-300, 0.01])
def test_one_request_takes_at_most_the_whole_cache(running):
    opinion = judge(load(running, 0, 1.0), by=terms({"kvCacheUsage": 1.0}))
    assert isinstance(opinion, LoadEstimate), opinion
    assert opinion.need.replicas <= running
