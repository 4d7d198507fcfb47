"""A drain under load: the H100 pool is drained, MI300X takes over, and replicas return by policy.

The status of the PodDisruptionBudget, which the control plane counts and not the operator, proves
that a replica was always ready.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from e2e.doubles.watch_recorder import WatchRecorder, version_of
from e2e.harness.admin import Admin
from e2e.harness.rest import Json
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.pools import H100, MI300X, declared
from e2e.journeys.user import User, runs_on
from e2e.models import inference

H100_NODES = ("h100-0", "h100-1")
DRAIN_LIMIT = "--timeout=240s"


@pytest.fixture
def two_pools(fleet: UseFleet, declare: Declare, admin: Admin) -> Iterator[None]:
    """Two nodes of H100, which cost less, and one of MI300X; no node stays cordoned."""
    h100 = {"name": "h100", "accelerator": "h100-sxm-80gb", "count": 2}
    fleet({"groups": [h100, {"name": "mi300x", "accelerator": "mi300x"}]})
    declare(declared("nvidia", H100, costPerGPUHour="1.00"))
    declare(declared("amd", MI300X, costPerGPUHour="3.00"))
    yield
    admin.kubectl("uncordon", *H100_NODES)


def test_a_drain_and_the_return_always_leave_a_ready_replica(two_pools: None, user: User) -> None:
    placement = {
        "fallback": {"after": "2s", "back": "WhenPossible"},
        "rebalance": {"stabilizationWindow": "2s"},
    }
    user.apply(inference("llama", "llama-3.1-8b", replicas=2, placement=placement))
    user.wait("llama", runs_on("nvidia"))
    with WatchRecorder(user.admin, "poddisruptionbudgets", "llama", user.namespace) as recorder:
        await_disruptions_allowed(user, recorder)
        user.admin.kubectl("drain", *H100_NODES, "--delete-emptydir-data", DRAIN_LIMIT)
        user.wait("llama", runs_on("amd"), why="the other vendor to take over")
        assert moves(user) == {"llama-mi300x": ("FellBack", "nvidia")}
        await_disruptions_allowed(user, recorder)
        at_rest = len(recorder.versions)
        user.admin.kubectl("uncordon", *H100_NODES)
        user.wait("llama", runs_on("nvidia"), why="the replicas to return")
        assert moves(user) == {"llama-h100-sxm-80gb": ("Returned", "amd")}
        await_disruptions_allowed(user, recorder)
    drained, returned = healthy(recorder.versions[:at_rest]), healthy(recorder.versions[at_rest:])
    assert min(drained) >= 1, drained
    assert min(returned) >= 2, f"nothing was drained then: {returned}"


def test_a_single_replica_and_a_replica_that_is_not_ready_block_no_drain(
    two_pools: None, user: User
) -> None:
    user.apply(inference("single", "llama-3.1-8b"))
    user.wait("single", runs_on("nvidia"))
    assert user.admin.get("poddisruptionbudgets", "single") is None
    body = inference("broken", "llama-3.1-8b", replicas=2)
    behaviour = {"e2e.tonnage.dev/behaviour": "never-ready"}
    body["spec"]["template"] = {"metadata": {"annotations": behaviour}}
    user.apply(body)
    user.admin.wait_for(
        "poddisruptionbudgets", "broken", is_counted, why="a budget of no ready pod"
    )
    user.admin.until("both pods to have a node", lambda: len(nodes_of(user, "broken")) == 2)
    user.admin.kubectl("drain", *H100_NODES, "--delete-emptydir-data", DRAIN_LIMIT)


def test_a_budget_of_the_user_is_the_only_one(two_pools: None, user: User) -> None:
    user.apply(inference("llama", "llama-3.1-8b", replicas=2))
    selector = user.wait_ready("llama")["selector"]
    assert user.admin.get("poddisruptionbudgets", "llama") is not None
    key, _, value = selector.partition("=")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {key: value}}}
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    user.admin.apply({**kind, "metadata": {"name": "mine"}, "spec": spec})
    user.admin.until(
        "the operator's budget to go",
        lambda: user.admin.get("poddisruptionbudgets", "llama") is None,
    )
    user.admin.kubectl("drain", H100_NODES[0], "--delete-emptydir-data", DRAIN_LIMIT)


def is_counted(budget: Json) -> bool:
    return bool(budget.get("status", {}).get("expectedPods") == 2)


def nodes_of(user: User, name: str) -> list[str]:
    """The node of each pod of the object that has one."""
    return [
        pod["spec"]["nodeName"] for pod in user.children("pods", name) if "nodeName" in pod["spec"]
    ]


def healthy(versions: list[Json]) -> list[int]:
    """The ready pods of a budget at each time that the control plane has counted them."""
    statuses = (version.get("status", {}) for version in versions)
    return [status["currentHealthy"] for status in statuses if "observedGeneration" in status]


def await_disruptions_allowed(user: User, recorder: WatchRecorder) -> None:
    """Wait until the control plane has counted the two replicas, and the recorder has that."""

    def both_ready(budget: Json) -> bool:
        status = budget.get("status", {})
        counted = (status.get("expectedPods"), status.get("currentHealthy"))
        return counted == (2, 2) and status["disruptionsAllowed"] == 1

    budget = user.admin.wait_for("poddisruptionbudgets", "llama", both_ready)
    user.admin.until("it to be recorded", lambda: recorder.recorded >= version_of(budget))


def moves(user: User) -> dict[str, tuple[str, str]]:
    """Why the replicas of each Deployment came there, and from which pool."""
    by_name = {}
    for deployment in user.children("deployments", "llama"):
        metadata = deployment["metadata"]
        move = json.loads(metadata["annotations"]["tonnage.dev/moved"])
        by_name[metadata["name"]] = (move["reason"], move["from"])
    return by_name
