"""The high-availability overlay with the real scheduler: never two replicas on one node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from e2e.harness.admin import SLOW, Admin
from e2e.harness.operator_process import ROOT
from e2e.harness.rest import ApiError, Json
from e2e.harness.stack import Stack
from e2e.nodes.fleet import apply_fleet, load_fleet

OVERLAY = ROOT / "manifests" / "overlays" / "high-availability"
SELECTOR = "app.kubernetes.io/name=tonnage"
TWO: Json = {"groups": [{"name": "cpu", "count": 2}]}


@pytest.fixture
def nodes(empty_stack: Stack) -> Iterator[None]:
    """Only one node at first; the others are back afterwards."""
    cpu = {"groups": [{"name": "cpu", "count": 1}]}
    apply_fleet(empty_stack.access, cpu, prune=True)
    yield
    apply_fleet(empty_stack.access, load_fleet("tiny"), prune=True)


@pytest.fixture
def applied(nodes: None, platform: Admin, operator_namespace: str) -> Iterator[str]:
    """The overlay, in the namespace that is there. Pods of a Deployment that is gone are collected
    later, and would be taken for replicas of the next one: before and after it there are none."""
    platform.until(
        "no other replicas", lambda: not pods(platform, operator_namespace), timeout=SLOW
    )
    rendered = yaml.safe_load_all(platform.kubectl("kustomize", str(OVERLAY)))
    objects = [manifest for manifest in rendered if manifest["kind"] != "Namespace"]
    platform.apply(sorted(objects, key=lambda manifest: str(manifest["kind"]) != "PriorityClass"))
    yield operator_namespace
    for manifest in objects:
        name = manifest["metadata"]["name"]
        platform.delete(manifest["kind"], name, operator_namespace, timeout=SLOW)
    platform.wait_items(
        "pods", lambda pods: not pods, operator_namespace, selector=SELECTOR, timeout=SLOW
    )


def pods(platform: Admin, namespace: str) -> list[Json]:
    listed = platform.items("pods", namespace, selector=SELECTOR)
    return [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]


def waits_for_another_node(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any("topology spread" in condition.get("message", "") for condition in conditions)


def test_two_replicas_never_share_a_node_and_roll_on_two_nodes(
    applied: str, platform: Admin, empty_stack: Stack
) -> None:
    platform.until(
        "one replica to run and the other to wait for a node",
        lambda: sorted(map(waits_for_another_node, pods(platform, applied))) == [False, True],
        timeout=SLOW,
    )
    apply_fleet(empty_stack.access, TWO)
    platform.wait_for("deploy", "tonnage", both_ready, applied, timeout=SLOW)
    assert len({pod["spec"]["nodeName"] for pod in pods(platform, applied)}) == 2

    platform.kubectl("rollout", "restart", "deployment/tonnage", f"--namespace={applied}")
    platform.kubectl(
        *("rollout", "status", "deployment/tonnage"),
        *(f"--namespace={applied}", "--timeout=100s"),
    )
    assert len({pod["spec"]["nodeName"] for pod in pods(platform, applied)}) == 2


def both_ready(target: Json) -> bool:
    return bool(target.get("status", {}).get("readyReplicas") == 2)


def test_a_drain_evicts_one_replica_at_a_time(
    applied: str, platform: Admin, empty_stack: Stack
) -> None:
    apply_fleet(empty_stack.access, TWO)
    platform.wait_for("deploy", "tonnage", both_ready, applied, timeout=SLOW)
    budget = platform.wait_for("pdb", "tonnage", knows_both, applied, timeout=SLOW)
    assert budget["status"]["disruptionsAllowed"] == 1
    for number in range(2):  # as a drain does; and no successor is ready before the second eviction
        platform.patch("nodes", f"cpu-{number}", {"spec": {"unschedulable": True}})
    first, second = (pod["metadata"]["name"] for pod in pods(platform, applied))
    assert evicted(platform, applied, first) == 201
    assert evicted(platform, applied, second) == 429


def knows_both(budget: Json) -> bool:
    return bool(budget.get("status", {}).get("currentHealthy") == 2)


def evicted(platform: Admin, namespace: str, pod: str) -> int:
    """The API server's answer to an eviction, as `kubectl drain` asks for it."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    try:
        platform.rest.request("POST", path, body)
    except ApiError as error:
        return error.code
    return 201
