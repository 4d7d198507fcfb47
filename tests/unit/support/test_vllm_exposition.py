"""What a simulated replica shows on /metrics is what a real vLLM shows, with other numbers."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.fleets.placing import CATALOG, LLAMA_8B
from tests.support.load.exposition import read_series
from tests.support.load.replica_capacity import replica_capacity
from tests.support.load.simulated_vllm import SimulatedVllm
from tests.support.load.vllm_exposition import RECORDED, VllmExposition
from tonnage.fit.model import EngineOptions, Parallelism

OPTIONS = EngineOptions(CATALOG.default_release, max_model_len=8192)
CAPACITY = replica_capacity(LLAMA_8B, "l40s", Parallelism(), OPTIONS, 500, 100)
ENGINE = {"engine": "0", "model_name": "llama"}


def exposed(per_second: int, seconds: int) -> str:
    """The text after a constant load."""
    replica = SimulatedVllm(CAPACITY)
    exposition = VllmExposition(replica, "llama")
    for _ in range(seconds):
        exposition.learn(replica.advance(1.0, per_second))
    return exposition.text()


def series_names(text: str) -> list[tuple[str, str, str, tuple[tuple[str, str], ...]]]:
    """Family, type, sample and labels of every series, in their order; facts of a start are not
    compared by their values."""
    free = {"model_name"}
    return [
        (
            family.name,
            family.type,
            sample.name,
            tuple(
                (label, "" if label in free or "cache_config" in sample.name else value)
                for label, value in sorted(sample.labels.items())
            ),
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


@pytest.mark.parametrize("seconds", [0, 60])
def test_names_types_labels_and_buckets_equal_those_of_vllm(seconds: int) -> None:
    recorded = RECORDED.read_text("utf-8")
    assert series_names(exposed(4, seconds)) == series_names(recorded)
    comments = [line for line in recorded.splitlines() if line.startswith("#")]
    assert [one for one in exposed(4, seconds).splitlines() if one.startswith("#")] == comments


def test_gauges_have_the_current_values() -> None:
    series = read_series(exposed(40, 60))

    def gauge(name: str, **labels: str) -> float:
        return series[name, frozenset({**ENGINE, **labels}.items())]

    assert gauge("vllm:num_requests_running") == pytest.approx(CAPACITY.most_running, rel=0.1)
    assert gauge("vllm:num_requests_waiting") > 0
    assert gauge("vllm:num_requests_waiting_by_reason", reason="capacity") == gauge(
        "vllm:num_requests_waiting"
    )
    assert 0.5 < gauge("vllm:kv_cache_usage_perc") <= 1


def test_counters_and_histograms_agree_with_each_other() -> None:
    series = read_series(exposed(4, 120))
    totals = {
        name: value for (name, labels), value in series.items() if labels == set(ENGINE.items())
    }
    answered = series[
        "vllm:request_success_total", frozenset({**ENGINE, "finished_reason": "stop"}.items())
    ]
    assert 400 < answered < 480
    for name in ("e2e_request_latency_seconds", "request_queue_time_seconds", "request_params_n"):
        assert totals[f"vllm:{name}_count"] == answered
    assert totals["vllm:request_generation_tokens_sum"] == answered * 100
    assert (
        totals["vllm:time_to_first_token_seconds_count"] * 500 == totals["vllm:prompt_tokens_total"]
    )
    per_token = (
        totals["vllm:inter_token_latency_seconds_sum"]
        / totals["vllm:inter_token_latency_seconds_count"]
    )
    assert per_token == pytest.approx(
        totals["vllm:request_time_per_output_token_seconds_sum"] / answered, rel=0.1
    )
    assert totals["vllm:inter_token_latency_seconds_count"] == pytest.approx(
        totals["vllm:generation_tokens_total"]
    )


def test_the_cache_is_exported_as_vllm_exports_it() -> None:
    (labels,) = (
        dict(labels)
        for name, labels in read_series(exposed(0, 0))
        if name == "vllm:cache_config_info"
    )
    tokens = int(labels["kv_cache_size_tokens"])
    assert 0 <= CAPACITY.kv_cache_tokens - tokens < 16
    assert tokens == int(labels["num_gpu_blocks"]) * int(labels["block_size"])
    assert "model_name" not in labels
