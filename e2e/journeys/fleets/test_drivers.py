"""Nodes of one pool whose NVIDIA drivers are of different age."""

from __future__ import annotations

from typing import Final

from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from tests.support.in_memory.cluster import H100

NEWER: Final[Json] = {**H100, "gpusPerNode": 2}
OLDER: Final[Json] = {
    **NEWER,
    "name": "older",
    "labels": {
        "nvidia.com/cuda.runtime-version.full": "12.4",
        "nvidia.com/cuda.driver-version.major": "550",
    },
}
IMAGE: Final = "vllm/vllm-openai:v0.32.0"


def nodes_of(user: User) -> dict[str, str | None]:
    """The nodes of the pods that are to stay."""
    return {
        pod["metadata"]["name"]: pod["spec"].get("nodeName")
        for pod in user.children("pods", "llama")
        if "deletionTimestamp" not in pod["metadata"]
    }


def waits_for_another_driver(status: Json) -> bool:
    """Whether a replica waits since the free node is not one that its image runs on."""
    ready = condition(status, "Ready")
    return bool(
        has("Ready", "False", "Unschedulable")(status)
        and "didn't match Pod's node affinity/selector" in ready["message"]
        and "availableUpdate" in status
    )


def test_a_node_with_an_older_driver_gets_no_replica_until_the_user_takes_its_image(
    fleet: UseFleet, user: User
) -> None:
    fleet({"groups": [NEWER]})
    user.apply(inference("llama", "llama-3.1-8b", replicas=2))
    user.wait_ready("llama")
    running = nodes_of(user)
    fleet({"groups": [NEWER, OLDER]})
    user.apply(inference("llama", "llama-3.1-8b", replicas=3))
    status = user.wait("llama", waits_for_another_driver)
    assert nodes_of(user).items() > running.items(), "what runs is not replaced"
    assert set(nodes_of(user).values()) == {"h100-0", None}
    assert status["availableUpdate"]["image"] == f"{IMAGE}-cu129"

    upgraded = inference("llama", "llama-3.1-8b", replicas=3)
    upgraded["spec"]["rollout"] = {"upgradedAt": "2026-01-01T00:00:00Z"}
    user.apply(upgraded)
    user.wait_ready("llama")
    assert set(nodes_of(user).values()) == {"h100-0", "older-0"}
    (deployment,) = user.children("deployments", "llama")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{IMAGE}-cu129"
