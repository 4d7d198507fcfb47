"""The load on replicas, in one question to Prometheus, read strictly."""

from math import isnan, nan

import pytest

from tonnage.api.scaling import QueuedRequests, ScalingTargets
from tonnage.demand.signals import Mean, PodLoad, Queue
from tonnage.telemetry.load import LoadQuestion, measure_load
from tonnage.telemetry.series import Series

NOW = 1_800_000_000.0
GAUGES = {"running": 3.0, "waiting": 1.0, "kv_usage": 0.25, "sampled": NOW - 5}


def question(deployments=("llama-mi300x",), queued=None, **targets):
    found = targets or {"waitingRequests": 1}
    return LoadQuestion(
        "chat", tuple(deployments), ScalingTargets.model_validate(found), queued=queued
    )


def series(pod, **values):
    labels = {"pod": pod} if pod else {}
    return [Series(labels | {"signal": name}, value, NOW) for name, value in values.items()]


async def measure(asked, *answer):
    async def ask(query):
        return tuple(answer)

    return await measure_load(ask, 15.0, asked)


async def question_of(asked, interval=15.0):
    queries = []

    async def ask(query):
        queries.append(query)
        return ()

    await measure_load(ask, interval, asked)
    return queries


async def test_what_is_known_of_each_replica_is_put_together():
    found = await measure(
        question(), *series("a", **GAUGES), *series("b", **GAUGES | {"waiting": 0})
    )
    assert found.pods == {"a": PodLoad(3.0, 1.0, 0.25, 5.0), "b": PodLoad(3.0, 0.0, 0.25, 5.0)}
    assert found.queue is None


async def test_latencies_are_read_where_a_target_asks_for_them():
    asked = question(timeToFirstToken="2s", timePerOutputToken="50ms")
    latencies = {"first_token_sum": 4.0, "first_token_count": 2.0, "prefill_sum": 1.0}
    more = {"prefill_count": 2.0, "per_token_sum": 6.0, "per_token_count": 100.0}
    found = await measure(asked, *series("a", **GAUGES, **latencies, **more))
    assert found.pods["a"].first_token == Mean(4.0, 2.0)
    assert found.pods["a"].prefill == Mean(1.0, 2.0)
    assert found.pods["a"].per_token == Mean(6.0, 100.0)
    found = await measure(asked, *series("a", **GAUGES, **latencies))
    assert found.pods == {}


@pytest.mark.parametrize("missing", GAUGES)
async def test_a_replica_of_which_a_signal_is_missing_is_not_seen(missing):
    some = {name: value for name, value in GAUGES.items() if name != missing}
    found = await measure(question(), *series("a", **some), *series("b", **GAUGES))
    assert set(found.pods) == {"b"}


@pytest.mark.parametrize(
    ("signal", "field"),
    [
        ("running", "running"),
        ("waiting", "waiting"),
        ("kv_usage", "kv_usage"),
        ("sampled", "age_seconds"),
    ],
)
async def test_what_is_no_number_is_told_apart_from_what_is_missing(signal, field):
    found = await measure(question(), *series("a", **GAUGES | {signal: None}))
    assert isnan(getattr(found.pods["a"], field))


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ({"queued": 7.0, "queue_sampled": NOW - 9}, Queue(7.0, 9.0)),
        ({"queued": 7.0}, None),
        ({}, None),
    ],
)
async def test_a_queue_in_front_of_the_replicas_is_read_with_its_age(values, want):
    assert (await measure(question(), *series("", **values))).queue == want


async def test_a_queue_that_is_no_number_is_not_the_same_as_none():
    found = await measure(question(), *series("", queued=None, queue_sampled=NOW))
    assert isnan(found.queue.requests)
    assert not isnan(nan if found.queue.age_seconds is None else found.queue.age_seconds)


async def test_no_answer_is_no_opinion():
    async def ask(query):
        return None

    assert await measure_load(ask, 15.0, question()) is None


async def test_all_is_asked_in_one_question_of_the_objects_own_pods():
    (asked,) = await question_of(question(["llama-mi300x", 'x"} or vector(1)', "a.b"]))
    assert asked.split(" or ")[0] == (
        "label_replace(sum by (pod) (max by (pod, engine) (avg_over_time("
        'vllm:num_requests_running{namespace="chat",pod=~"(?:llama-mi300x|a\\\\.b)-.*"}[60000ms]))),'
        ' "signal", "running", "", "")'
    )
    assert "vector" not in asked
    assert "time_to_first_token" not in asked
    assert len(asked) < 2000


async def test_windows_follow_the_interval():
    (asked,) = await question_of(question(timeToFirstToken="1s"), interval=0.5)
    assert "[2000ms]" in asked
    assert "rate(vllm:time_to_first_token_seconds_count{" in asked
    assert "[4000ms]" in asked


async def test_the_queue_is_selected_by_exactly_the_labels_that_were_given():
    queued = QueuedRequests.model_validate(
        {"metric": "gateway:queued", "matchLabels": {"model": 'a"} or vector(1) #\n\\'}}
    )
    (asked,) = await question_of(question([], queued=queued))
    selected = r"""gateway:queued{model="a\"} or vector(1) #\n\\"}"""
    assert asked == (
        f'label_replace(sum({selected}), "signal", "queued", "", "") or '
        f'label_replace(min(timestamp({selected})), "signal", "queue_sampled", "", "")'
    )


async def test_nothing_is_asked_where_there_is_nothing_to_ask_of():
    assert await question_of(question([])) == []
    assert (await measure(question([]))).pods == {}
