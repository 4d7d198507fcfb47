"""The next number of replicas: up fast, down slowly, and unchanged without telemetry."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.load.demand import terms, to_zero
from tonnage.demand.needs import Need
from tonnage.demand.opinion import LoadEstimate, NoOpinion
from tonnage.demand.step import next_step, recommend
from tonnage.demand.window import MAX_PAST, PastRecommendations, Recommendations

START = datetime(2026, 11, 22, 8, 0, tzinfo=UTC)
NO_OPINION = NoOpinion("no telemetry")


def needs(replicas: float, *, is_lower_bound: bool = False) -> LoadEstimate:
    """The load needs so many replicas, with spare; `replicas` x 10 requests are in flight."""
    need = Need("waitingRequests", replicas * 0.97)
    return LoadEstimate(
        need, replicas * 10, 10.0, 10.0, is_lower_bound, replicas == 0 and not is_lower_bound
    )


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Follower:
    """An object that is reconciled again and again."""

    def __init__(self, wanted: int, **scaling) -> None:
        self.wanted, self.recommendations = wanted, None
        self.terms = terms(**{"maxReplicas": 20, **scaling})

    def reconcile(self, second: float, opinion: LoadEstimate | NoOpinion) -> int:
        step = next_step(self.wanted, self.recommendations, opinion, self.terms, at(second))
        self.wanted, self.recommendations = step.replicas, step.recommendations
        return self.wanted


@pytest.mark.parametrize(
    ("wanted", "need", "want"),
    [
        (4, 4.0, 4),
        (4, 4.1, 5),  # the queue of an overloaded replica grows without end
        (4, 3.0, 4),  # but scaling down keeps a spare
        (4, 2.9, 3),
        (10, 8.8, 10),
        (10, 8.7, 9),
        (1, 9.0, 5),  # at most four more at a time
        (8, 40.0, 16),  # or twice as many
        (18, 40.0, 20),  # maxReplicas
        (3, 0.0, 2),  # minReplicas
    ],
)
def test_the_recommendation_follows_the_need(wanted, need, want):
    opinion = LoadEstimate(
        Need("waitingRequests", need), 0.0, 10.0, 10.0, is_lower_bound=False, is_idle=False
    )
    assert recommend(wanted, opinion, terms(minReplicas=2, maxReplicas=20)) == want


def test_the_remaining_replicas_must_hold_the_requests_in_flight():
    opinion = LoadEstimate(
        Need("waitingRequests", 2.0), 61.0, 10.0, 10.0, is_lower_bound=False, is_idle=False
    )
    assert [recommend(wanted, opinion, terms()) for wanted in (9, 7, 4, 2)] == [7, 7, 4, 2]


def test_a_lower_bound_adds_replicas_and_never_removes_any():
    by = terms()
    assert recommend(4, needs(6, is_lower_bound=True), by) == 6
    assert recommend(4, needs(1, is_lower_bound=True), by) == 4


def test_scaling_up_is_immediate_and_scaling_down_takes_five_minutes():
    follower = Follower(2)
    assert follower.reconcile(0, needs(5)) == 5
    assert follower.reconcile(15, needs(3)) == 5
    assert follower.reconcile(300, needs(3)) == 5
    assert follower.reconcile(315, needs(3)) == 3


def test_an_intermediate_recommendation_counts_from_its_end():
    follower = Follower(6)
    follower.reconcile(0, needs(2))
    follower.reconcile(100, needs(4))
    follower.reconcile(115, needs(2))  # the recommendation was 4 until now
    assert follower.reconcile(299, needs(2)) == 6
    assert follower.reconcile(301, needs(2)) == 4
    assert follower.reconcile(414, needs(2)) == 4
    assert follower.reconcile(416, needs(2)) == 2


def test_missing_telemetry_restarts_the_scale_down_window():
    follower = Follower(6)
    follower.reconcile(0, needs(2))
    assert follower.reconcile(290, NO_OPINION) == 6
    assert follower.reconcile(310, needs(2)) == 6
    assert follower.reconcile(609, needs(2)) == 6
    assert follower.reconcile(611, needs(2)) == 2


def test_no_opinion_changes_nothing_whatever_the_past_is():
    for before in (None, Recommendations(9), Recommendations(1, (PastRecommendations(7, at(0)),))):
        assert next_step(4, before, NO_OPINION, terms(), at(9)).replicas == 4


def test_an_unchanged_recommendation_changes_no_status():
    follower = Follower(4)
    follower.reconcile(0, needs(2))
    before = follower.recommendations
    for second in range(15, 300, 15):
        follower.reconcile(second, needs(2))
    assert follower.recommendations == before


def test_a_scale_up_window_follows_the_lowest_recommendation():
    follower = Follower(2, scaleUp={"stabilizationWindow": "60s"})
    assert follower.reconcile(0, needs(6)) == 2
    assert follower.reconcile(30, needs(4)) == 2
    assert follower.reconcile(59, needs(6)) == 2
    assert follower.reconcile(61, needs(6)) == 4
    assert follower.reconcile(120, needs(6)) == 6


def test_a_window_of_0_s_follows_at_once():
    follower = Follower(6, scaleDown={"stabilizationWindow": "0s"})
    assert follower.reconcile(0, needs(2)) == 2


def test_the_last_replica_goes_only_with_scale_to_zero_and_after_its_own_time():
    stays, goes = Follower(2), Follower(2, scaleToZero=to_zero("10m"))
    for follower in (stays, goes):
        assert follower.reconcile(0, needs(0)) == 2
        assert follower.reconcile(301, needs(0)) == 1
        assert follower.reconcile(599, needs(0)) == 1
    assert stays.reconcile(601, needs(0)) == 1
    assert goes.reconcile(601, needs(0)) == 0


def test_a_single_request_keeps_the_last_replica():
    follower = Follower(1, scaleToZero=to_zero("10m"))
    follower.reconcile(0, needs(0))
    follower.reconcile(500, needs(0.1))
    assert follower.reconcile(515, needs(0)) == 1
    assert follower.reconcile(1100, needs(0)) == 1
    assert follower.reconcile(1116, needs(0)) == 0


def test_a_queued_request_brings_the_replicas_back_at_once():
    follower = Follower(0, minReplicas=2, scaleToZero=to_zero())
    assert follower.reconcile(0, needs(0)) == 0
    assert follower.reconcile(15, NO_OPINION) == 0
    assert follower.reconcile(30, needs(0.1)) == 2
    follower.wanted = 0
    assert follower.reconcile(45, needs(9.5)) == 10


def test_changed_bounds_apply_at_once():
    assert next_step(9, None, NO_OPINION, terms(maxReplicas=5), START).replicas == 5
    assert next_step(1, None, NO_OPINION, terms(minReplicas=3), START).replicas == 3
    assert next_step(0, None, NO_OPINION, terms(), START).replicas == 1


def test_kept_recommendations_are_few_and_still_delay_as_long():
    past = Recommendations(60)
    for second in range(40):
        past = past.then(59 - second, at(second), timedelta(0), timedelta(minutes=5))
    assert len(past.higher) == MAX_PAST
    assert past.higher[0].replicas == 60
    assert past.highest(at(-1)) == 60
    assert past.highest(at(38)) == 21
