"""Plans that need approval, on the command line and from Git."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.plugin import Plugin
from e2e.journeys.user import User, condition, container, has
from e2e.models import inference

AWAITS = has("Placed", "False", "AwaitingApproval")
OTHER_IMAGE = {"vllm": {"image": "registry.local/vllm:other"}}


def manual(**spec: Any) -> Json:
    """A small model whose plans wait for a person."""
    return inference("llama", "llama-3.1-8b", approval="Manual", **spec)


def change(user: User, **fields: Any) -> Json:
    """Change these fields of the spec and leave all others, also what an approval wrote."""
    live = user.get("llama")
    kept = {"name": "llama", "namespace": user.namespace}
    user.forget("llama")
    return user.apply(
        {
            "apiVersion": live["apiVersion"],
            "kind": live["kind"],
            "metadata": kept,
            "spec": {**live["spec"], **fields},
        }
    )


@pytest.fixture
def approved(fleet: UseFleet, user: User, plugin: Plugin) -> Json:
    """The status of a small model that serves since its first plan was approved."""
    fleet("tiny")
    user.apply(manual())
    waiting = user.wait("llama", AWAITS)["proposedPlan"]
    user.forget("llama")
    assert f"approved plan {waiting['hash']}" in plugin.run("approve", "llama")
    return user.wait_ready("llama")


def test_a_plan_is_pending_until_it_is_approved(
    fleet: UseFleet, user: User, plugin: Plugin
) -> None:
    fleet("tiny")
    user.apply(manual())
    status = user.wait("llama", AWAITS)
    assert user.children("deployments", "llama") == []
    assert user.admin.get("services", "llama") is None
    waiting = status["proposedPlan"]
    assert "kubectl tonnage approve llama" in condition(status, "Placed")["message"]
    assert not {"Reconciling", "Stalled"} & {one["type"] for one in status["conditions"]}
    assert f"approve plan {waiting['hash']}" in plugin.run("explain", "llama")
    plugin.run("approve", "llama", "--plan", "0123456789abcdef", exit_code=2)
    assert "approvedPlan" not in user.get("llama")["spec"]
    user.forget("llama")
    output = plugin.run("approve", "llama", "--plan", waiting["hash"])
    assert waiting["pool"] in output
    status = user.wait_ready("llama")
    (placement,) = status["placements"]
    same = ("pool", "accelerator", "tensorParallelSize", "image", "costPerHour")
    assert {key: placement[key] for key in same} == {key: waiting[key] for key in same}
    assert status["plan"] == waiting["hash"]
    assert "proposedPlan" not in status
    plugin.run("approve", "llama", exit_code=2)


def test_a_new_image_is_pending_while_the_old_one_serves_and_scales(
    approved: Json, user: User, plugin: Plugin
) -> None:
    pods = user.pods("llama")
    change(user, engine=OTHER_IMAGE)
    status = user.wait("llama", AWAITS)
    assert "image from" in status["proposedPlan"]["message"]
    assert condition(status, "Available")["status"] == "True"
    assert user.pods("llama") == pods
    user.admin.kubectl("-n", user.namespace, "scale", "infd/llama", "--replicas=2")
    user.wait("llama", lambda one: one.get("readyReplicas") == 2, why="the old image to scale")
    assert pods < user.pods("llama")
    pods = user.pods("llama")
    user.forget("llama")
    plugin.run("approve", "infd/llama")
    user.wait_ready("llama")
    (deployment,) = user.children("deployments", "llama")
    assert container(deployment)["image"] == OTHER_IMAGE["vllm"]["image"]
    assert not pods & user.pods("llama")


def test_an_approval_in_the_spec_applies_only_to_an_unchanged_plan(
    fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    user.apply(manual())
    first = user.wait("llama", AWAITS)["proposedPlan"]["hash"]
    user.apply(manual(approvedPlan=first, workload={"maxModelLen": 16384}))
    status = user.wait("llama", lambda one: one.get("proposedPlan", {}).get("hash", first) != first)
    second = status["proposedPlan"]
    assert second["outdatedApproval"].startswith(f"approved {first}, now {second['hash']}:")
    assert user.children("deployments", "llama") == []
    user.apply(manual(approvedPlan=second["hash"], workload={"maxModelLen": 16384}))
    assert user.wait_ready("llama")["plan"] == second["hash"]


def test_a_restart_rolls_all_replicas_and_needs_no_approval(
    approved: Json, user: User, plugin: Plugin
) -> None:
    pods = user.pods("llama")
    plugin.run("restart", "llama")
    user.admin.until(
        "other pods to serve",
        lambda: has("Ready")(user.status("llama")) and not pods & user.pods("llama"),
    )
    status = user.wait_ready("llama")
    assert status["plan"] == approved["plan"]
    (deployment,) = user.children("deployments", "llama")
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    at = user.get("llama")["spec"]["rollout"]["restartedAt"]
    assert annotations == {"tonnage.dev/restarted-at": at}


def test_automatic_approval_carries_out_the_pending_plan(
    approved: Json, user: User, plugin: Plugin
) -> None:
    change(user, engine=OTHER_IMAGE)
    user.wait("llama", AWAITS)
    user.forget("llama")
    assert "without approval" in plugin.run("unpin", "llama")
    status = user.wait_ready("llama")
    assert status["placements"][0]["image"] == OTHER_IMAGE["vllm"]["image"]
    assert not {"plan", "proposedPlan"} & set(status)
    spec = user.get("llama")["spec"]
    assert spec["approval"] == "Automatic"
    assert "approvedPlan" not in spec
    plugin.run("unpin", "llama", exit_code=2)


def test_scaling_needs_no_approval(approved: Json, user: User) -> None:
    user.admin.kubectl("-n", user.namespace, "scale", "infd/llama", "--replicas=2")
    status = user.wait("llama", lambda one: one.get("readyReplicas") == 2)
    assert has("Ready")(user.wait_ready("llama"))
    assert status["plan"] == approved["plan"]
