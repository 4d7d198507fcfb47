"""The load query in the real promtool: its result for series like those of engines."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.harness.binaries import program_path
from tonnage.api.scaling import QueuedRequests, ScalingTargets
from tonnage.telemetry.load import LoadQuery, measure_load

POD = 'pod="llama-mi300x-6d8-x2x"'
QUESTION = LoadQuery(
    namespace="chat",
    deployments=("llama-mi300x",),
    targets=ScalingTargets(time_to_first_token="2s", time_per_output_token="50ms"),
    queued=QueuedRequests(metric="gateway_queued", match_labels={"model": "llama"}),
)

FIRST, PREFILL = "vllm:time_to_first_token_seconds", "vllm:request_prefill_time_seconds"
BETWEEN = "vllm:inter_token_latency_seconds"


def vllm(name: str, values: str, engine: int = 0, job: str = "vllm") -> dict[str, str]:
    labels = f'namespace="chat",{POD},model_name="llama",engine="{engine}",job="{job}"'
    return {"series": f"{name}{{{labels}}}", "values": values}


def elsewhere(name: str, values: str) -> dict[str, str]:
    """A series of another namespace, and one of another Deployment."""
    return {"series": f'{name}{{namespace="search",{POD},engine="0"}}', "values": values}


def queued(values: str, **labels: str) -> dict[str, str]:
    selector = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return {"series": f"gateway_queued{{{selector}}}", "values": values}


SERIES = [
    vllm("vllm:num_requests_running", "0 4x20", engine=0),
    vllm("vllm:num_requests_running", "2x20", engine=1),
    vllm("vllm:num_requests_running", "2x20", engine=1, job="scraped-twice"),
    elsewhere("vllm:num_requests_running", "50x20"),
    vllm("vllm:num_requests_waiting", "0 2 0 2 0 2 0 2 0 2 0 2 0 2 0 2 0 2 0 2"),
    vllm("vllm:kv_cache_usage_perc", "0.5x20", engine=0),
    vllm("vllm:kv_cache_usage_perc", "0.25x20", engine=1),
    vllm(f"{FIRST}_sum", "0+30x20"),
    vllm(f"{FIRST}_count", "0+15x20"),
    vllm(f"{PREFILL}_sum", "0+15x20"),
    vllm(f"{PREFILL}_count", "0+15x20"),
    vllm(f"{BETWEEN}_sum", "0+15x20"),
    vllm(f"{BETWEEN}_count", "0+150x20"),
    queued("3x20", model="llama", zone="a"),
    queued("4x20", model="llama", zone="b"),
    queued("9x20", model="other"),
]
WANT = {
    "running": 6,
    "waiting": 1,
    "kv_usage": 0.375,
    "first_token_sum": 2,
    "first_token_count": 1,
    "prefill_sum": 1,
    "prefill_count": 1,
    "per_token_sum": 1,
    "per_token_count": 10,
    "sampled": 285,
}


async def asked(question: LoadQuery = QUESTION) -> str:
    queries: list[str] = []

    async def ask(query: str) -> None:
        queries.append(query)

    await measure_load(ask, 15.0, question)
    (query,) = queries
    return query


def run_promtool(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program_path("promtool"), "test", "rules", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("at", ["285s", "295s"])
async def test_prometheus_evaluates_the_load_query_to_the_expected_samples(
    tmp_path: Path, at: str
) -> None:
    samples = samples_of_pod(WANT)
    samples += [
        {"labels": '{signal="queued"}', "value": 7},
        {"labels": '{signal="queue_sampled"}', "value": 285},
    ]
    expression = {"expr": await asked(), "eval_time": at, "exp_samples": samples}
    check(tmp_path, SERIES, expression)


async def test_requests_of_all_priorities_of_sglang_count_once(tmp_path: Path) -> None:
    question = replace(QUESTION, queued=None, engines=("sglang",))
    first, between = "sglang:time_to_first_token_seconds", "sglang:inter_token_latency_seconds"
    series = [
        sglang("sglang:num_running_reqs", "6x20", ""),
        sglang("sglang:num_running_reqs", "4x20", "1"),
        sglang("sglang:num_running_reqs", "2x20", "9"),
        sglang("sglang:num_queue_reqs", "1x20", ""),
        sglang("sglang:num_queue_reqs", "1x20", "9"),
        sglang("sglang:token_usage", "0.5x20", ""),
        # Few requests of priority 1 wait long, and many of priority 9 do not.
        sglang(f"{first}_sum", "0+30x20", "1"),
        sglang(f"{first}_count", "0+3x20", "1"),
        sglang(f"{first}_sum", "0+15x20", "9"),
        sglang(f"{first}_count", "0+30x20", "9"),
        sglang(f"{between}_sum", "0+15x20", "9"),
        sglang(f"{between}_count", "0+150x20", "9"),
    ]
    want = {
        "running": 6,
        "waiting": 1,
        "kv_usage": 0.5,
        "first_token_sum": 3,
        "first_token_count": 2.2,
        "per_token_sum": 1,
        "per_token_count": 10,
        "sampled": 285,
    }
    expression = {
        "expr": await asked(question),
        "eval_time": "285s",
        "exp_samples": samples_of_pod(want),
    }
    check(tmp_path, series, expression)


def sglang(name: str, values: str, priority: str) -> dict[str, str]:
    labels = f'namespace="chat",{POD},model_name="llama",engine_type="unified"'
    return {"series": f'{name}{{{labels},priority="{priority}"}}', "values": values}


def samples_of_pod(signals: Mapping[str, float]) -> list[dict[str, Any]]:
    return [
        {"labels": f'{{signal="{name}",{POD}}}', "value": value} for name, value in signals.items()
    ]


def check(folder: Path, series: Sequence[dict[str, str]], expression: dict[str, Any]) -> None:
    case = {"interval": "15s", "input_series": [*series], "promql_expr_test": [expression]}
    file = {"evaluation_interval": "15s", "fuzzy_compare": True, "tests": [case]}
    path = folder / "case.yaml"
    path.write_text(yaml.safe_dump(file), "utf-8")
    result = run_promtool(path)
    assert result.returncode == 0, result.stdout + result.stderr
