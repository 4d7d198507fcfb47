"""The life of an object whose engine the operator chooses."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.faults.later_operator import take_over
from tests.support.in_memory.cluster import H100, L40S, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import ended, ready

__all__ = ["take_over"]

AUTO: dict[str, Any] = {"type": "Auto"}
NO_MEMORY = (
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
    " capacity of 191.98 GiB of which 1.00 GiB is free.\n"
)
TWO_MI300X: dict[str, Any] = {**MI300X, "count": 2}
BY_RULE = "deepseek-v3"
"""A model that the catalogue gives to SGLang on MI300X."""


async def cluster_with(*groups: Any, model: str = "llama-3.1-8b", **spec: Any) -> Cluster:
    cluster = Cluster(*(groups or (MI300X,)))
    await apply(cluster, model, **spec)
    return cluster


async def apply(cluster: Cluster, model: str = "llama-3.1-8b", **spec: Any) -> None:
    cluster.apply("llama", spec_of(model, **{"engine": AUTO, **spec}))
    await cluster.settle()


def containers(cluster: Cluster) -> list[str]:
    return [one["name"] for one in cluster.pods()[0]["spec"]["containers"]]


def uids(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["uid"] for pod in cluster.pods()}


def server(cluster: Cluster) -> Any:
    return cluster.pods()[0]["spec"]["containers"][0]


async def test_vllm_runs_what_no_rule_gives_to_another_engine() -> None:
    cluster = await cluster_with()
    assert containers(cluster) == ["vllm"]
    (placement,) = cluster.status()["placements"]
    (candidate,) = cluster.status()["candidates"]
    assert placement["engine"] == candidate["engine"] == "vllm"
    assert "vllm is the default" in placement["message"]
    assert "mi300x / vllm: fits with TP 1" in cluster.message("Placed")
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


async def test_a_rule_gives_the_model_to_sglang_and_the_status_has_it() -> None:
    cluster = await cluster_with(model=BY_RULE)
    assert containers(cluster) == ["sglang"]
    assert server(cluster)["command"] == ["python3", "-m", "sglang.launch_server"]
    (placement,) = cluster.status()["placements"]
    assert placement["engine"] == "sglang"
    assert "rule DeepSeekV3InFp8" in placement["message"]
    assert "/sglang:" in placement["image"]
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


async def test_adapters_leave_the_model_to_vllm_with_that_reason() -> None:
    cluster = await cluster_with(model=BY_RULE, lora={"maxLoras": 2, "maxRank": 16})
    assert containers(cluster) == ["vllm"]
    (placement,) = cluster.status()["placements"]
    assert placement["engine"] == "vllm"
    assert "sglang: spec.lora: adapters are not supported with SGLang" in placement["message"]
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


@pytest.mark.parametrize("named", [{}, {"type": "VLLM"}, {"sglang": {}}])
async def test_what_runs_keeps_its_engine_and_its_pods(named: dict[str, Any]) -> None:
    cluster = await cluster_with(model=BY_RULE, engine=named)
    before, engine = uids(cluster), containers(cluster)
    await apply(cluster, BY_RULE)
    assert (uids(cluster), containers(cluster)) == (before, engine)
    (placement,) = cluster.status()["placements"]
    assert placement["engine"] == engine[0]
    kept = "its replicas run with vllm" in placement["message"]
    assert kept is (engine == ["vllm"])
    await apply(cluster, BY_RULE, engine=named)
    assert uids(cluster) == before


async def test_a_restart_of_the_operator_changes_neither_pods_nor_status() -> None:
    cluster = await cluster_with(model=BY_RULE)
    before, status = uids(cluster), cluster.status()
    cluster.start_operator()
    await cluster.settle()
    assert (uids(cluster), cluster.status()) == (before, status)


@pytest.mark.parametrize(
    "named", [({"type": "VLLM"}, {}), ({"type": "SGLang"}, {"sglang": {}})], ids=["vllm", "sglang"]
)
async def test_a_later_operator_leaves_what_it_would_render_otherwise(
    take_over: Callable[..., None],
    named: tuple[dict[str, Any], ...],
) -> None:
    cluster = await cluster_with(engine=named[0])
    before = uids(cluster)
    take_over(cluster)
    await cluster.settle()
    for engine in (AUTO, *named, AUTO, *named):
        await apply(cluster, engine=engine)
        assert uids(cluster) == before
    await apply(cluster, rollout={"upgradedAt": "2026-11-27T05:30:00Z"})
    assert uids(cluster).isdisjoint(before)
    assert containers(cluster) == [named[0]["type"].lower()]


async def test_a_named_engine_replaces_the_pods_of_the_other_one() -> None:
    cluster = await cluster_with(model=BY_RULE)
    await apply(cluster, BY_RULE, engine={"type": "VLLM"})
    assert containers(cluster) == ["vllm"]
    assert "engine" not in cluster.status()["placements"][0]
    await apply(cluster, BY_RULE, engine={"type": "SGLang"})
    assert containers(cluster) == ["sglang"]


async def test_the_settings_of_both_engines_are_given_and_those_of_one_count() -> None:
    engine = {
        **AUTO,
        "vllm": {"extraArgs": ["--seed=7"]},
        "sglang": {"extraArgs": ["--random-seed=7"], "env": [{"name": "MINE", "value": "1"}]},
    }
    of_vllm = await cluster_with(engine=engine)
    assert server(of_vllm)["args"][-1] == "--seed=7"
    of_sglang = await cluster_with(model=BY_RULE, engine=engine)
    assert server(of_sglang)["args"][-1] == "--random-seed=7"
    assert {"name": "MINE", "value": "1"} in server(of_sglang)["env"]


@pytest.mark.parametrize(("model", "name"), [("llama-3.1-8b", "vllm"), (BY_RULE, "sglang")])
async def test_a_pod_template_may_change_the_containers_of_both(model: str, name: str) -> None:
    patched = [
        {"name": each, "resources": {"requests": {"cpu": cpu}}}
        for each, cpu in (("vllm", "3"), ("sglang", "5"), ("side", "1"))
    ]
    patched[-1]["image"] = "side:1"
    cluster = await cluster_with(model=model, podTemplate={"spec": {"containers": patched}})
    assert containers(cluster) == [name, "side"]
    cpu = {"vllm": "3", "sglang": "5"}[name]
    assert server(cluster)["resources"]["requests"]["cpu"] == cpu


async def test_an_engine_that_cannot_serve_the_spec_leaves_it_to_the_other() -> None:
    cluster = await cluster_with(quantization="fp8_per_tensor")
    assert containers(cluster) == ["vllm"]
    assert "sglang: spec.quantization: SGLang has no fp8_per_tensor" in cluster.message("Placed")


async def test_overrides_of_config_json_are_those_of_one_engine() -> None:
    engine = {**AUTO, "vllm": {"extraArgs": ['--hf-overrides={"max_position_embeddings": 163840}']}}
    cluster = await cluster_with(model=BY_RULE, engine=engine)
    assert containers(cluster) == ["vllm"]
    message = cluster.status()["placements"][0]["message"]
    assert "sglang: spec.engine.vllm.extraArgs overrides config.json" in message


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"engine": {**AUTO, "sglang": {"version": "v0.4.0"}}}, "spec.engine.sglang.version"),
        (
            {"engine": {**AUTO, "sglang": {"extraArgs": ["--max-model-len=1"]}}},
            "spec.engine.sglang.extraArgs[0]",
        ),
        ({"engine": {**AUTO, "vllm": {"extraArgs": ["--model"]}}}, "spec.engine.vllm.extraArgs[0]"),
        ({"engine": {"type": "VLLM", "sglang": {}}}, "spec.engine: type is VLLM and sglang is set"),
        ({"engine": {"type": "auto"}}, "spec.engine.type"),
        (
            {"engine": {"vllm": {"enforceEager": True}, "sglang": {}}},
            "spec.engine: vllm and sglang are both set",
        ),
        ({"workload": {"maxModelLen": 999_999}}, "spec.workload.maxModelLen"),
    ],
)
async def test_bad_input_names_the_field(spec: dict[str, Any], want: str) -> None:
    cluster = await cluster_with(**spec)
    assert cluster.conditions()["Ready"] == ("False", "InvalidSpec")
    assert want in cluster.message("Ready")
    assert not cluster.deployments()


async def test_a_move_by_choice_keeps_the_engine_and_one_by_need_may_change_it() -> None:
    rebalance = {"policy": "WhenCheaperBy", "percent": 1, "stabilizationWindow": "1m"}
    placement = {"rebalance": rebalance, "fallback": {"after": "1m"}}
    cluster = await cluster_with(H100, engine={"sglang": {}}, placement=placement)
    cluster.join(**L40S)
    await apply(cluster, placement=placement)
    await cluster.wait(600)
    (l40s,) = [one for one in cluster.status()["candidates"] if one["accelerator"] == "l40s"]
    assert l40s["engine"] == "vllm"
    assert float(l40s["costPerHour"]) < float(cluster.status()["placements"][0]["costPerHour"])
    assert containers(cluster) == ["sglang"]
    cluster.leave("h100")
    await cluster.settle()
    await cluster.wait(600)
    assert {one["spec"]["containers"][0]["name"] for one in cluster.pods()} == {"vllm"}


async def test_it_is_scaled_by_the_metrics_of_both_until_one_runs() -> None:
    queries: list[tuple[str, ...]] = []
    cluster = Cluster(MI300X)

    async def measure(query: Any) -> None:
        queries.append(query.engines)

    cluster.measure_load = measure
    scaling = {"maxReplicas": 3, "targets": {"waitingRequests": 1}}
    await apply(cluster, scaling=scaling, replicas=None)
    assert set(queries) == {("sglang", "vllm")}


async def test_a_failed_start_is_reported_with_its_engine_which_goes_on_with_more_gpus() -> None:
    cluster = Cluster(MI300X)
    dies = ended()

    def start(pod: Any) -> Any:
        is_large = "--tp-size=8" in pod["spec"]["containers"][0]["args"]
        return ready(pod) if is_large else dies(pod)

    cluster.behaviours["llama"] = start
    await apply(cluster, BY_RULE)
    pod = cluster.pods()[0]["metadata"]["name"]
    cluster.api.set_log(NAMESPACE, pod, "sglang", NO_MEMORY)
    await cluster.reconcile("llama")
    await cluster.wait(60)
    (failed,) = cluster.status()["failedPlans"]
    assert (failed["engine"], failed["reason"]) == ("sglang", "OutOfMemory")
    assert containers(cluster) == ["sglang"]
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
