"""The KV cache that vLLM measured, from fresh series of the Deployment's own pods."""

import pytest

from tonnage.engines.metrics import MeasuredCache
from tonnage.telemetry.cache import measure_caches, smallest_cache_by_placement
from tonnage.telemetry.pods import ServingPod, select_pods
from tonnage.telemetry.series import Series

NOW = 1_800_000_000.0


def series(pod="llama-0", tokens="524288", engine="0", sampled=NOW - 20):
    labels = {"pod": pod, "engine": engine, "namespace": "chat", "kv_cache_size_tokens": tokens}
    return Series(labels, sampled, NOW)


def pod(name):
    return ServingPod(name, f"{name}/0", None, "vllm")


async def measure(*answer, pods=("llama-0", "a", "b")):
    async def ask(query):
        return answer

    return await measure_caches(ask, "chat", map(pod, pods))


@pytest.mark.parametrize(
    ("answer", "want_tokens"),
    [
        pytest.param([series()], {"llama-0": 524288}, id="one replica"),
        pytest.param(
            [series("a", "90"), series("b", "80")], {"a": 90, "b": 80}, id="each of two replicas"
        ),
        pytest.param(
            [series(engine="0", tokens="40"), series(engine="1", tokens="30")],
            {"llama-0": 70},
            id="the sum of two data-parallel engines",
        ),
        pytest.param(
            [series(tokens="10", sampled=NOW - 60), series(tokens="20", sampled=NOW - 5)],
            {"llama-0": 20},
            id="the newer of two series after a restart",
        ),
        pytest.param(
            [series("a", "90"), series("b", "None")], {"a": 90}, id="one is not sized yet"
        ),
        pytest.param(
            [series("a", "90"), series("b", "1", sampled=NOW - 600)], {"a": 90}, id="one is stale"
        ),
    ],
)
async def test_fresh_series_are_read(answer, want_tokens):
    want = {pod: MeasuredCache(tokens) for pod, tokens in want_tokens.items()}
    assert await measure(*answer) == want


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([], id="no series of the pods"),
        pytest.param([series(tokens="None")], id="the cache is not sized yet"),
        pytest.param([series(tokens="0")], id="zero tokens"),
        pytest.param([series(tokens="-5")], id="a negative number"),
        pytest.param([series(tokens="9" * 400)], id="an impossibly large number"),
        pytest.param([series(sampled=NOW - 600)], id="a stale sample"),
        pytest.param([series(sampled=NOW + 600)], id="a sample from the future"),
        pytest.param([series(sampled=None)], id="a time that is not a number"),
        pytest.param([Series({"pod": "llama-0"}, NOW, NOW)], id="no such label"),
    ],
)
async def test_any_other_series_is_ignored(answer):
    assert await measure(*answer) == {}


async def test_no_answer_gives_no_cache():
    async def ask(query):
        return None

    assert await measure_caches(ask, "chat", [pod("llama-0")]) == {}


@pytest.mark.parametrize(
    ("tokens", "want"),
    [
        pytest.param({}, {}, id="no measurement"),
        pytest.param({"a-0": 9, "a-1": 8}, {"a": 8}, id="the smallest of one placement"),
        pytest.param({"a-0": 9, "b-0": 2}, {"a": 9, "b": 2}, id="each placement separately"),
        pytest.param({"a-0": 9, "foreign": 1}, {"a": 9}, id="a pod without placement"),
    ],
)
def test_the_smallest_cache_of_each_placement_counts(tokens, want):
    caches = {pod: MeasuredCache(count) for pod, count in tokens.items()}
    placements = {"a-0": "a", "a-1": "a", "b-0": "b"}
    smallest = smallest_cache_by_placement(caches, placements)
    assert {name: cache.kv_cache_tokens for name, cache in smallest.items()} == want


async def test_the_query_selects_exactly_the_pods_of_the_deployment():
    queries = []

    async def ask(query):
        queries.append(query)
        return ()

    names = ["llama-0", "llama.b-1", 'x"} or vector(1) #']
    await measure_caches(ask, "chat", map(pod, names))
    await measure_caches(ask, "chat", [])
    assert queries == [
        'timestamp(vllm:cache_config_info{namespace="chat",pod=~"llama-0|llama\\\\.b-1"})'
    ]


def test_without_pods_nothing_is_selected():
    assert select_pods("chat", ()) is None
    assert select_pods("chat", ("no name\n",)) is None


async def test_the_value_of_sglangs_metric_is_read_with_the_age_of_its_sample():
    queries = []

    async def ask(query):
        queries.append(query)
        labels = {"pod": "llama-0", "tp_rank": "0", "dp_rank": "1"}
        if query.startswith("timestamp("):
            return [Series(labels, NOW - 20, NOW), Series({**labels, "pod": "b"}, NOW - 600, NOW)]
        named = {"__name__": "sglang:max_total_num_tokens", **labels}
        return [Series(named, 524288.0, NOW), Series({**named, "pod": "b"}, 9.0, NOW)]

    pods = [ServingPod(name, name, None, "sglang") for name in ("llama-0", "b")]
    assert await measure_caches(ask, "chat", pods) == {"llama-0": MeasuredCache(524288)}
    selector = '{namespace="chat",pod=~"llama-0|b"}'
    assert queries == [
        f"sglang:max_total_num_tokens{selector}",
        f"timestamp(sglang:max_total_num_tokens{selector})",
    ]


async def test_pods_of_two_engines_are_asked_for_their_own_metrics():
    async def ask(query):
        if "sglang" in query:
            value = NOW - 20 if query.startswith("timestamp(") else 7.0
            return [Series({"pod": "new"}, value, NOW)]
        return [series(pod="old", tokens="9")]

    pods = [ServingPod("old", "old", None, "vllm"), ServingPod("new", "new", None, "sglang")]
    caches = await measure_caches(ask, "chat", pods)
    assert caches == {"old": MeasuredCache(9), "new": MeasuredCache(7)}
