"""Replicas on several nodes, with the real controller of LeaderWorkerSet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.harness.admin import Admin
from e2e.harness.leader_worker_set import LeaderWorkerSetController
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, candidate, condition, has
from e2e.models import inference
from e2e.nodes.descriptions import connected_h100s

WITHIN = 60
H100 = "nvidia-h100-sxm-80gb"
WORKERS = "tonnage.dev/worker-of"


@pytest.fixture(scope="module")
def leader_worker_sets(
    control_plane: Stack, installed: Admin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LeaderWorkerSetController]:
    """The controller with its webhooks; its kind is gone afterwards."""
    folder = tmp_path_factory.mktemp("lws")
    with LeaderWorkerSetController(installed, folder, control_plane.layout.pki) as controller:
        yield controller


def h100s(count: int, **others: Json) -> Json:
    """Nodes of 8 H100 with RDMA, and other groups."""
    return {"groups": [connected_h100s(count), *others.values()]}


def the_set(user: User, name: str) -> Json:
    """The LeaderWorkerSet of the object."""
    (child,) = user.children("leaderworkersets", name)
    return child


def pods_of_group(user: User, name: str) -> dict[str, Json]:
    """The leader and the worker of the only replica."""
    (leader,) = user.children("pods", name)
    (worker,) = user.admin.items("pods", selector=f"{WORKERS}={name}")
    return {"leader": leader, "worker": worker}


def test_deepseek_v3_runs_on_two_nodes_of_h100(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController
) -> None:
    fleet(h100s(3))
    user.apply(inference("deepseek", "deepseek-v3"))
    status = user.wait_ready("deepseek", timeout=WITHIN)
    (placement,) = status["placements"]
    assert (placement["pool"], placement["nodesPerReplica"]) == (H100, 2)
    assert (placement["tensorParallelSize"], placement["pipelineParallelSize"]) == (8, 2)
    assert (placement["replicas"], placement["readyReplicas"]) == (1, 1)
    assert (status["replicas"], status["readyReplicas"]) == (1, 1)
    pods = pods_of_group(user, "deepseek")
    assert len({pod["spec"]["nodeName"] for pod in pods.values()}) == 2
    for role, index in (("leader", "0"), ("worker", "1")):
        (container,) = pods[role]["spec"]["containers"]
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert environment["LWS_WORKER_INDEX"] == index
        assert environment["LWS_LEADER_ADDRESS"].startswith(pods["leader"]["metadata"]["name"])
        assert ("--headless" in container["args"]) == (role == "worker")
        assert ("readinessProbe" in container) == (role == "leader")
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "rdma/ib": "1"}
    (service,) = user.children("services", "deepseek")
    selector = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())
    assert len(user.admin.items("pods", selector=selector)) == 1
    user.await_quiet()


def test_it_runs_on_one_node_of_mi300x_where_that_costs_less(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController
) -> None:
    mi300x = {"name": "mi300x", "count": 1, "accelerator": "mi300x"}
    fleet(h100s(2, mi300x=mi300x))
    user.apply(inference("deepseek", "deepseek-v3"))
    status = user.wait_ready("deepseek")
    assert status["placements"][0]["accelerator"] == "mi300x"
    assert user.children("leaderworkersets", "deepseek") == []
    h100 = candidate(status, "h100-sxm-80gb")
    assert (h100["verdict"], h100["reason"], h100["nodesPerReplica"]) == (
        "Feasible",
        "CostsMore",
        2,
    )
    assert "47.84/h against" in h100["message"]


def test_a_group_whose_pod_is_deleted_comes_back_and_is_not_ready_meanwhile(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController
) -> None:
    fleet(h100s(2))
    user.apply(inference("deepseek", "deepseek-v3"))
    user.wait_ready("deepseek", timeout=WITHIN)
    before = pods_of_group(user, "deepseek")
    user.admin.delete("pods", before["worker"]["metadata"]["name"], timeout=None)
    user.wait("deepseek", has("Ready", "False"), timeout=WITHIN)
    status = user.wait_ready("deepseek", timeout=WITHIN)
    assert status["readyReplicas"] == 1
    after = pods_of_group(user, "deepseek")
    assert after["leader"]["metadata"]["uid"] != before["leader"]["metadata"]["uid"]


def test_a_group_that_has_no_place_as_a_whole_takes_no_node_of_others(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController
) -> None:
    fleet(h100s(3))
    user.apply(inference("first", "deepseek-v3"))
    user.wait_ready("first", timeout=WITHIN)
    user.apply(inference("second", "deepseek-v3"))
    status = user.wait("second", has("Placed", "False", "InsufficientGPUs"), timeout=WITHIN)
    assert "needs 8 free GPUs on each of 2 nodes" in condition(status, "Placed")["message"]
    assert user.children("leaderworkersets", "second") == []
    user.apply(inference("small", "llama-3.3-70b"))
    user.wait_ready("small", timeout=WITHIN)
    fleet(h100s(5))
    user.wait_ready("second", timeout=WITHIN)


def test_it_scales_and_ends_with_the_object(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController
) -> None:
    fleet(h100s(4))
    user.apply(inference("deepseek", "deepseek-v3", replicas=2))
    status = user.wait_ready("deepseek", timeout=WITHIN)
    assert status["readyReplicas"] == 2
    user.apply(inference("deepseek", "deepseek-v3", replicas=0))
    user.wait("deepseek", lambda status: status.get("replicas") == 0, timeout=WITHIN)
    user.apply(inference("deepseek", "deepseek-v3", replicas=1))
    user.wait_ready("deepseek", timeout=WITHIN)
    name = the_set(user, "deepseek")["metadata"]["name"]
    user.admin.delete("infd", "deepseek")
    user.forget("deepseek")
    user.admin.wait_gone("leaderworkersets", name, timeout=WITHIN)


@pytest.mark.parametrize("nodes", [2, 4])
def test_an_argument_of_the_user_replaces_the_group(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController, nodes: int
) -> None:
    fleet(h100s(nodes))
    user.apply(inference("deepseek", "deepseek-v3"))
    user.wait_ready("deepseek", timeout=WITHIN)
    before = pods_of_group(user, "deepseek")
    engine = {"vllm": {"extraArgs": ["--seed=7"]}}
    user.apply(inference("deepseek", "deepseek-v3", engine=engine))

    def replaced(status: Json) -> bool:
        leaders = user.children("pods", "deepseek")
        uids = {pod["metadata"]["uid"] for pod in leaders}
        return bool(has("Ready")(status)) and before["leader"]["metadata"]["uid"] not in uids

    user.wait("deepseek", replaced, timeout=WITHIN)
    for pod in pods_of_group(user, "deepseek").values():
        assert "--seed=7" in pod["spec"]["containers"][0]["args"]


def test_a_group_that_loses_a_node_starts_on_another_one(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController
) -> None:
    fleet(h100s(3))
    user.apply(inference("deepseek", "deepseek-v3"))
    user.wait_ready("deepseek", timeout=WITHIN)
    lost = pods_of_group(user, "deepseek")["worker"]["spec"]["nodeName"]
    user.admin.delete("nodes", lost)
    user.wait("deepseek", has("Ready", "False"), timeout=3 * WITHIN)
    user.wait_ready("deepseek", timeout=3 * WITHIN)
    nodes = {pod["spec"]["nodeName"] for pod in pods_of_group(user, "deepseek").values()}
    assert len(nodes) == 2
    assert lost not in nodes


def test_it_moves_from_two_nodes_to_one_and_back_and_survives_the_operator(
    fleet: UseFleet,
    user: User,
    operator: OperatorProcess,
    leader_worker_sets: LeaderWorkerSetController,
) -> None:
    mi300x = {"name": "mi300x", "count": 1, "accelerator": "mi300x"}
    fleet(h100s(2, mi300x=mi300x))
    for accelerator, nodes in (("h100-sxm-80gb", 2), ("mi300x", 1), ("h100-sxm-80gb", 2)):
        placement = {"accelerators": [accelerator]}
        user.apply(inference("deepseek", "deepseek-v3", placement=placement))
        operator.kill()
        operator.start()

        def moved(status: Json, wanted: tuple[str, int] = (accelerator, nodes)) -> bool:
            (*_, last) = status.get("placements") or [{}]
            runs = last.get("accelerator"), last.get("nodesPerReplica", 1)
            is_alone = len(status.get("placements", ())) == 1
            return runs == wanted and is_alone and bool(has("Ready")(status))

        user.wait("deepseek", moved, timeout=3 * WITHIN)
        sets = user.children("leaderworkersets", "deepseek")
        assert len(sets) == nodes - 1
        assert len(user.children("deployments", "deepseek")) == 2 - nodes
