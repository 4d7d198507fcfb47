"""Replicas that a measured load needs: work is counted, not pods."""

from dataclasses import replace

import pytest

from tests.support.demand import (
    OLDEST_SECONDS,
    RECKONED,
    judge,
    load,
    measured,
    serving,
    terms,
)
from tonnage.demand.capacity import ReckonedCapacity
from tonnage.demand.opinion import Opinion, judge_load


def need(*loads, by, ready=None, queue=None):
    found = judge(*loads, by=by, ready=ready, queue=queue)
    assert isinstance(found, Opinion), found
    return found.need.target, pytest.approx(found.need.replicas)


IDLE = load(running=0.0, kv_usage=0.0)


BUSY = 0.95
"""What a replica is to do at most of what it can."""
QUEUE = 0.5 * 120
"""Requests that a replica answers in the time in which a queue is to be worked off."""


@pytest.mark.parametrize(
    ("targets", "loads", "want"),
    [
        # 10 of 20 requests are 7/9 of the work
        ({"waitingRequests": 1}, [load()] * 4, ("waitingRequests", 4 * 7 / 9 / BUSY)),
        # With a queue a replica holds what runs, and is full; one may wait for each
        (
            {"waitingRequests": 1},
            [load(10, 20, 0.5)] * 2,
            ("waitingRequests", (2 + 38 / QUEUE) / BUSY),
        ),
        # Fewer than one request on the average is no queue
        (
            {"waitingRequests": 1},
            [load(10, 0.5, 0.5)] * 2,
            ("waitingRequests", 2 * 7 / 9 / BUSY),
        ),
        # No more than vLLM schedules, however little of the cache they take
        (
            {"waitingRequests": 5},
            [load(90, 0, 0.1)] * 2,
            ("waitingRequests", 2 * 0.9 * 108 / 98 / BUSY),
        ),
        ({"waitingRequests": 1}, [IDLE] * 4, ("waitingRequests", 0.0)),
        # 18 of 20 requests would be more than a replica is to do, 8 are 7/10
        ({"kvCacheUsage": 0.9}, [load()] * 2, ("requests in flight", 2 * 7 / 9 / BUSY)),
        ({"kvCacheUsage": 0.4}, [load()] * 2, ("kvCacheUsage", 2 * 7 / 9 / 0.7)),
        # Without another target nothing may wait
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
        # The target that needs most of them
        (
            {"runningRequests": 10, "kvCacheUsage": 0.25},
            [load()] * 2,
            ("kvCacheUsage", 2 * 7 / 9 / (0.25 * 28 / 13)),
        ),
    ],
)
def test_the_need_by_target(targets, loads, want):
    assert need(*loads, by=terms(targets)) == want


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_the_same_load_needs_the_same_on_however_many_replicas(replicas):
    """The work of 0.8 full replicas, spread over one or many: fewer requests run on each."""
    share = 0.8 / replicas
    running = share * 8 / (1 + 8 / 20 - share)  # of which 20 x (running + 8) do 28 x running
    loads = [load(running, 0.0, running / 20)] * replicas
    assert need(*loads, by=terms())[1] == pytest.approx(0.8 / BUSY)


@pytest.mark.parametrize(
    ("prompt", "waiting", "may_wait"),
    [
        (1.0, 20.0, 0.5),  # half a request a second: in the second that is left half a one
        (0.2, 20.0, 0.9),
        (1.0, 0.4, 0.5),
        (3.0, 20.0, 0.0),  # no number of replicas makes a prompt shorter
    ],
)
def test_as_many_may_wait_as_get_their_first_token_in_time(prompt, waiting, may_wait):
    means = {"first_token": (9.0, 3.0), "prefill": (prompt * 2, 2.0)}
    found = need(*[load(10, waiting, 0.5, **means)] * 2, by=terms({"timeToFirstToken": "2s"}))
    done = 2.0 if waiting >= 1 else 2 * 7 / 9
    excess = max(0.0, 2 * waiting - 2 * may_wait)
    assert found == ("timeToFirstToken", (done + excess / QUEUE) / BUSY)


@pytest.mark.parametrize(
    ("running", "milliseconds", "batch"),
    [
        (10, 80.0, 3.25),  # 5/8 of the time that ten take, which is twice that of one
        (10, 50.0, 10.0),
        (10, 40.0, 14.5),
        (2, 800.0, 1.0),  # not even one alone keeps to it
    ],
)
def test_as_many_may_run_as_keep_to_the_time_between_tokens(running, milliseconds, batch):
    each = load(running, 0.0, running / 20, per_token=(milliseconds, 1000.0))
    found = need(*[each] * 2, by=terms({"timePerOutputToken": "50ms"}))
    done, share = (n / 20 * 28 / (n + 8) for n in (running, batch))
    assert found == ("timePerOutputToken", 2 * done / share)


def test_a_replica_for_each_request_is_the_most_that_helps():
    slow = replace(serving(1), reckoned={"mi300x": replace(RECKONED, requests_per_second=1e-6)})
    found = judge_load(measured(load(10, 5, 0.5)), slow, terms(), OLDEST_SECONDS)
    assert found.need.replicas == 15


def test_latencies_of_nobody_need_nothing():
    by = terms({"timeToFirstToken": "2s", "timePerOutputToken": "50ms"})
    none = (0.0, 0.0)
    idle = load(0.0, 0.0, 0.0, first_token=none, prefill=none, per_token=none)
    assert need(idle, idle, by=by) == ("timeToFirstToken", 0.0)


def test_replicas_of_another_placement_count_by_what_they_hold():
    # An H100 holds 10 requests where an MI300X holds 40: full it is a quarter of one.
    loads = [load(20, 0, 0.5), *[load(5, 0, 0.5)] * 2]
    found = judge_load(measured(*loads), serving(1, "mi300x", h100=2), terms(), OLDEST_SECONDS)
    assert found.capacity == 40
    own, other = 0.5 * 48 / 28, 0.5 * 18 / 13
    assert found.need.replicas == pytest.approx((own + 2 * other / 4) / BUSY)


def test_a_placement_beside_counts_by_what_it_answers_whatever_it_holds():
    """A full one holds as many requests as the others and answers half of what they do."""
    slow = replace(RECKONED, requests_at_once=20, requests_per_second=0.25)
    expected = replace(serving(2, h100=2), reckoned={"mi300x": RECKONED, "h100": slow})
    full = [load(20.0, kv_usage=1.0)] * 4
    found = judge_load(measured(*full), expected, terms(), OLDEST_SECONDS)
    assert found.need.replicas == pytest.approx((2 + 2 * 0.5) / BUSY)
    assert (found.capacity, found.room) == (20, 20)


def test_there_is_room_for_what_is_in_flight_wherever_it_may_be():
    """A quarter of the requests for half of the work: there is room for ten where one of the others
    has it for twenty."""
    small = replace(RECKONED, requests_at_once=5, requests_per_second=0.25)
    expected = replace(serving(1, h100=1), reckoned={"mi300x": RECKONED, "h100": small})
    found = judge_load(
        measured(load(20.0, kv_usage=1.0), load(5.0, kv_usage=1.0)),
        expected,
        terms(),
        OLDEST_SECONDS,
    )
    assert (found.capacity, found.room) == (20, 10)


def test_without_figures_of_the_device_requests_slow_each_other_down_as_usual():
    unknown = ReckonedCapacity(requests_at_once=20, max_num_seqs=100)
    expected = replace(serving(2), reckoned={"mi300x": unknown})
    full = judge_load(measured(*[load(20, 10, 1)] * 2), expected, terms(), OLDEST_SECONDS)
    half = judge_load(measured(*[load(10, 0, 0.5)] * 2), expected, terms(), OLDEST_SECONDS)
    assert full.need.replicas == pytest.approx((2 + 18 / 20) / BUSY)  # what waits is to run
    assert half.need.replicas == pytest.approx(2 * 0.5 * 5 / (1 + 4 * 9 / 19) / BUSY)


@pytest.mark.parametrize("running", [5e-324, 1e-300, 0.01])
def test_hardly_a_request_takes_no_more_than_the_whole_cache(running):
    found = judge(load(running, 0, 1.0), by=terms({"kvCacheUsage": 1.0}))
    assert isinstance(found, Opinion), found
    assert found.need.replicas <= running
