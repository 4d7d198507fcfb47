"""The number that is wanted next: up fast, down slowly, and never on what is not known."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.demand import terms, to_zero
from tonnage.demand.needs import Need
from tonnage.demand.opinion import NoOpinion, Opinion
from tonnage.demand.step import next_step, recommend
from tonnage.demand.window import MAX_PAST, Past, Recommendations

START = datetime(2026, 11, 22, 8, 0, tzinfo=UTC)
NOBODY_KNOWS = NoOpinion("nobody knows")


def asks(replicas: float, *, is_bound: bool = False) -> Opinion:
    """So many replicas are needed, with enough to spare; `replicas` x 10 requests are in flight."""
    need = Need("waitingRequests", replicas * 0.97)
    return Opinion(need, replicas * 10, 10.0, 10.0, is_bound, replicas == 0 and not is_bound)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Follower:
    """An object that is looked at again and again."""

    def __init__(self, wanted: int, **scaling) -> None:
        self.wanted, self.past = wanted, None
        self.terms = terms(**{"maxReplicas": 20, **scaling})

    def look(self, second: float, opinion: Opinion | NoOpinion) -> int:
        step = next_step(self.wanted, self.past, opinion, self.terms, at(second))
        self.wanted, self.past = step.replicas, step.recommendations
        return self.wanted


@pytest.mark.parametrize(
    ("wanted", "need", "want"),
    [
        (4, 4.0, 4),
        (4, 4.1, 5),  # a replica that has more to do than it can do has a queue without end
        (4, 3.0, 4),  # but one that is given up must not be missed
        (4, 2.9, 3),
        (10, 8.8, 10),
        (10, 8.7, 9),
        (1, 9.0, 5),  # four more at a time
        (8, 40.0, 16),  # or twice as many
        (18, 40.0, 20),  # no more than may be
        (3, 0.0, 2),  # no fewer either
    ],
)
def test_what_is_recommended(wanted, need, want):
    opinion = Opinion(Need("waitingRequests", need), 0.0, 10.0, 10.0, is_bound=False, is_idle=False)
    assert recommend(wanted, opinion, terms(minReplicas=2, maxReplicas=20)) == want


def test_what_is_in_flight_has_to_find_room_on_those_that_are_left():
    opinion = Opinion(Need("waitingRequests", 2.0), 61.0, 10.0, 10.0, is_bound=False, is_idle=False)
    assert [recommend(wanted, opinion, terms()) for wanted in (9, 7, 4, 2)] == [7, 7, 4, 2]


def test_a_lower_bound_asks_for_more_and_never_for_fewer():
    by = terms()
    assert recommend(4, asks(6, is_bound=True), by) == 6
    assert recommend(4, asks(1, is_bound=True), by) == 4


def test_more_is_followed_at_once_and_fewer_after_five_minutes():
    follower = Follower(2)
    assert follower.look(0, asks(5)) == 5
    assert follower.look(15, asks(3)) == 5
    assert follower.look(300, asks(3)) == 5
    assert follower.look(315, asks(3)) == 3


def test_what_was_asked_for_in_between_counts_from_its_end():
    follower = Follower(6)
    follower.look(0, asks(2))
    follower.look(100, asks(4))
    follower.look(115, asks(2))  # four were asked for until now
    assert follower.look(299, asks(2)) == 6
    assert follower.look(301, asks(2)) == 4
    assert follower.look(414, asks(2)) == 4
    assert follower.look(416, asks(2)) == 2


def test_a_gap_in_what_is_known_begins_the_wait_anew():
    follower = Follower(6)
    follower.look(0, asks(2))
    assert follower.look(290, NOBODY_KNOWS) == 6
    assert follower.look(310, asks(2)) == 6
    assert follower.look(609, asks(2)) == 6
    assert follower.look(611, asks(2)) == 2


def test_nobody_knows_changes_nothing_whatever_the_past_is():
    for before in (None, Recommendations(9), Recommendations(1, (Past(7, at(0)),))):
        assert next_step(4, before, NOBODY_KNOWS, terms(), at(9)).replicas == 4


def test_what_changes_nothing_leaves_nothing_to_write():
    follower = Follower(4)
    follower.look(0, asks(2))
    past = follower.past
    for second in range(15, 300, 15):
        follower.look(second, asks(2))
    assert follower.past == past


def test_a_window_for_more_waits_for_the_least_that_was_asked_for():
    follower = Follower(2, scaleUp={"stabilizationWindow": "60s"})
    assert follower.look(0, asks(6)) == 2
    assert follower.look(30, asks(4)) == 2
    assert follower.look(59, asks(6)) == 2
    assert follower.look(61, asks(6)) == 4
    assert follower.look(120, asks(6)) == 6


def test_a_window_of_nothing_follows_at_once():
    follower = Follower(6, scaleDown={"stabilizationWindow": "0s"})
    assert follower.look(0, asks(2)) == 2


def test_the_last_replica_goes_only_where_that_is_asked_for_and_after_its_own_time():
    stays, goes = Follower(2), Follower(2, scaleToZero=to_zero("10m"))
    for follower in (stays, goes):
        assert follower.look(0, asks(0)) == 2
        assert follower.look(301, asks(0)) == 1
        assert follower.look(599, asks(0)) == 1
    assert stays.look(601, asks(0)) == 1
    assert goes.look(601, asks(0)) == 0


def test_a_single_request_keeps_the_last_replica():
    follower = Follower(1, scaleToZero=to_zero("10m"))
    follower.look(0, asks(0))
    follower.look(500, asks(0.1))
    assert follower.look(515, asks(0)) == 1
    assert follower.look(1100, asks(0)) == 1
    assert follower.look(1116, asks(0)) == 0


def test_what_queues_brings_the_replicas_back_at_once():
    follower = Follower(0, minReplicas=2, scaleToZero=to_zero())
    assert follower.look(0, asks(0)) == 0
    assert follower.look(15, NOBODY_KNOWS) == 0
    assert follower.look(30, asks(0.1)) == 2
    follower.wanted = 0
    assert follower.look(45, asks(9.5)) == 10


def test_bounds_that_the_user_has_changed_hold_at_once():
    assert next_step(9, None, NOBODY_KNOWS, terms(maxReplicas=5), START).replicas == 5
    assert next_step(1, None, NOBODY_KNOWS, terms(minReplicas=3), START).replicas == 3
    assert next_step(0, None, NOBODY_KNOWS, terms(), START).replicas == 1


def test_few_recommendations_are_kept_and_none_holds_back_for_less_time():
    past = Recommendations(60)
    for second in range(40):
        past = past.then(59 - second, at(second), timedelta(0), timedelta(minutes=5))
    assert len(past.higher) == MAX_PAST
    assert past.higher[0].replicas == 60
    assert past.highest(at(-1)) == 60
    assert past.highest(at(38)) == 21
