"""Replicas on several nodes, with the real controller of LeaderWorkerSet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from e2e.doubles.watch_recorder import WatchRecorder
from e2e.harness.failure import HarnessError
from e2e.harness.leader_worker_set import LeaderWorkerSetController
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.crowd import create_at_once, runs, sixty_run
from e2e.journeys.pools import await_pool, counts
from e2e.journeys.user import User, candidate, condition, has
from e2e.models import inference
from e2e.nodes.descriptions import connected_h100s

WITHIN = 180
CRASH = "crash-loop"
SLOW = {"metadata": {"annotations": {"e2e.tonnage.dev/ready-after": "6s"}}}
"""Pods of this template take 6 s to become ready: long enough for the status to report it."""
H100, BY_DRIVER = "nvidia-h100-sxm-80gb", "nvidia-h100-sxm-80gb-dra"
OWNERS = "tonnage.dev/inferencedeployment"
WORKERS = "tonnage.dev/worker-of"


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
    (worker,) = workers(user, name)
    return {"leader": leader, "worker": worker}


def workers(user: User, name: str) -> list[Json]:
    return user.admin.items("pods", selector=f"{WORKERS}={name}")


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


def test_each_pod_of_a_group_claims_the_devices_of_its_node(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController
) -> None:
    fleet({"groups": [connected_h100s(2) | {"draDriver": "current"}]})
    user.apply(inference("deepseek", "deepseek-v3"))
    status = user.wait_ready("deepseek", timeout=WITHIN)
    (placement,) = status["placements"]
    assert (placement["pool"], placement["nodesPerReplica"]) == (BY_DRIVER, 2)
    (template,) = user.children("resourceclaimtemplates", "deepseek")
    claims = {claim["metadata"]["name"]: claim for claim in user.admin.items("resourceclaims")}
    assert len(claims) == 2
    for pod in pods_of_group(user, "deepseek").values():
        (of_pod,) = pod["spec"]["resourceClaims"]
        assert of_pod["resourceClaimTemplateName"] == template["metadata"]["name"]
        (made,) = pod["status"]["resourceClaimStatuses"]
        results = claims[made["resourceClaimName"]]["status"]["allocation"]["devices"]["results"]
        assert [result["pool"] for result in results] == [pod["spec"]["nodeName"]] * 8
        assert len({result["device"] for result in results}) == 8
    await_pool(user.admin, BY_DRIVER, is_taken, why="both taken", timeout=WITHIN)
    user.await_quiet()
    user.forget("deepseek")
    user.admin.delete("infd", "deepseek")
    await_pool(user.admin, BY_DRIVER, is_free, why="both free", timeout=WITHIN)
    user.admin.wait_items("resourceclaimtemplates", lambda items: not items, timeout=WITHIN)


def is_taken(pool: Json) -> bool:
    """Whether no GPU of two nodes is free."""
    return counts(pool) == (16, 16, 0, 0)


def is_free(pool: Json) -> bool:
    """Whether all GPUs of two nodes are free."""
    return counts(pool) == (16, 16, 16, 8)


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
    user.apply(inference("deepseek", "deepseek-v3", template=SLOW))
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
    """With two more nodes, the new group serves before the old one stops."""
    fleet(h100s(nodes))
    user.apply(inference("deepseek", "deepseek-v3"))
    user.wait_ready("deepseek", timeout=WITHIN)
    before = pods_of_group(user, "deepseek")
    name = the_set(user, "deepseek")["metadata"]["name"]
    engine = {"vllm": {"extraArgs": ["--seed=7"]}}

    def replaced(status: Json) -> bool:
        leaders = user.children("pods", "deepseek")
        uids = {pod["metadata"]["uid"] for pod in leaders}
        is_old = before["leader"]["metadata"]["uid"] in uids
        # While group 0 is replaced, group 1 serves in its place.
        names = [pod["metadata"]["name"] for pod in leaders]
        # The worker of group 1 is collected after its leader.
        alone = names == [f"{name}-0"] and len(workers(user, "deepseek")) == 1
        return bool(has("Ready")(status)) and not is_old and alone

    with WatchRecorder(user.admin, "leaderworkersets", name, user.namespace) as seen:
        user.apply(inference("deepseek", "deepseek-v3", engine=engine))
        user.wait("deepseek", replaced, timeout=2 * WITHIN)
    for pod in pods_of_group(user, "deepseek").values():
        assert "--seed=7" in pod["spec"]["containers"][0]["args"]
    ready = [version["status"].get("readyReplicas", 0) for version in seen.versions]
    assert min(ready) == (1 if nodes == 4 else 0)


def test_a_group_that_does_not_start_goes_back_to_the_former_template(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController
) -> None:
    """vLLM refuses an argument; the group loops until the progress deadline. Only that start has a
    short one: on a busy machine, any start may take as long."""
    fleet(h100s(2))
    rollout = {"progressDeadline": "20s"}
    user.apply(inference("deepseek", "deepseek-v3"))
    user.wait_ready("deepseek", timeout=WITHIN)
    before = the_set(user, "deepseek")["spec"]
    engine = {"vllm": {"extraArgs": ["--seed=seven"]}}
    bad = inference("deepseek", "deepseek-v3", rollout=rollout, engine=engine, behaviour=CRASH)
    user.apply(bad)
    status = user.wait("deepseek", has("Stalled", "True", "RolledBack"), timeout=3 * WITHIN)
    assert the_set(user, "deepseek")["spec"] == before
    status = user.wait("deepseek", has("Available", "True"), timeout=WITHIN)
    assert "CrashLooping" in condition(status, "Degraded")["message"]
    for pod in pods_of_group(user, "deepseek").values():
        assert "--seed=seven" not in pod["spec"]["containers"][0]["args"]
    served = {pod["metadata"]["uid"] for pod in pods_of_group(user, "deepseek").values()}
    user.await_quiet()
    user.apply(inference("deepseek", "deepseek-v3"))
    user.wait_ready("deepseek", timeout=WITHIN)
    user.await_quiet()
    after = {pod["metadata"]["uid"] for pod in pods_of_group(user, "deepseek").values()}
    assert after == served, "the change that is taken back replaces no pod"


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


def test_a_drain_takes_one_group_at_a_time_and_never_the_last(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController
) -> None:
    """Each drained node has a worker, whose eviction ends its group, and no other node is free. The
    first group goes, and the second one serves on."""
    fleet(h100s(4))
    user.apply(inference("deepseek", "deepseek-v3", replicas=2))
    user.wait_ready("deepseek", timeout=WITHIN)
    name = the_set(user, "deepseek")["metadata"]["name"]
    nodes = {
        pod["metadata"]["name"].removeprefix(name): pod["spec"]["nodeName"]
        for pod in user.admin.items("pods", selector=f"{WORKERS}=deepseek")
    }
    user.admin.wait_for("poddisruptionbudgets", name, allows(1), timeout=WITHIN)
    drain = ("drain", "--delete-emptydir-data", "--ignore-daemonsets")
    with WatchRecorder(user.admin, "leaderworkersets", name, user.namespace) as seen:
        user.admin.kubectl(*drain, "--timeout=100s", nodes["-0-1"])
        user.admin.wait_for("poddisruptionbudgets", name, allows(0), timeout=WITHIN)
        with pytest.raises(HarnessError, match="violate the pod's disruption budget"):
            user.admin.kubectl(*drain, "--timeout=15s", nodes["-1-1"])
        status = user.wait("deepseek", lacks_a_group, timeout=WITHIN)
        assert (status["readyReplicas"], status["desiredReplicas"]) == (1, 2)
        user.admin.kubectl("uncordon", *nodes.values())
        user.wait_ready("deepseek", timeout=2 * WITHIN)
        user.admin.wait_for("poddisruptionbudgets", name, allows(1), timeout=WITHIN)
    assert min(version["status"].get("readyReplicas", 0) for version in seen.versions) == 1


def lacks_a_group(status: Json) -> bool:
    """Whether one group serves, and there is no place for another."""
    return bool(has("Placed", "False")(status)) and status["readyReplicas"] == 1


def allows(disruptions: int) -> Callable[[Json], bool]:
    """A predicate on a budget: the disruption controller admits so many evictions."""
    return lambda budget: (
        budget.get("status", {}).get("observedGeneration") == budget["metadata"]["generation"]
        and budget["status"]["disruptionsAllowed"] == disruptions
    )


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


def test_sixty_groups_of_a_hundred_have_two_nodes_each_to_themselves(
    fleet: UseFleet, user: User, leader_worker_sets: LeaderWorkerSetController
) -> None:
    """One node more than sixty groups need: no group takes it for its first half."""
    fleet(h100s(121))
    create_at_once(
        user, [inference(f"deepseek-{number:02}", "deepseek-v3") for number in range(100)]
    )
    user.admin.wait_items("infd", sixty_run, timeout=600, why="sixty of a hundred groups to run")
    nodes = Counter(
        pod["spec"].get("nodeName")
        for selector in (OWNERS, WORKERS)
        for pod in user.admin.items("pods", selector=selector)
    )
    assert nodes.pop(None, 0) == 0, "no pod waits for a node"
    assert (len(nodes), set(nodes.values())) == (120, {1})
    assert len(user.admin.items("leaderworkersets")) == 60
    gone = next(one["metadata"]["name"] for one in user.admin.items("infd") if runs(one))
    user.admin.delete("infd", gone, timeout=None)
    user.admin.wait_items("infd", sixty_run, timeout=400, why="the next group to follow")
