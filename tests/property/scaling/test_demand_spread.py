"""Load on replicas of several placements: equal load gives an equal need."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.load.demand import OLDEST_SECONDS, measured, terms
from tonnage.demand.capacity import EstimatedCapacity
from tonnage.demand.curve import ServingCurve
from tonnage.demand.opinion import LoadEstimate, Serving, judge_load
from tonnage.demand.signals import PodLoad

kinds = st.builds(
    EstimatedCapacity,
    st.integers(20, 200),
    st.integers(200, 1000),
    st.floats(0.1, 50),
    st.floats(0.001, 0.2),
)
counts = st.integers(1, 6)
shares = st.floats(0.6, 1.0)
targets = st.sampled_from(
    [{"waitingRequests": 1}, {"timeToFirstToken": "2s"}, {"kvCacheUsage": 0.5}]
)


def full_share(kind: EstimatedCapacity, share: float) -> PodLoad:
    """A replica that does so much of what it can."""
    full, growth = kind.requests_at_once, kind.growth or 0.0
    running = share * full * (1 - growth) / (1 + growth * (full - 1) - share * full * growth)
    return PodLoad(running, 0.0, running / full, 5.0)


def answers(kind: EstimatedCapacity) -> float:
    """Requests a second."""
    assert kind.requests_per_second is not None, "figures are known"
    return kind.requests_per_second


def judge(
    first: str,
    placements: dict[str, tuple[EstimatedCapacity, int, float]],
    target: dict[str, object],
) -> LoadEstimate:
    """What follows where `first` is to grow: (a replica, how many there are, what each does)."""
    loads, pods = [], {}
    for name, (kind, count, share) in placements.items():
        for _ in range(count):
            pods[f"pod-{len(loads)}"] = name
            loads.append(full_share(kind, share))
    reckoned = {name: kind for name, (kind, _, _) in placements.items()}
    serving = Serving(pods, frozenset(pods), first, reckoned)
    estimate = judge_load(measured(*loads), serving, terms(target), OLDEST_SECONDS)
    assert isinstance(estimate, LoadEstimate)
    return estimate


@given(kinds, kinds, counts, counts, shares, shares)
def test_the_need_is_in_replicas_of_the_placement_that_scales(
    one: EstimatedCapacity, other: EstimatedCapacity, many: int, few: int, share: float, less: float
) -> None:
    estimate = judge(
        "a", {"a": (one, many, share), "b": (other, few, less)}, {"waitingRequests": 1}
    )
    worth = answers(other) / answers(one)
    assume(estimate.need.replicas < estimate.in_flight)
    busy = terms().conventions.most_busy
    assert estimate.need.replicas == pytest.approx((many * share + few * less * worth) / busy)


@given(kinds, kinds, counts, counts, shares, targets)
def test_the_load_does_not_depend_on_the_placement_that_scales(
    one: EstimatedCapacity,
    other: EstimatedCapacity,
    many: int,
    few: int,
    share: float,
    target: dict[str, object],
) -> None:
    placements = {"a": (one, many, share), "b": (other, few, share)}
    first, second = judge("a", placements, target), judge("b", placements, target)
    assume(first.need.replicas < first.in_flight and second.need.replicas < second.in_flight)
    answered = first.need.replicas * answers(one)
    assert answered == pytest.approx(second.need.replicas * answers(other))


@given(kinds, counts, counts, shares, targets)
def test_placements_of_equal_replicas_count_as_one(
    kind: EstimatedCapacity, many: int, few: int, share: float, target: dict[str, object]
) -> None:
    apart = judge("a", {"a": (kind, many, share), "b": (kind, few, share)}, target)
    together = judge("a", {"a": (kind, many + few, share)}, target)
    assert apart.need.replicas == pytest.approx(together.need.replicas)
    assert (apart.in_flight, apart.smallest_capacity) == pytest.approx(
        (together.in_flight, together.smallest_capacity)
    )


def test_a_batch_on_the_curve_has_the_requested_throughput() -> None:
    kind = EstimatedCapacity(100, 1000, 1.0, 0.02)
    assert ServingCurve(0.02).work(full_share(kind, 0.5).running, 100.0) == pytest.approx(0.5)
