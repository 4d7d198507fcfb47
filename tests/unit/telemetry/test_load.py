"""The load on replicas, from one query to Prometheus."""

from dataclasses import replace
from math import isnan, nan

import pytest

from tonnage.api.scaling import QueuedRequests, ScalingTargets
from tonnage.demand.signals import Mean, PodLoad, QueueSample
from tonnage.telemetry.load import LoadQuery, measure_load
from tonnage.telemetry.series import Series

NOW = 1_800_000_000.0
GAUGES = {"running": 3.0, "waiting": 1.0, "kv_usage": 0.25, "sampled": NOW - 5}


def question(deployments=("llama-mi300x",), queued=None, **targets):
    spec = targets or {"waitingRequests": 1}
    return LoadQuery("chat", tuple(deployments), ScalingTargets.model_validate(spec), queued=queued)


def series(pod, **values):
    labels = {"pod": pod} if pod else {}
    return [Series(labels | {"signal": name}, value, NOW) for name, value in values.items()]


async def measure(load_question, *answer):
    async def ask(query):
        return tuple(answer)

    return await measure_load(ask, 15.0, load_question)


async def queries_of(load_question, interval=15.0):
    queries = []

    async def ask(query):
        queries.append(query)
        return ()

    await measure_load(ask, interval, load_question)
    return queries


async def test_the_signals_of_each_replica_are_combined():
    load = await measure(
        question(), *series("a", **GAUGES), *series("b", **GAUGES | {"waiting": 0})
    )
    assert load.pods == {"a": PodLoad(3.0, 1.0, 0.25, 5.0), "b": PodLoad(3.0, 0.0, 0.25, 5.0)}
    assert load.queue is None


async def test_latencies_are_read_if_a_target_needs_them():
    query = question(timeToFirstToken="2s", timePerOutputToken="50ms")
    latencies = {"first_token_sum": 4.0, "first_token_count": 2.0, "prefill_sum": 1.0}
    more = {"prefill_count": 2.0, "per_token_sum": 6.0, "per_token_count": 100.0}
    load = await measure(query, *series("a", **GAUGES, **latencies, **more))
    assert load.pods["a"].first_token == Mean(4.0, 2.0)
    assert load.pods["a"].prefill == Mean(1.0, 2.0)
    assert load.pods["a"].per_token == Mean(6.0, 100.0)
    load = await measure(query, *series("a", **GAUGES, **latencies))
    assert load.pods == {}


async def test_a_replica_on_sglang_has_no_latency_before_its_first_request():
    targets = {"timeToFirstToken": "2s", "timePerOutputToken": "50ms"}
    query = replace(question(**targets), engines=("sglang",))
    load = await measure(query, *series("a", **GAUGES))
    assert load.pods == {"a": PodLoad(3.0, 1.0, 0.25, 5.0)}
    latencies = {"first_token_sum": 4.0, "first_token_count": 2.0}
    load = await measure(query, *series("a", **GAUGES, **latencies))
    assert load.pods["a"].first_token == Mean(4.0, 2.0)


@pytest.mark.parametrize("missing", GAUGES)
async def test_a_replica_with_a_missing_signal_is_omitted(missing):
    others = {name: value for name, value in GAUGES.items() if name != missing}
    load = await measure(question(), *series("a", **others), *series("b", **GAUGES))
    assert set(load.pods) == {"b"}


@pytest.mark.parametrize(
    ("signal", "field"),
    [
        ("running", "running"),
        ("waiting", "waiting"),
        ("kv_usage", "kv_usage"),
        ("sampled", "age_seconds"),
    ],
)
async def test_a_value_that_is_not_a_number_is_not_missing(signal, field):
    load = await measure(question(), *series("a", **GAUGES | {signal: None}))
    assert isnan(getattr(load.pods["a"], field))


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ({"queued": 7.0, "queue_sampled": NOW - 9}, QueueSample(7.0, 9.0)),
        ({"queued": 7.0}, None),
        ({}, None),
    ],
)
async def test_a_queue_in_front_of_the_replicas_is_read_with_its_age(values, want):
    assert (await measure(question(), *series("", **values))).queue == want


async def test_requests_are_counted_for_scale_to_zero_where_the_engine_counts_them():
    queued = QueuedRequests.model_validate({"metric": "queued", "matchLabels": {"model": "a"}})
    query = question(queued=queued)
    (text,) = await queries_of(query)
    assert "rate(vllm:time_to_first_token_seconds_count{" in text
    counted = {"first_token_sum": 0.1, "first_token_count": 0.01}
    load = await measure(query, *series("a", **GAUGES, **counted), *series("b", **GAUGES))
    assert load.pods["a"].first_token == Mean(0.1, 0.01)
    assert load.pods["b"].first_token is None


async def test_a_queue_that_is_not_a_number_is_not_missing():
    load = await measure(question(), *series("", queued=None, queue_sampled=NOW))
    assert isnan(load.queue.requests)
    assert not isnan(nan if load.queue.age_seconds is None else load.queue.age_seconds)


async def test_no_answer_gives_no_load():
    async def ask(query):
        return None

    assert await measure_load(ask, 15.0, question()) is None


async def test_one_query_selects_all_signals_of_the_objects_own_pods():
    (query,) = await queries_of(question(["llama-mi300x", 'x"} or vector(1)', "a.b"]))
    assert query.split(" or ")[0] == (
        "label_replace(sum by (pod) (max by (pod, engine) (avg_over_time("
        'vllm:num_requests_running{namespace="chat",pod=~"(?:llama-mi300x|a\\\\.b)-.*"}[60000ms]))),'
        ' "signal", "running", "", "")'
    )
    assert "vector" not in query
    assert "time_to_first_token" not in query
    assert len(query) < 2000


async def test_windows_follow_the_interval():
    (query,) = await queries_of(question(timeToFirstToken="1s"), interval=0.5)
    assert "[2000ms]" in query
    assert "rate(vllm:time_to_first_token_seconds_count{" in query
    assert "[4000ms]" in query


async def test_the_queue_is_selected_by_exactly_the_given_labels():
    queued = QueuedRequests.model_validate(
        {"metric": "gateway:queued", "matchLabels": {"model": 'a"} or vector(1) #\n\\'}}
    )
    (query,) = await queries_of(question([], queued=queued))
    selected = r"""gateway:queued{model="a\"} or vector(1) #\n\\"}"""
    assert query == (
        f'label_replace(sum({selected}), "signal", "queued", "", "") or '
        f'label_replace(min(timestamp({selected})), "signal", "queue_sampled", "", "")'
    )


async def test_without_deployments_and_queue_no_query_is_sent():
    assert await queries_of(question([])) == []
    assert (await measure(question([]))).pods == {}
