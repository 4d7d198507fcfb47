"""Nodes with partitions, MIG slices, shared GPUs, or without labels."""

from __future__ import annotations

import pytest

from e2e.harness.admin import Admin
from e2e.harness.operator_process import OperatorProcess
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.pools import await_pool, counts, declared, discovered, unusable
from e2e.journeys.user import User, condition, container, has, verdict
from e2e.models import inference

NOT_USABLE = {
    "shared-0": "a share of a GPU",
    "cordoned-0": "cordoned",
    "lost-0": "NotReady",
    "unlabelled-0": "no label names the accelerator",
}
"""Nodes of the fleet `awkward` that carry no replica, with words that the reason has to have."""


@pytest.fixture
def awkward(fleet: UseFleet, installed: Admin, operator: OperatorProcess) -> None:
    """The fleet of odd nodes, once the operator has reported it."""
    fleet("awkward")
    installed.until(
        "exactly the unusable nodes to be reported",
        lambda: unusable(installed).keys() == NOT_USABLE.keys(),
        timeout=180,
        describe=lambda: str(unusable(installed)),
    )


def test_an_unusable_node_reports_what_it_is(awkward: None, installed: Admin) -> None:
    def as_they_are() -> bool:
        reasons = unusable(installed)
        return all(words in reasons.get(name, "") for name, words in NOT_USABLE.items())

    # A node that has just come has not said yet that it is ready.
    installed.until(
        "each node to be reported with its reason",
        as_they_are,
        timeout=90,
        describe=lambda: str(unusable(installed)),
    )


@pytest.mark.parametrize(
    ("accelerator", "devices"),
    [
        ("mi300x", {"cpx-0": "amd.com/cpx_nps4", "cpx-single-0": "amd.com/gpu"}),
        ("h100-sxm-80gb", {"mig-mixed-0": "nvidia.com/mig-3g.40gb"}),
    ],
)
def test_a_small_model_runs_on_a_gpu_partition_and_requests_its_resource(
    awkward: None, user: User, accelerator: str, devices: dict[str, str]
) -> None:
    allowed = {"accelerators": [accelerator]}
    user.apply(inference("small", "llama-3.1-8b", max_model_len=8192, placement=allowed))
    (placement,) = user.wait_ready("small")["placements"]
    assert placement["accelerator"] == accelerator
    assert placement["tensorParallelSize"] == 1
    assert placement["memory"]["deviceGiB"] < 42
    (pod,) = user.children("pods", "small")
    (deployment,) = user.children("deployments", "small")
    limits = container(deployment)["resources"]["limits"]
    assert {key: limits[key] for key in limits if "/" in key} == {
        devices[pod["spec"]["nodeName"]]: "1"
    }


def test_a_large_model_never_runs_on_several_partitions(awkward: None, user: User) -> None:
    user.apply(inference("large", placement={"accelerators": ["mi300x"]}))
    status = user.wait_ready("large")
    assert status["placements"][0]["memory"]["deviceGiB"] == pytest.approx(192, abs=0.5)
    (pod,) = user.children("pods", "large")
    assert pod["spec"]["nodeName"] in ("tainted-0", "nfd-0")
    in_parts = verdict(status, await_pool_of(user.admin, devices=64))
    assert (in_parts["verdict"], in_parts["reason"]) == ("Rejected", "WeightsDoNotFit")


def await_pool_of(admin: Admin, devices: int) -> str:
    """The first pool with so many devices, once the operator has reported it."""

    def find() -> str | None:
        pools = sorted(discovered(admin).items())
        return next((name for name, status in pools if counts(status)[0] == devices), None)

    return admin.until(f"a pool with {devices} devices", find)


def test_nodes_without_labels_are_used_once_a_pool_declares_their_accelerator(
    awkward: None, declare: Declare, user: User
) -> None:
    only = {"accelerators": ["h200-sxm-141gb"]}
    user.apply(inference("llama", placement=only))
    status = user.wait("llama", has("Placed", "False"))
    unrecognised = [one for one in status["candidates"] if one["reason"] == "Unrecognised"]
    assert any("declare an AcceleratorPool" in one["message"] for one in unrecognised)
    nodes = {"kubernetes.io/hostname": "unlabelled-0"}
    declare(declared("h200s", nodes, accelerator="h200-sxm-141gb"))
    await_pool(
        user.admin, "h200s", lambda pool: counts(pool)[:2] == (8, 8), why="the node to be usable"
    )
    status = user.wait_ready("llama")
    assert status["placements"][0]["pool"] == "h200s"
    assert condition(status, "Placed")["reason"] == "PoolChosen"
