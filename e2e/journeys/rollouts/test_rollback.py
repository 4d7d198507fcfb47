"""Rollouts without spare GPUs, failed rollouts that are rolled back, and pauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from e2e.doubles.watch_recorder import WatchRecorder, version_of
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, container, has
from e2e.models import inference

FULL: Json = {"groups": [{"name": "mi300x", "accelerator": "mi300x", "gpusPerNode": 2}]}
TWO_POOLS: Json = {
    "groups": [
        {"name": "mi300x", "accelerator": "mi300x", "gpusPerNode": 4},
        {"name": "h100", "accelerator": "h100-sxm-80gb", "gpusPerNode": 4},
    ]
}
GOOD, BETTER, BAD = "vllm-of-ours:1", "vllm-of-ours:2", "vllm-of-ours:typo"
SOON = {"progressDeadline": "20s"}
"""Only of plans that are to fail: on a busy machine, a start may take as long."""


def model(image: str, replicas: int = 2, **spec: Any) -> Json:
    """Llama 8B from this image."""
    engine = {"vllm": {"image": image}}
    return inference("llama", "llama-3.1-8b", engine=engine, replicas=replicas, **spec)


def images(user: User) -> set[str]:
    """Images of the pods that are to stay."""
    return {
        str(pod["spec"]["containers"][0]["image"])
        for pod in user.children("pods", "llama")
        if "deletionTimestamp" not in pod["metadata"]
    }


def ready_replicas(body: Json) -> int:
    """Replicas of a Deployment that answer."""
    return int(body.get("status", {}).get("readyReplicas", 0))


def is_complete_with(image: str) -> Callable[[Json], bool]:
    """A predicate for a Deployment: its rollout of this image is complete."""

    def is_complete(body: Json) -> bool:
        status = body.get("status", {})
        reasons = {one.get("reason") for one in status.get("conditions", [])}
        is_observed = status.get("observedGeneration") == body["metadata"]["generation"]
        is_current = is_observed and container(body)["image"] == image
        return is_current and "NewReplicaSetAvailable" in reasons

    return is_complete


def is_rolled_back_with_one_replica(status: Json) -> bool:
    """Whether one replica serves by an earlier plan."""
    return bool(has("Degraded", "True", "RolledBack")(status)) and status["readyReplicas"] == 1


def test_a_rollout_on_a_full_pool_always_leaves_a_ready_replica(
    fleet: UseFleet, user: User
) -> None:
    fleet(FULL)
    user.apply(model(GOOD))
    user.wait_ready("llama")
    with WatchRecorder(user.admin, "deployments", "llama-mi300x", user.namespace) as seen:
        user.apply(model(BETTER))
        user.wait_ready("llama", timeout=240)
    assert images(user) == {BETTER}
    assert len(seen.versions) > 2
    assert min(map(ready_replicas, seen.versions)) == 1


def test_a_bad_image_is_rolled_back_once_and_a_fixed_one_rolls_out(
    fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    fleet(FULL)
    user.apply(model(GOOD))
    user.wait_ready("llama")
    with WatchRecorder(user.admin, "deployments", "llama-mi300x", user.namespace) as seen:
        user.apply(model(BAD, rollout=SOON, behaviour="image-pull-failure"))
        status = user.wait("llama", has("Stalled", "True", "RolledBack"), timeout=240)
    assert min(map(ready_replicas, seen.versions)) == 1
    degraded = condition(status, "Degraded")
    assert degraded["status"] == "True"
    assert "failed to resolve reference" in degraded["message"]
    assert BAD in degraded["message"]
    assert condition(status, "Available")["status"] == "True"
    assert status["placements"][0]["image"] == GOOD
    assert images(user) == {GOOD}
    user.await_quiet()
    with WatchRecorder(user.admin, "deployments", "llama-mi300x", user.namespace) as later:
        operator.close()
        operator.start()
        user.apply(model(BAD, replicas=1, rollout=SOON, behaviour="image-pull-failure"))
        user.wait("llama", is_rolled_back_with_one_replica)
        user.await_quiet()
    assert {container(version)["image"] for version in later.versions} == {GOOD}
    assert is_rolled_back_with_one_replica(user.status("llama"))
    user.apply(model(BETTER))
    status = user.wait_ready("llama", timeout=240)
    assert images(user) == {BETTER}
    assert condition(status, "Degraded") == {}
    assert "failedPlans" not in status


def test_a_bad_image_that_came_with_zero_replicas_is_rolled_back_too(
    fleet: UseFleet, user: User
) -> None:
    """The Deployment controller reports a rollout of no replica as complete."""
    failing: Json = {"rollout": SOON, "behaviour": "image-pull-failure"}
    fleet(FULL)
    user.apply(model(GOOD))
    user.wait_ready("llama")
    user.apply(model(BAD, replicas=0, **failing))
    user.wait("llama", has("Ready", "True", "ScaledToZero"))
    user.admin.wait_for("deployments", "llama-mi300x", is_complete_with(BAD))
    user.apply(model(BAD, **failing))
    user.wait("llama", has("Degraded", "True", "RolledBack"), timeout=240)
    user.admin.until("the good image to run again", lambda: images(user) == {GOOD})


def test_replicas_migrate_to_another_vendor_one_by_one_without_losing_capacity(
    fleet: UseFleet, user: User
) -> None:
    fleet(TWO_POOLS)
    user.apply(model(GOOD, placement={"accelerators": ["mi300x"]}))
    user.wait_ready("llama")
    with (
        WatchRecorder(user.admin, "deployments", "llama-mi300x", user.namespace) as old,
        WatchRecorder(user.admin, "deployments", "llama-h100-sxm-80gb", user.namespace) as new,
    ):
        user.apply(model(GOOD, placement={"accelerators": ["h100-sxm-80gb"]}))
        user.wait_ready("llama", timeout=240)
        user.admin.wait_gone("deployments", "llama-mi300x")
    serving = {"llama-mi300x": 2, "llama-h100-sxm-80gb": 0}
    for version in sorted([*old.versions, *new.versions], key=version_of):
        serving[version["metadata"]["name"]] = ready_replicas(version)
        assert sum(serving.values()) >= 2, f"fewer serve than before: {serving}"


def test_a_paused_rollout_stops_and_continues_when_it_is_resumed(
    fleet: UseFleet, user: User
) -> None:
    fleet(FULL)
    user.apply(model(GOOD))
    user.wait_ready("llama")
    before = user.pods("llama")
    user.apply(model(BETTER, rollout={"paused": True}))
    status = user.wait("llama", has("Progressing", "False", "RolloutPaused"), timeout=90)
    assert condition(status, "Ready")["reason"] == "RolloutPaused"
    user.await_quiet()
    assert user.pods("llama") == before
    deployment = user.admin.get("deployments", "llama-mi300x")
    assert deployment is not None
    assert deployment["spec"]["paused"] is True
    user.apply(model(BETTER))
    user.wait_ready("llama", timeout=240)
    assert images(user) == {BETTER}
    assert not before & user.pods("llama")
