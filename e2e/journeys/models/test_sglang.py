"""Replicas on SGLang: placed, measured, changed to vLLM and back, and chosen by the operator."""

from __future__ import annotations

from e2e.doubles.sglang_metrics import SglangMetrics
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, candidate, condition, has
from e2e.models import inference

WITHIN = 180
SGLANG: Json = {"sglang": {}}
AUTO: Json = {"type": "Auto"}
TWO_POOLS: Json = {
    "groups": [
        {"name": "mi300x", "count": 1, "accelerator": "mi300x", "gpusPerNode": 8},
        {"name": "l40s", "count": 1, "accelerator": "l40s", "gpusPerNode": 8},
    ]
}


def containers(user: User, name: str) -> list[Json]:
    """The engine's container of each pod that stays."""
    return [
        pod["spec"]["containers"][0]
        for pod in user.children("pods", name)
        if "deletionTimestamp" not in pod["metadata"]
    ]


def test_it_runs_where_its_memory_is_known_and_says_what_it_measured(
    fleet: UseFleet, user: User
) -> None:
    fleet(TWO_POOLS)
    user.apply(inference("llama", "llama-3.1-8b", engine=SGLANG))
    status = user.wait_ready("llama", timeout=WITHIN)
    (placement,) = status["placements"]
    assert placement["accelerator"] == "mi300x"
    l40s = candidate(status, "l40s")
    assert (l40s["verdict"], l40s["reason"]) == ("Rejected", "Incompatible")
    (container,) = containers(user, "llama")
    assert container["name"] == "sglang"
    assert container["command"] == ["python3", "-m", "sglang.launch_server"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    predicted = placement["kvCacheTokens"]
    (pod,) = user.pods("llama")
    with SglangMetrics(predicted) as server:
        address = {"status": {"podIP": server.host, "podIPs": [{"ip": server.host}]}}
        user.admin.patch("pods", pod, address, subresource="status")
        status = user.wait("llama", has("PredictionAccurate", "True"), timeout=WITHIN)
    assert status["placements"][0]["measuredKvCacheTokens"] == predicted
    user.await_quiet()


def test_a_change_of_the_engine_rolls_the_pods_and_keeps_the_service(
    fleet: UseFleet, user: User
) -> None:
    fleet(TWO_POOLS)
    placement = {"accelerators": ["mi300x"]}
    user.apply(inference("llama", "llama-3.1-8b", placement=placement))
    user.wait_ready("llama", timeout=WITHIN)
    (service,) = user.children("services", "llama")
    for engine, name in ((SGLANG, "sglang"), ({"vllm": {}}, "vllm")):
        user.apply(inference("llama", "llama-3.1-8b", placement=placement, engine=engine))

        def changed(status: Json, name: str = name) -> bool:
            names = {container["name"] for container in containers(user, "llama")}
            return bool(has("Ready")(status)) and names == {name}

        user.wait("llama", changed, timeout=WITHIN)
    (after,) = user.children("services", "llama")
    assert after["metadata"]["uid"] == service["metadata"]["uid"]
    assert after["spec"] == service["spec"]


def test_settings_of_both_engines_are_refused_with_the_field(fleet: UseFleet, user: User) -> None:
    fleet(TWO_POOLS)
    both = {"vllm": {"extraArgs": ["--seed=7"]}, "sglang": {"memFractionStatic": 0.8}}
    user.apply(inference("llama", "llama-3.1-8b", engine=both))
    status = user.wait("llama", has("Accepted", "False", "InvalidSpec"))
    assert "spec.engine" in condition(status, "Accepted")["message"]
    assert user.children("deployments", "llama") == []


def engines(user: User, name: str) -> set[str]:
    """The engines of the pods that stay."""
    return {container["name"] for container in containers(user, name)}


def test_the_operator_chooses_the_engine_and_says_why(fleet: UseFleet, user: User) -> None:
    fleet(TWO_POOLS)
    user.apply(inference("deepseek", "deepseek-v3", engine=AUTO))
    user.apply(inference("llama", "llama-3.1-8b", engine=AUTO))
    status = user.wait_ready("deepseek", timeout=WITHIN)
    assert engines(user, "deepseek") == {"sglang"}
    (placement,) = status["placements"]
    assert (placement["engine"], placement["accelerator"]) == ("sglang", "mi300x")
    assert "rule DeepSeekV3InFp8" in placement["message"]
    assert "/ sglang: fits with TP" in condition(status, "Placed")["message"]
    l40s = candidate(status, "l40s")
    assert l40s["verdict"] == "Rejected"
    assert l40s["message"].startswith("vllm: ")
    assert "; sglang: " in l40s["message"]
    status = user.wait_ready("llama", timeout=WITHIN)
    assert engines(user, "llama") == {"vllm"}
    assert candidate(status, "mi300x")["engine"] == candidate(status, "l40s")["engine"] == "vllm"
    user.await_quiet()


def test_replicas_keep_their_engine_through_restarts_and_changes_of_the_type(
    fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    fleet(TWO_POOLS)
    user.apply(inference("deepseek", "deepseek-v3", engine={"type": "VLLM"}))
    user.wait_ready("deepseek", timeout=WITHIN)
    pods = user.pods("deepseek")
    user.apply(inference("deepseek", "deepseek-v3", engine=AUTO))
    status = user.wait_ready("deepseek", timeout=WITHIN)
    assert "its replicas run with vllm" in status["placements"][0]["message"]
    operator.stop()
    operator.start()
    user.await_quiet()
    assert (user.pods("deepseek"), engines(user, "deepseek")) == (pods, {"vllm"})
    user.apply(inference("deepseek", "deepseek-v3", engine={"type": "SGLang"}))
    user.wait("deepseek", lambda _: engines(user, "deepseek") == {"sglang"}, timeout=WITHIN)
    user.wait_ready("deepseek", timeout=WITHIN)
    pods = user.pods("deepseek")
    user.apply(inference("deepseek", "deepseek-v3", engine=AUTO))
    status = user.wait_ready("deepseek", timeout=WITHIN)
    user.await_quiet()
    assert user.pods("deepseek") == pods
    assert status["placements"][0]["engine"] == "sglang"
