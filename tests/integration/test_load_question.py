"""The load query in the real promtool: its result for series like those of vLLM."""

import subprocess
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


async def asked() -> str:
    queries: list[str] = []

    async def ask(query: str) -> None:
        queries.append(query)

    await measure_load(ask, 15.0, QUESTION)
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
    samples: list[dict[str, Any]] = [
        {"labels": f'{{signal="{name}",{POD}}}', "value": value} for name, value in WANT.items()
    ]
    samples += [
        {"labels": '{signal="queued"}', "value": 7},
        {"labels": '{signal="queue_sampled"}', "value": 285},
    ]
    expression = {"expr": await asked(), "eval_time": at, "exp_samples": samples}
    case = {"interval": "15s", "input_series": SERIES, "promql_expr_test": [expression]}
    file = {"evaluation_interval": "15s", "fuzzy_compare": True, "tests": [case]}
    path = tmp_path / "case.yaml"
    path.write_text(yaml.safe_dump(file), "utf-8")
    result = run_promtool(path)
    assert result.returncode == 0, result.stdout + result.stderr
