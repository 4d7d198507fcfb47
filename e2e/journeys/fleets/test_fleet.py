"""Every kind of node is in the right pool, and unusable nodes are no capacity."""

from __future__ import annotations

from collections.abc import Callable

from e2e.harness.admin import Admin
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.pools import await_pool, counts, discovered, shown, silence, unusable
from e2e.journeys.user import User
from e2e.models import inference
from e2e.nodes.descriptions import render_nodes
from e2e.nodes.labels import known_accelerators
from tests.support.load.exposition import read_series


def test_every_accelerator_has_its_own_pool_and_none_is_guessed(
    fleet: UseFleet, operator: OperatorProcess, installed: Admin
) -> None:
    groups = [{"name": name, "accelerator": name, "count": 2} for name in known_accelerators()]
    fleet({"groups": groups})
    gpus_of = {node["metadata"]["name"]: _gpus(node) for node in render_nodes({"groups": groups})}
    expected = {
        (name, (2 * gpus, 2 * gpus, 2 * gpus, gpus))
        for name in known_accelerators()
        for gpus in [gpus_of[f"{name}-0"]]
    }

    def seen() -> set[tuple[str, tuple[int, ...]]]:
        pools = discovered(installed).values()
        return {(pool.get("accelerator", ""), counts(pool)) for pool in pools}

    installed.until(
        "a pool for each accelerator",
        lambda: seen() == expected,
        describe=lambda: f"missing {expected - seen()}, too many {seen() - expected}",
    )
    header, *rows = installed.kubectl("get", "apool").splitlines()
    assert header.split() == [
        "NAME", "ACCELERATOR", "NODES", "GPUS", "ALLOCATABLE", "FREE", "LARGEST", "READY", "AGE",
    ]  # fmt: skip
    assert ["amd-mi300x", "mi300x", "2", "16", "16", "16", "8", "True"] in [
        row.split()[:8] for row in rows
    ]


def _gpus(node: Json) -> int:
    allocatable = node["status"]["allocatable"]
    return sum(int(count) for name, count in allocatable.items() if "/gpu" in name)


def test_a_discovered_pool_exists_as_long_as_one_of_its_nodes(
    fleet: UseFleet, operator: OperatorProcess, installed: Admin
) -> None:
    fleet("mixed")
    pool = "nvidia-l40s"
    await_pool(installed, pool, lambda status: status["nodes"] == 2, why="both nodes in the pool")
    installed.delete("nodes", "l40s-0")
    await_pool(installed, pool, lambda status: status["nodes"] == 1, why="one node in the pool")
    installed.delete("nodes", "l40s-1")
    installed.wait_gone("apool", pool)
    assert "nvidia-h100-sxm-80gb" in discovered(installed)


def cordon(admin: Admin, node: str) -> None:
    admin.kubectl("cordon", node)


def make_not_ready(admin: Admin, node: str) -> None:
    admin.patch("nodes", node, {"metadata": {"labels": {"e2e.tonnage.dev/ready": "false"}}})


def fall_silent(admin: Admin, node: str) -> None:
    silence(admin, [node])


def taint(key: str) -> Callable[[Admin, str], None]:
    """What a vendor's remediation or partition manager does to a node."""

    def put(admin: Admin, node: str) -> None:
        admin.kubectl("taint", "node", node, f"{key}=up:NoSchedule")

    return put


def lose_gpus(admin: Admin, node: str) -> None:
    """The device plugin finds no healthy device any more."""
    gone = {"status": {"allocatable": {"amd.com/gpu": "0"}}}
    admin.patch("nodes", node, gone, subresource="status")


LOSSES: dict[str, tuple[Callable[[Admin, str], None], str]] = {
    "mi300x-0": (cordon, "cordoned"),
    "mi300x-1": (make_not_ready, "NotReady"),
    "mi300x-2": (fall_silent, "NotReady"),
    "mi300x-3": (taint("amd-gpu-unhealthy"), "amd-gpu-unhealthy"),
    "mi300x-4": (taint("amd-dcm"), "amd-dcm"),
    "mi300x-5": (lose_gpus, "allocatable"),
    "mi300x-6": (taint("dedicated"), "dedicated=up:NoSchedule"),
}


def test_an_unusable_node_is_reported_with_the_reason_and_gets_no_pod(
    fleet: UseFleet, user: User
) -> None:
    count = len(LOSSES) + 1
    fleet({"groups": [{"name": "mi300x", "count": count, "accelerator": "mi300x"}]})
    for node, (lose, _) in LOSSES.items():
        lose(user.admin, node)

    def unexplained() -> dict[str, str]:
        """The lost nodes whose reason lacks a word, with the reason."""
        reasons = unusable(user.admin)
        return {
            node: reasons.get(node, "")
            for node, (_, words) in LOSSES.items()
            if words not in reasons.get(node, "")
        }

    user.admin.until(
        "each lost node to be reported with its reason",
        lambda: not unexplained(),
        describe=lambda: str(unexplained()),
    )
    status = shown(user.admin, "amd-mi300x")
    assert len(status["unusableNodes"]) == len(LOSSES)
    assert counts(status) == (8 * count, 8, 8, 8)
    usable = f"mi300x-{count - 1}"
    without_gpus = {node for node, (lose, _) in LOSSES.items() if lose is lose_gpus}
    user.admin.until(
        "the taints of nodes that are lost, which the scheduler follows",
        lambda: open_nodes(user.admin) == {usable} | without_gpus,
        describe=lambda: str(open_nodes(user.admin)),
    )
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
    (pod,) = user.children("pods", "llama")
    assert pod["spec"]["nodeName"] == usable


def open_nodes(admin: Admin) -> set[str]:
    """The nodes without a taint."""
    nodes = admin.items("nodes")
    return {node["metadata"]["name"] for node in nodes if not node["spec"].get("taints")}


def test_only_objects_with_replicas_on_a_lost_node_report_it(
    fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    mi300x = {"name": "mi300x", "accelerator": "mi300x", "count": 2, "gpusPerNode": 4}
    fleet({"groups": [mi300x]})
    for name in ("one", "two"):  # a node each
        user.apply(inference(name, "deepseek-v3"))
    for name in ("one", "two"):
        user.wait_ready(name)
    user.await_quiet()
    (pod,) = user.children("pods", "one")
    known, resynced = len(operator.log_lines()), last_resync(operator)

    def looked_at() -> set[str]:
        return {line["key"] for line in operator.log_lines()[known:] if "key" in line}

    # Its pods are heard of no sooner than a minute later, when they are collected as garbage.
    user.admin.delete("nodes", pod["spec"]["nodeName"])
    one = f"{user.namespace}/one"
    user.admin.until("who ran there to be looked at", lambda: one in looked_at())
    await_pool(user.admin, "amd-mi300x", lambda status: status["nodes"] == 1, why="one node less")
    if last_resync(operator) == resynced:  # else everybody was looked at
        assert looked_at() == {one}
    force = ("--all", "--force", "--grace-period=0", "--wait=false")
    user.admin.kubectl("delete", "pods", *force, "-n", user.namespace)


def last_resync(operator: OperatorProcess) -> float:
    name = "tonnage_last_resync_timestamp_seconds"
    return read_series(operator.metrics())[name, frozenset()]


def test_gpus_of_a_foreign_pod_are_used_until_the_pod_is_gone(fleet: UseFleet, user: User) -> None:
    fleet("tiny")
    user.admin.apply(_pod("batch", gpus=3))
    await_pool(
        user.admin, "amd-mi300x", lambda status: counts(status) == (8, 8, 5, 5), why="3 of 8 taken"
    )
    user.admin.delete("pods", "batch", timeout=None)
    free = counts(shown(user.admin, "amd-mi300x"))[2]
    while user.admin.get("pods", "batch"):  # read after the pool: what was shown is of its time
        assert free == 5
        free = counts(shown(user.admin, "amd-mi300x"))[2]
    await_pool(
        user.admin, "amd-mi300x", lambda status: counts(status) == (8, 8, 8, 8), why="all 8 free"
    )


def _pod(name: str, gpus: int) -> Json:
    limits = {"amd.com/gpu": str(gpus)}
    container = {"name": "main", "image": "batch", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"e2e.tonnage.dev/stop-after": "2s"}},
        "spec": {"containers": [container]},
    }
