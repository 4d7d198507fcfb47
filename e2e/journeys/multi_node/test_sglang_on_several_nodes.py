"""Replicas of SGLang on several nodes, with the real controller of LeaderWorkerSet."""

from __future__ import annotations

from e2e.doubles.sglang_metrics import SglangMetrics
from e2e.harness.leader_worker_set import LeaderWorkerSetController
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from e2e.nodes.descriptions import connected_h100s

WITHIN = 180
SGLANG: Json = {"sglang": {}}
AUTO: Json = {"type": "Auto"}
TWO_H100S: Json = {"groups": [connected_h100s(2)]}
SLOW: Json = {"metadata": {"annotations": {"e2e.tonnage.dev/ready-after": "6s"}}}
"""Pods of this template take 6 s to become ready: long enough for the status to report it."""


def pods_of_group(user: User, name: str) -> tuple[Json, Json]:
    """The leader and the worker of the only replica."""
    (leader,) = user.children("pods", name)
    (worker,) = workers(user, name)
    return leader, worker


def workers(user: User, name: str) -> list[Json]:
    return user.admin.items("pods", selector=f"tonnage.dev/worker-of={name}")


def sizes(status: Json) -> tuple[int, int, int]:
    """The tensor-parallel size, the pipeline stages and the nodes of the only placement."""
    (placement,) = status["placements"]
    names = "tensorParallelSize", "pipelineParallelSize", "nodesPerReplica"
    tensor, stages, nodes = (placement[name] for name in names)
    return tensor, stages, nodes


def test_deepseek_v3_has_a_stage_on_each_of_two_nodes_and_is_measured(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController
) -> None:
    fleet(TWO_H100S)
    user.apply(inference("deepseek", "deepseek-v3", engine=SGLANG))
    status = user.wait_ready("deepseek", timeout=WITHIN)
    assert sizes(status) == (8, 2, 2)
    assert (status["replicas"], status["readyReplicas"]) == (1, 1)
    pods = pods_of_group(user, "deepseek")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    leader, worker = (pod["spec"]["containers"][0] for pod in pods)
    assert leader["args"] == worker["args"]
    assert {"--tp-size=8", "--pp-size=2", "--nnodes=2"} < set(leader["args"])
    assert "--node-rank=$(LWS_WORKER_INDEX)" in leader["args"]
    for container, index in ((leader, "0"), (worker, "1")):
        values = {each["name"]: each.get("value") for each in container["env"]}
        assert values["LWS_WORKER_INDEX"] == index
        assert values["LWS_LEADER_ADDRESS"].startswith(pods[0]["metadata"]["name"])
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "rdma/ib": "1"}
    assert leader["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert "readinessProbe" not in worker
    (service,) = user.children("services", "deepseek")
    selector = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())
    (selected,) = user.admin.items("pods", selector=selector)
    assert selected["metadata"]["uid"] == pods[0]["metadata"]["uid"]
    predicted = status["placements"][0]["kvCacheTokens"]
    with SglangMetrics(predicted) as server:
        address = {"status": {"podIP": server.host, "podIPs": [{"ip": server.host}]}}
        name = selected["metadata"]["name"]
        user.admin.patch("pods", name, address, subresource="status")
        status = user.wait("deepseek", has("PredictionAccurate", "True"), timeout=WITHIN)
    assert status["placements"][0]["measuredKvCacheTokens"] == predicted
    user.await_quiet()


def test_a_group_whose_worker_is_deleted_comes_back_as_a_whole(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController
) -> None:
    fleet(TWO_H100S)
    tensor = {"multiNode": {"maxNodes": 2, "tensorParallel": True}}
    model = inference("deepseek", "deepseek-v3", engine=SGLANG, placement=tensor, template=SLOW)
    user.apply(model)
    assert sizes(user.wait_ready("deepseek", timeout=WITHIN)) == (16, 1, 2)
    before, worker = pods_of_group(user, "deepseek")
    user.admin.delete("pods", worker["metadata"]["name"], timeout=None)
    user.wait("deepseek", has("Ready", "False"), timeout=WITHIN)
    user.wait_ready("deepseek", timeout=WITHIN)
    after, _ = pods_of_group(user, "deepseek")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["containers"][0]["args"] == before["spec"]["containers"][0]["args"]


def test_the_operator_chooses_it_for_two_nodes_and_another_engine_replaces_the_group(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController
) -> None:
    fleet(TWO_H100S)
    user.apply(inference("deepseek", "deepseek-v3", engine=AUTO))
    status = user.wait_ready("deepseek", timeout=WITHIN)
    (placement,) = status["placements"]
    assert (placement["engine"], sizes(status)) == ("sglang", (8, 2, 2))
    assert "rule DeepSeekV3InFp8" in placement["message"]
    assert "/ sglang: fits with TP 8, PP 2 on 2 nodes" in condition(status, "Placed")["message"]
    user.apply(inference("deepseek", "deepseek-v3", engine={"type": "VLLM"}))

    def replaced(status: Json) -> bool:
        pods = *user.children("pods", "deepseek"), *workers(user, "deepseek")
        names = [pod["spec"]["containers"][0]["name"] for pod in pods]
        return bool(has("Ready")(status)) and names == ["vllm", "vllm"]

    user.wait("deepseek", replaced, timeout=2 * WITHIN)
    for pod in pods_of_group(user, "deepseek"):
        assert pod["spec"]["containers"][0]["name"] == "vllm"
    user.await_quiet()
