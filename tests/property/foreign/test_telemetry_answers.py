"""Any answer of Prometheus is read or ignored, without an error."""

import asyncio
import json
from math import isfinite

from hypothesis import given
from hypothesis import strategies as st

from tonnage.api.scaling import QueuedRequests, ScalingTargets
from tonnage.telemetry.cache import measure_caches
from tonnage.telemetry.load import LoadQuery, measure_load
from tonnage.telemetry.pods import ServingPod
from tonnage.telemetry.series import NotUnderstoodError, read_vector

NOW = 1_800_000_000.0
NUMBERS = st.one_of(
    st.floats(NOW - 700, NOW + 700).map(str),
    st.floats().map(str),
    st.integers(0, 10**6).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "", "1e999", "0x10", "None"]),
)
LABELS = st.dictionaries(
    st.sampled_from(
        ("pod", "engine", "signal", "kv_cache_size_tokens", "num_gpu_blocks", "block_size", "x")
    ),
    st.one_of(
        st.sampled_from(("a-0", "a-1", "", "running", "waiting", "kv_usage", "sampled", "queued")),
        st.sampled_from(("queue_sampled", "first_token_sum", "first_token_count")),
        NUMBERS,
        st.text(max_size=5),
    ),
)
TIMES = st.one_of(st.just(NOW), st.floats(), st.integers())
SERIES = st.fixed_dictionaries({"metric": LABELS, "value": st.tuples(TIMES, NUMBERS).map(list)})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | SERIES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
ANSWERS = st.one_of(st.lists(SERIES, max_size=6), JSON)

QUESTION = LoadQuery(
    "chat",
    ("a",),
    ScalingTargets.model_validate({"waitingRequests": 1, "timeToFirstToken": "1s"}),
    QueuedRequests.model_validate({"metric": "queued", "matchLabels": {"model": "a"}}),
)


@given(ANSWERS)
def test_any_answer_is_read_or_refused(result):
    try:
        vector = read_vector(json.loads(json.dumps(result)), NOW)
    except NotUnderstoodError:
        return
    assert len(vector) == len(result)
    assert all(series.value is None or isfinite(series.value) for series in vector)
    assert all(abs(series.evaluated - NOW) <= 60 for series in vector)


@given(st.lists(SERIES.map(lambda body: {**body, "value": [NOW, body["value"][1]]}), max_size=8))
def test_any_read_answer_can_be_measured(result):
    async def ask(query):
        try:
            return read_vector(result, NOW)
        except NotUnderstoodError:
            return None

    pods = [ServingPod(name, name, None) for name in ("a-0", "a-1")]
    caches = asyncio.run(measure_caches(ask, "chat", pods))
    assert all(cache.kv_cache_tokens > 0 for cache in caches.values())
    load = asyncio.run(measure_load(ask, 15.0, QUESTION))
    assert load is None or all(
        isinstance(pod_load.running, float) for pod_load in load.pods.values()
    )
