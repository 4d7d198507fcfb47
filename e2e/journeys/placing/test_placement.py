"""The chosen pool, and the reasons against every other one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.admin import Admin
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.pools import AMD_LABEL, counts, discovered
from e2e.journeys.user import User, argument, candidate, condition, container, has
from e2e.models import inference
from e2e.nodes.fleet import apply_fleet
from tonnage import delays


def deployment(user: User, name: str) -> Json:
    (child,) = user.children("deployments", name)
    return child


def test_a_70b_model_runs_on_one_mi300x_and_status_has_the_reason_against_h100(
    fleet: UseFleet, user: User
) -> None:
    fleet("mixed")
    user.apply(inference("llama-70b"))
    status = user.wait_ready("llama-70b")
    (placement,) = status["placements"]
    assert placement["accelerator"] == "mi300x"
    assert placement["tensorParallelSize"] == 1
    child = deployment(user, "llama-70b")
    assert "rocm" in container(child)["image"]
    assert container(child)["resources"]["limits"]["amd.com/gpu"] == "1"
    assert argument(child, "--tensor-parallel-size") == "1"
    h100 = candidate(status, "h100-sxm-80gb")
    assert h100["verdict"] == "Feasible"
    assert h100["tensorParallelSize"] == 4
    assert h100["reason"] == "CostsMore"
    assert any(character.isdigit() for character in h100["message"])
    assert len(status["candidates"]) == 5
    assert all(entry["reason"] and entry["message"] for entry in status["candidates"])


def test_its_pods_run_on_nodes_of_the_chosen_pool(fleet: UseFleet, user: User) -> None:
    fleet("mixed")
    user.apply(inference("llama-70b"))
    user.wait_ready("llama-70b")
    (pod,) = user.children("pods", "llama-70b")
    node = user.admin.get("nodes", pod["spec"]["nodeName"])
    assert node is not None
    assert node["metadata"]["labels"]["amd.com/gpu.device-id"] == "74a1"


def absent(admin: Admin, names: list[str]) -> None:
    for name in names:
        admin.delete("nodes", name)


def cordoned(admin: Admin, names: list[str]) -> None:
    for name in names:
        admin.kubectl("cordon", name)


def not_ready(admin: Admin, names: list[str]) -> None:
    for name in names:
        admin.kubectl("label", "node", name, "e2e.tonnage.dev/ready=false")
    for name in names:
        admin.wait_for(
            "nodes",
            name,
            lambda node: any(
                condition["type"] == "Ready" and condition["status"] != "True"
                for condition in node["status"]["conditions"]
            ),
            timeout=180,
        )


def await_amd_gpus(admin: Admin, wanted: int) -> None:
    """Wait until the operator reports so many allocatable GPUs of AMD."""

    def are_reported() -> bool:
        pools = discovered(admin).items()
        return wanted == sum(counts(one)[1] for name, one in pools if name.startswith("amd-"))

    admin.until(f"{wanted} GPUs of AMD to be reported", are_reported, timeout=90)


@pytest.mark.parametrize("loss", [absent, cordoned, not_ready], ids=lambda loss: loss.__name__)
def test_without_amd_nodes_a_70b_model_runs_on_four_h100(
    fleet: UseFleet, user: User, loss: Callable[[Admin, list[str]], None]
) -> None:
    fleet("mixed")
    # Two H200 would cost less than four H100; here the choice is between AMD and H100.
    allowed = {"accelerators": ["mi300x", "mi355x", "h100-sxm-80gb"]}
    nodes = user.admin.items("nodes", selector=AMD_LABEL)
    await_amd_gpus(
        user.admin, sum(int(node["status"]["allocatable"]["amd.com/gpu"]) for node in nodes)
    )
    loss(user.admin, [node["metadata"]["name"] for node in nodes])
    await_amd_gpus(user.admin, 0)
    user.apply(inference("llama-70b", placement=allowed))
    status = user.wait_ready("llama-70b")
    (placement,) = status["placements"]
    assert (placement["accelerator"], placement["tensorParallelSize"]) == ("h100-sxm-80gb", 4)
    child = deployment(user, "llama-70b")
    assert container(child)["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert "rocm" not in container(child)["image"]


@pytest.mark.parametrize(
    ("accelerator", "tensor_parallel_size"), [("h100-sxm-80gb", 8), ("mi300x", 4)]
)
def test_405b_in_fp8_takes_eight_h100_or_four_mi300x(
    fleet: UseFleet, user: User, accelerator: str, tensor_parallel_size: int
) -> None:
    fleet("mixed")
    user.apply(
        inference("llama-405b", "llama-3.1-405b-fp8", placement={"accelerators": [accelerator]})
    )
    (placement,) = user.wait_ready("llama-405b")["placements"]
    assert placement["tensorParallelSize"] == tensor_parallel_size


def test_the_policy_decides_between_money_and_gpus(fleet: UseFleet, user: User) -> None:
    fleet("mixed")
    allowed = ["mi300x", "h100-sxm-80gb"]
    for name, policy in (("cheap", "LowestCost"), ("few", "FewestGPUs")):
        spec = {"policy": policy, "accelerators": allowed}
        user.apply(inference(name, "llama-3.1-405b-fp8", placement=spec))
        (placement,) = user.wait_ready(name)["placements"]
        assert (placement["accelerator"], placement["gpusPerReplica"]) == ("mi300x", 4)
        assert placement["reason"] == policy


def test_deepseek_v3_never_runs_on_eight_h100(fleet: UseFleet, user: User) -> None:
    fleet("mixed")
    user.apply(inference("deepseek", "deepseek-v3", max_model_len=16384))
    status = user.wait_ready("deepseek")
    assert status["placements"][0]["accelerator"] != "h100-sxm-80gb"
    h100 = candidate(status, "h100-sxm-80gb")
    assert (h100["verdict"], h100["reason"]) == ("Rejected", "NoInterconnect")


def test_a_model_that_fits_nowhere_reports_the_shortage_of_each_pool(
    fleet: UseFleet, user: User
) -> None:
    fleet("nvidia-only")
    spec = {"accelerators": ["h100-sxm-80gb", "l40s"]}
    user.apply(inference("deepseek", "deepseek-v3", max_model_len=16384, placement=spec))
    status = user.wait("deepseek", has("Placed", "False", "DoesNotFit"))
    assert condition(status, "Ready")["reason"] == "DoesNotFit"
    assert condition(status, "Stalled")["status"] == "True"
    rejected = [entry for entry in status["candidates"] if entry["reason"] != "NotAllowed"]
    assert rejected
    assert all("GiB" in entry["message"] for entry in rejected)
    assert user.children("deployments", "deepseek") == []


def test_a_pending_object_runs_once_a_node_joins(
    control_plane: Stack, fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    spec = {"accelerators": ["mi300x"]}
    user.apply(inference("first", "llama-3.1-405b-fp8", placement=spec))
    user.apply(inference("second", "llama-3.1-405b-fp8", placement=spec))
    user.wait_ready("first")
    user.wait_ready("second")
    user.apply(inference("third", "llama-3.1-405b-fp8", placement=spec))
    status = user.wait("third", has("Placed", "False", "InsufficientGPUs"))
    assert "4" in condition(status, "Placed")["message"]
    assert user.children("deployments", "third") == []
    more = {"groups": [{"name": "more", "count": 1, "accelerator": "mi300x", "gpusPerNode": 8}]}
    apply_fleet(control_plane.access, more)
    # Long before the operator reconciles an object that waits without an event.
    user.wait_ready("third", timeout=delays.REPORT_FLEET / 2)
