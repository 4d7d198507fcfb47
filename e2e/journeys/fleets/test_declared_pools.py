"""Declared pools: with a price, an image and taints, and pools that may grow."""

from __future__ import annotations

import pytest

from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.pools import MI300X, await_pool, counts, declared
from e2e.journeys.user import User, condition, container, has, verdict
from e2e.models import inference
from e2e.nodes.fleet import apply_fleet

RESERVED: Json = {"key": "team", "value": "chat", "effect": "NoSchedule"}


def test_a_declared_pool_owns_its_nodes_and_configures_its_pods(
    fleet: UseFleet, declare: Declare, user: User
) -> None:
    fleet(
        {
            "groups": [
                {"name": "chat", "accelerator": "mi300x", "labels": {"team": "chat"}}
                | {"taints": [RESERVED]},
                {"name": "rest", "accelerator": "mi300x", "count": 2},
            ]
        }
    )
    declare(
        declared(
            "chat",
            {"team": "chat"},
            costPerGPUHour="1.25",
            images={"vllm": "registry.example/vllm-rocm:tuned"},
            env=[{"name": "VLLM_ROCM_USE_AITER_MHA", "value": "0"}],
            tolerations=[{**RESERVED, "operator": "Equal"}],
        )
    )
    user.apply(inference("llama", "llama-3.1-8b"))
    status = user.wait_ready("llama")
    (placement,) = status["placements"]
    assert (placement["pool"], placement["costPerHour"]) == ("chat", "1.25")
    assert placement["priceSource"] == "Pool"
    assert "price of AcceleratorPool chat" in placement["message"]
    assert verdict(status, "amd-mi300x")["priceSource"] == "List"
    (pod,) = user.children("pods", "llama")
    assert pod["spec"]["nodeName"] == "chat-0"
    assert RESERVED["key"] in [one.get("key") for one in pod["spec"]["tolerations"]]
    (vllm,) = pod["spec"]["containers"]
    assert vllm["image"] == placement["image"] == "registry.example/vllm-rocm:tuned"
    assert {"name": "VLLM_ROCM_USE_AITER_MHA", "value": "0"} in vllm["env"]
    await_pool(
        user.admin,
        "amd-mi300x",
        lambda status: counts(status) == (16, 16, 16, 8),
        why="the discovered pool to hold the other two nodes only",
    )


def test_the_pool_with_the_higher_weight_wins_at_equal_cost(
    fleet: UseFleet, declare: Declare, user: User
) -> None:
    groups = [
        {"name": name, "accelerator": "mi300x", "labels": {"zone": name}} for name in ("a", "b")
    ]
    fleet({"groups": groups})
    declare(declared("a", {"zone": "a"}, costPerGPUHour="2.00", weight=10))
    declare(declared("b", {"zone": "b"}, costPerGPUHour="2.00", weight=200))
    user.apply(inference("llama", "llama-3.1-8b"))
    status = user.wait_ready("llama")
    assert status["placements"][0]["pool"] == "b"
    assert verdict(status, "a")["reason"] == "RanksLower"
    assert "weight 10 against 200" in verdict(status, "a")["message"]


@pytest.mark.parametrize("nodes", [1, 0], ids=["full", "empty"])
def test_an_object_waits_for_a_pool_that_may_grow_and_runs_on_the_new_node(
    control_plane: Stack, fleet: UseFleet, declare: Declare, user: User, nodes: int
) -> None:
    group: Json = {"name": "chat", "accelerator": "mi300x", "labels": {"team": "chat"}}
    fleet({"groups": [{**group, "count": nodes}, {"name": "cpu"}]})
    declare(declared("chat", {"team": "chat"}, accelerator="mi300x", maxNodes=2))
    busy = [f"busy-{number}" for number in range(2 * nodes)]
    for name in busy:
        user.apply(inference(name, "llama-3.1-405b-fp8"))
    for name in busy:
        user.wait_ready(name)
    user.apply(inference("llama", "llama-3.1-405b-fp8"))
    # That a node is gone may be seen a moment after the object.
    status = user.wait(
        "llama",
        lambda status: any(
            "waits for the node autoscaler" in str(one.get("message"))
            for one in status.get("conditions", [])
        ),
    )
    assert [one["pool"] for one in status["placements"]] == ["chat"]
    assert has("Ready", "False")(status)
    # The autoscaler adds nodes for pods that the scheduler finds no place for.
    (pod,) = user.admin.wait_items(
        "pods",
        lambda pods: pods and condition(pods[0]["status"], "PodScheduled"),
        selector="tonnage.dev/inferencedeployment=llama",
    )
    assert condition(pod["status"], "PodScheduled")["reason"] == "Unschedulable"
    apply_fleet(control_plane.access, {"groups": [{**group, "name": "added"}]})
    user.wait_ready("llama")
    (pod,) = user.children("pods", "llama")
    assert pod["spec"]["nodeName"] == "added-0"
    (deployment,) = user.children("deployments", "llama")
    assert container(deployment)["resources"]["limits"]["amd.com/gpu"] == "4"


def test_no_object_waits_for_a_full_pool_while_another_has_free_gpus(
    fleet: UseFleet, declare: Declare, user: User
) -> None:
    fleet("tiny")
    declare(declared("chat", MI300X, costPerGPUHour="1.00", maxNodes=4))
    for name in ("busy-0", "busy-1"):
        spec = {"accelerators": ["mi300x"]}
        user.apply(inference(name, "llama-3.1-405b-fp8", placement=spec))
    for name in ("busy-0", "busy-1"):
        user.wait_ready(name)
    user.apply(inference("llama", "llama-3.1-8b"))
    status = user.wait_ready("llama")
    assert status["placements"][0]["accelerator"] == "h100-sxm-80gb"
    assert "autoscaler" in verdict(status, "chat")["message"]
