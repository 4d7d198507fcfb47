"""The life of an object with SGLang: placed, failing, measured, and moved between engines."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import ended
from tonnage.api.conditions import Reason
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.placement.adjustments import MemoryShortfall, ShortfallKind
from tonnage.telemetry.pod_metrics import read_page
from tonnage.telemetry.startup_log import find_cause, read_shortfall

SGLANG: dict[str, Any] = {"sglang": {}}
NO_MEMORY = (
    "[2026-11-27 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    "ValueError: Loaded weights leave no GPU memory for the KV cache under"
    " --mem-fraction-static=0.5. Raise --mem-fraction-static above 0.612 (minimum viable = 1 -"
    " available/pre = 0.6119).\n"
    "[2026-11-27 10:00:01] Rank 0 scheduler is dead. Please check if there are relevant logs.\n"
)


async def cluster_with(*groups: Any, **spec: Any) -> Cluster:
    cluster = Cluster(*(groups or (H100, MI300X)))
    cluster.apply("llama", spec_of(engine=spec.pop("engine", SGLANG), **spec))
    await cluster.settle()
    return cluster


def server(cluster: Cluster) -> Any:
    return cluster.pods()[0]["spec"]["containers"][0]


async def test_the_pool_holds_what_sglang_would_choose() -> None:
    cluster = await cluster_with(H100)
    (placement,) = cluster.status()["placements"]
    assert placement["tensorParallelSize"] == 1
    # tonnage fit --engine sglang says the same of a Llama 3.1 8B in 16 bits on an H100.
    assert placement["kvCacheTokens"] == pytest.approx(411_000, rel=0.01)
    assert "estimate" not in placement
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


async def test_a_share_and_counted_arguments_change_the_pool() -> None:
    engine = {"sglang": {"memFractionStatic": 0.5, "extraArgs": ["--max-running-requests=8"]}}
    (half,) = (await cluster_with(H100, engine=engine)).status()["placements"]
    (usual,) = (await cluster_with(H100)).status()["placements"]
    assert half["kvCacheTokens"] < usual["kvCacheTokens"] * 0.6


async def test_a_pool_smaller_than_the_context_is_refused_although_sglang_would_start() -> None:
    cluster = await cluster_with(
        H100, engine={"sglang": {"memFractionStatic": 0.2}}, workload={"maxModelLen": 131072}
    )
    assert cluster.conditions()["Placed"] != ("False", "PoolChosen")
    for placement in cluster.status().get("placements", []):
        assert placement["kvCacheTokens"] >= 131072


async def test_a_device_without_a_calculation_is_refused_by_name() -> None:
    cluster = await cluster_with({"name": "l40s", "accelerator": "l40s", "gpusPerNode": 4})
    assert cluster.conditions()["Placed"][0] == "False"
    (candidate,) = cluster.status()["candidates"]
    assert candidate["reason"] == "Incompatible"
    assert "NotCalculated" in candidate["message"]


async def test_a_quantization_without_a_calculation_is_refused_by_name() -> None:
    cluster = await cluster_with(H100, quantization="awq")
    assert cluster.conditions()["Placed"][0] == "False"
    (candidate,) = cluster.status()["candidates"]
    want = "quantization awq of weights in 16 bits is not calculated for SGLang"
    assert (candidate["reason"], want in candidate["message"]) == ("Incompatible", True)


async def test_another_engine_replaces_the_pods_and_nothing_else() -> None:
    cluster = await cluster_with(MI300X, engine={})
    assert server(cluster)["name"] == "vllm"
    cluster.apply("llama", spec_of(engine=SGLANG))
    await cluster.settle()
    assert [one["name"] for one in cluster.pods()[0]["spec"]["containers"]] == ["sglang"]
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert server(cluster)["name"] == "vllm"


async def test_a_failed_start_is_reported_in_the_words_of_sglang() -> None:
    cluster = Cluster(H100)
    cluster.behaviours["llama"] = ended()
    cluster.apply("llama", spec_of(engine=SGLANG))
    await cluster.settle()
    pod = cluster.pods()[0]["metadata"]["name"]
    cluster.api.set_log(NAMESPACE, pod, "sglang", NO_MEMORY)
    await cluster.reconcile("llama")
    assert cluster.conditions()["Ready"] == ("False", "OutOfMemory")
    assert "Raise --mem-fraction-static above 0.612" in cluster.message("Ready")


def test_the_last_error_is_the_cause_where_no_rule_matches() -> None:
    log = "[2026-11-27 10:00:00] starting\nOSError: no such model\n[2026-11-27 10:00:01] bye\n"
    cause = find_cause(log, "sglang")
    assert cause is not None
    assert cause.message == "OSError: no such model"
    words = find_cause(NO_MEMORY, "sglang")
    assert words is not None
    assert read_shortfall(words.message) is not None


@pytest.mark.parametrize(
    ("log", "want"),
    [
        pytest.param(
            "usage: sglang serve [-h] --model-path MODEL_PATH\n"
            "sglang serve: error: unrecognized arguments: --no-such-flag\n",
            "sglang serve: error: unrecognized arguments: --no-such-flag",
            id="an argument that the parser refuses",
        ),
        pytest.param(
            "[2026-11-27 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call"
            " last):\n"
            "RuntimeError: Triton Error [HIP]: Code: 1\n\n"
            "Exception: Capture cuda graph failed: Triton Error [HIP]: Code: 1\n"
            "Possible solutions:\n"
            "[2026-11-27 10:00:01] Received sigquit from a child process.\n",
            "Exception: Capture cuda graph failed: Triton Error [HIP]: Code: 1",
            id="graphs that are not captured",
        ),
        pytest.param(
            "[2026-11-27 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call"
            " last):\n"
            "    assert self.page_size == 64\n"
            "AssertionError\n\n",
            "AssertionError",
            id="an assertion without words",
        ),
    ],
)
def test_the_cause_is_found_in_the_words_of_sglang(log: str, want: str) -> None:
    cause = find_cause(log, "sglang")
    assert cause is not None
    assert cause.message == want


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize(
    "line",
    [
        "torch.AcceleratorError: HIP error: out of memory",
        "Exception: Capture cuda graph failed: CUDA error: out of memory",
        "ncclUnhandledCudaError: Call to CUDA function failed. Cuda failure 2 'out of memory'",
    ],
)
def test_memory_that_is_lacking_outside_of_torch_leads_to_other_settings(
    line: str, engine: str
) -> None:
    cause = find_cause(f"loading\n{line}\n", engine)
    assert cause is not None
    assert (cause.reason, cause.message) == (Reason.OUT_OF_MEMORY, line)
    assert read_shortfall(line) == MemoryShortfall(ShortfallKind.ALLOCATION, None, None)


async def test_the_measured_pool_is_compared_with_the_prediction() -> None:
    cluster = await cluster_with(H100)
    predicted = cluster.status()["placements"][0]["kvCacheTokens"]
    page = (
        "# TYPE sglang:max_total_num_tokens gauge\n"
        f'sglang:max_total_num_tokens{{engine_type="unified",tp_rank="0"}} {predicted - 100}.0\n'
    )
    measured = read_page(page.encode(), "sglang")
    assert measured is not None
    cluster.measured["llama"] = measured
    await cluster.resync()
    assert cluster.status()["placements"][0]["measured"]["kvCacheTokens"] == predicted - 100
    assert cluster.conditions()["PredictionAccurate"] == ("True", "AsPredicted")
    assert not cluster.correction_registry.known().entries


@pytest.mark.parametrize(
    "value", ["0", "-5", "NaN", "+Inf", "1e30"], ids=lambda value: f"{value} tokens"
)
def test_an_impossible_pool_is_no_measurement(value: str) -> None:
    assert (
        read_page(f'sglang:max_total_num_tokens{{tp_rank="0"}} {value}\n'.encode(), "sglang")
        is None
    )


@pytest.mark.parametrize(
    ("engine", "more", "want"),
    [
        ({"sglang": {"version": "v0.4.0"}}, {}, "spec.engine.sglang.version"),
        (
            {"sglang": {"extraArgs": ["--max-model-len", "1"]}},
            {},
            "spec.engine.sglang.extraArgs[0]",
        ),
        ({"sglang": {"extraArgs": ["--cuda-graph-max-bs=8"]}}, {}, "no such argument"),
        ({"sglang": {"extraArgs": ["--log-level"]}}, {}, "expected a value"),
        ({"sglang": {"extraArgs": ["--max-running-requests=no"]}}, {}, "expected an integer"),
        ({"sglang": {"extraArgs": ["--max-running-requests=0"]}}, {}, "expected a number"),
        ({"sglang": {"extraArgs": ["--max-model-len", "1"]}}, {}, "use spec.workload.maxModelLen"),
        ({"vllm": {"extraArgs": ["--tp-size", "1"]}}, {}, "spec.engine.vllm.extraArgs[0]"),
        (SGLANG, {"quantization": "experts_int8"}, "spec.quantization"),
        (SGLANG, {"lora": {}}, "spec.lora: adapters are not supported with SGLang"),
        (SGLANG, {"lora": {}}, "(spec.engine.type: VLLM, without spec.engine.sglang)"),
    ],
)
async def test_bad_input_names_the_field(
    engine: dict[str, Any], more: dict[str, Any], want: str
) -> None:
    cluster = await cluster_with(engine=engine, **more)
    assert cluster.conditions()["Ready"] == ("False", "InvalidSpec")
    assert want in cluster.message("Ready")


def test_both_engines_are_refused() -> None:
    spec = spec_of(engine={"vllm": {"maxNumSeqs": 8}, "sglang": {}})
    with pytest.raises(InvalidSpecError, match=r"spec\.engine.*remove one of them"):
        parse_spec(spec)
