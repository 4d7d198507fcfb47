"""Pools whose pods request an extended resource of a DeviceClass, which the scheduler turns into
claims only with feature gate DRAExtendedResource."""

from __future__ import annotations

from pathlib import Path

from e2e.harness.admin import condition as pod_condition
from e2e.harness.rest import Json
from e2e.harness.servers import Options
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.own_cluster import user_of_own_cluster
from e2e.journeys.pools import await_pool, counts, declared
from e2e.journeys.user import User, condition, container, has
from e2e.models import inference

RESOURCE = "deviceclass.resource.kubernetes.io/gpu.amd.com"
GROUP = {"name": "mi300x", "accelerator": "mi300x", "draDriver": "current", "gpusPerNode": 1}
FLEET: Json = {"groups": [GROUP | {"labels": {"pool": "mi300x"}}]}
POOL = declared("mi300x", {"pool": "mi300x"}, allocation="ExtendedResource")
OTHER: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "other"},
    "spec": {
        "containers": [
            {"name": "main", "image": "job", "resources": {"limits": {RESOURCE: "1"}}},
        ]
    },
}
"""A pod of somebody else that requests one of the GPUs, too."""


def limits(user: User, name: str) -> Json:
    """What the pods of an object request."""
    (deployment,) = user.children("deployments", name)
    return dict(container(deployment)["resources"].get("limits", {}))


def test_without_the_feature_gate_the_condition_names_it(
    fleet: UseFleet, user: User, declare: Declare
) -> None:
    fleet(FLEET)
    declare(POOL)
    user.apply(inference("llama", "llama-3.1-8b"))
    lacking = f"Insufficient {RESOURCE}"
    status = user.wait(
        "llama",
        lambda status: (
            has("Ready", "False", "Unschedulable")(status)
            and lacking in condition(status, "Ready")["message"]
        ),
        why=f"the scheduler to find {lacking}",
    )
    message = condition(status, "Ready")["message"]
    assert "DRAExtendedResource" in message
    assert "spec.allocation of the AcceleratorPool to ResourceClaim" in message
    assert limits(user, "llama")[RESOURCE] == "1"


def test_with_the_feature_gate_pods_get_devices_and_wait_only_where_none_is_free(
    tmp_path: Path,
) -> None:
    options = Options(features=("DRADeviceTaints", "DRAExtendedResource"))
    with user_of_own_cluster(tmp_path, options, FLEET) as user:
        user.admin.apply(POOL)
        await_pool(user.admin, "mi300x", lambda pool: counts(pool)[0] == 1, why="the pool")
        user.apply(inference("llama", "llama-3.1-8b"))
        user.wait_ready("llama")
        assert limits(user, "llama")[RESOURCE] == "1"
        (claim,) = user.admin.items("resourceclaims")
        assert len(claim["status"]["allocation"]["devices"]["results"]) == 1
        user.apply(inference("second", "llama-3.1-8b"))
        user.wait("second", has("Placed", "False", "InsufficientGPUs"))
        # The message of another pod does not ask for the feature gate, which is on.
        user.admin.apply(OTHER)
        name, unscheduled = OTHER["metadata"]["name"], pod_condition("PodScheduled", "False")
        waiting = user.admin.wait_for("pods", name, unscheduled, why="a pod that waits")
        message = condition(waiting["status"], "PodScheduled")["message"]
        assert f"Insufficient {RESOURCE}" not in message
