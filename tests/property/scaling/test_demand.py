"""Recommendations for any measurement: within bounds, monotonic, and without flapping."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf, nan

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.load.demand import OLDEST_SECONDS, RECKONED, measured, serving, terms, to_zero
from tonnage.demand.capacity import EstimatedCapacity
from tonnage.demand.opinion import NoOpinion, judge_load
from tonnage.demand.signals import Mean, PodLoad, QueueSample
from tonnage.demand.step import next_step
from tonnage.demand.window import PastRecommendations, Recommendations

START = datetime(2026, 11, 22, 8, 0, tzinfo=UTC)
LOOK = timedelta(seconds=15)

amounts = st.floats(0, 1000)
shares = st.floats(0, 1)
anything = st.floats(allow_nan=True, allow_infinity=True)
means = st.none() | st.builds(Mean, amounts, amounts)
sound_loads = st.builds(
    PodLoad, amounts, amounts, shares, st.floats(0, OLDEST_SECONDS), means, means, means
)
any_loads = st.builds(PodLoad, anything, anything, anything, anything, means, means, means)
queues = st.none() | st.builds(QueueSample, amounts, st.floats(0, 2 * OLDEST_SECONDS))
targets = st.fixed_dictionaries(
    {},
    optional={
        "waitingRequests": st.integers(1, 20),
        "kvCacheUsage": st.floats(0.05, 1),
        "runningRequests": st.integers(1, 100),
        "timeToFirstToken": st.sampled_from(["100ms", "2s", "1m"]),
        "timePerOutputToken": st.sampled_from(["10ms", "50ms"]),
    },
).filter(bool)
all_terms = st.builds(
    lambda chosen, least, more, zero: terms(
        chosen,
        minReplicas=least,
        maxReplicas=least + more,
        **({"scaleToZero": to_zero()} if zero else {}),
    ),
    targets,
    st.integers(1, 5),
    st.integers(0, 40),
    st.booleans(),
)
moments = st.integers(0, 3600).map(lambda seconds: START - timedelta(seconds=seconds))
pasts = st.builds(PastRecommendations, st.integers(0, 60), moments)
recommendations = st.none() | st.builds(
    Recommendations,
    st.integers(0, 60),
    st.lists(pasts, max_size=5).map(tuple),
    st.lists(pasts, max_size=5).map(tuple),
)


@given(
    st.lists(any_loads | sound_loads, max_size=6),
    st.integers(0, 6),
    queues,
    st.integers(0, 80),
    recommendations,
    all_terms,
)
def test_the_recommendation_stays_within_its_bounds(loads, ready, queue, wanted, past, by):
    opinion = judge_load(measured(*loads, queue=queue), serving(ready), by, OLDEST_SECONDS)
    step = next_step(wanted, past, opinion, by, START)
    assert by.fewest <= step.replicas <= by.max_replicas
    assert step.replicas == 0 or step.replicas >= by.min_replicas


@given(
    st.lists(sound_loads, min_size=1, max_size=5),
    st.integers(0, 4),
    st.sampled_from(["running", "waiting", "kv_usage", "age_seconds"]),
    st.sampled_from([nan, inf, -inf, -1.0]),
    st.integers(1, 40),
    recommendations,
    all_terms,
)
def test_an_impossible_value_changes_nothing(loads, which, signal, wrong, wanted, past, by):
    loads[which % len(loads)] = replace(loads[which % len(loads)], **{signal: wrong})
    assume(by.within(wanted) == wanted)
    opinion = judge_load(measured(*loads), serving(len(loads)), by, OLDEST_SECONDS)
    assert isinstance(opinion, NoOpinion)
    assert next_step(wanted, past, opinion, by, START).replicas == wanted


@given(
    st.lists(sound_loads, min_size=1, max_size=5),
    st.integers(1, 4),
    st.integers(1, 40),
    st.integers(0, 100),
    all_terms,
)
def test_a_partial_sample_never_removes_a_replica(loads, unseen, wanted, looks, by):
    wanted, past = by.within(wanted), None
    part = measured(*loads)
    for number in range(looks):
        opinion = judge_load(part, serving(len(loads) + unseen), by, OLDEST_SECONDS)
        step = next_step(wanted, past, opinion, by, START + number * LOOK)
        assert step.replicas >= wanted
        wanted, past = step.replicas, step.recommendations


@given(
    st.floats(1, 100),
    st.just(0.0) | st.floats(1, 1000),
    shares,
    st.floats(1, 10),
    st.integers(1, 5),
    all_terms.filter(lambda by: not by.time_to_first_token and not by.time_per_output_token),
)
def test_more_load_never_needs_fewer_replicas(running, waiting, usage, factor, ready, by):
    """Evenly over all replicas; of those that are full more requests wait, on others more run."""
    some = PodLoad(running, waiting, usage, 5.0)
    if waiting:
        more = replace(some, waiting=waiting * factor)
    else:
        factor = min(factor, RECKONED.max_num_seqs / running, 1 / max(usage, 0.1))
        more = replace(some, running=running * factor, kv_usage=min(1.0, usage * factor))
    before, after = (
        judge_load(measured(*[each] * ready), serving(ready), by, OLDEST_SECONDS)
        for each in (some, more)
    )
    assert after.need.replicas >= before.need.replicas * (1 - 1e-9)


@given(
    st.floats(0, 30),
    st.integers(1, 20),
    st.integers(5, 100),
    st.floats(0, 0.5),
    st.integers(1, 10),
    st.sampled_from([{"waitingRequests": 1}, {"waitingRequests": 5, "kvCacheUsage": 0.8}]),
)
def test_a_constant_load_converges_to_sufficient_replicas(
    work, wanted, full, growth, least, chosen
):
    """`work` full replicas' worth of requests come all the time, whatever the replicas are."""
    by = terms(chosen, minReplicas=least, maxReplicas=400)
    wanted, past, seen = by.within(wanted), None, []
    reckoned = EstimatedCapacity(full, 100, requests_per_second=full / 30, growth=growth)
    waiting = 0.0
    for number in range(80):
        over = max(0.0, work - wanted)
        waiting = max(0.0, waiting + (work - wanted) * full / 30 * LOOK.total_seconds())
        running = full if over or waiting else running_for(work / wanted, full, growth)
        load = PodLoad(running, waiting / wanted, running / full, 5.0)
        expected = replace(serving(wanted), reckoned={"mi300x": reckoned})
        opinion = judge_load(measured(*[load] * wanted), expected, by, OLDEST_SECONDS)
        step = next_step(wanted, past, opinion, by, START + number * LOOK)
        wanted, past = step.replicas, step.recommendations
        seen.append(wanted)
    assert len(set(seen[-30:])) == 1, seen
    assert work <= wanted * by.conventions.most_busy + 1e-6
    # 0.8 of the cache is 0.8 of the work at least, and that much and some is kept to spare.
    assert wanted == by.min_replicas or (wanted - 1) * 0.8 <= work * 1.04


def running_for(share: float, full: float, growth: float) -> float:
    """Requests that run on a replica which does so much of what it can: the curve backwards."""
    alone, longest = 1 - growth, 1 + growth * (full - 1)
    running = share * full * alone / (longest - share * full * growth)
    return running if running >= 1 else share * full / longest
