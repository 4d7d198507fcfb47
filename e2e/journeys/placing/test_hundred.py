"""A hundred objects at once on a fleet with capacity for sixty."""

from __future__ import annotations

from collections import Counter

from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.crowd import create_at_once, objects, runs, sixty_run
from e2e.journeys.user import User, has
from e2e.models import inference

SIXTY = {"groups": [{"name": "mi300x", "accelerator": "mi300x", "count": 12, "gpusPerNode": 5}]}
"""GPUs of which each object takes one."""


def test_sixty_of_a_hundred_objects_run_and_the_others_follow_in_order(
    fleet: UseFleet, user: User
) -> None:
    fleet(SIXTY)
    user.admin.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "customers"},
            "value": 1000,
        }
    )
    manifests = [inference(f"llama-{number:02}", "llama-3.1-8b") for number in range(100)]
    create_at_once(user, manifests)
    user.admin.wait_items("infd", sixty_run, timeout=400, why="sixty of a hundred to run")
    running = {model["metadata"]["name"] for model in objects(user) if runs(model)}
    check_no_gpu_is_held_twice(user)

    urgent: Json = {"spec": {"priorityClassName": "customers"}}
    user.apply(inference("urgent", "llama-3.1-8b", template=urgent))
    user.wait("urgent", has("Placed", "False", "InsufficientGPUs"))
    waiting = sorted(
        (model for model in objects(user) if not runs(model)),
        key=lambda model: (model["metadata"]["creationTimestamp"], model["metadata"]["name"]),
    )
    elders = [name for model in waiting if (name := model["metadata"]["name"]) != "urgent"]
    gone = sorted(running)[:4]
    for name in gone:
        user.admin.delete("infd", name, timeout=None)
    expected = {"urgent", *elders[:3]}
    user.admin.wait_items("infd", sixty_run, timeout=300, why="the free GPUs to be used again")
    assert {
        model["metadata"]["name"] for model in objects(user) if runs(model)
    } - running == expected
    check_no_gpu_is_held_twice(user)


def check_no_gpu_is_held_twice(user: User) -> None:
    """As many pods as GPUs, all bound, none above what its node has."""
    pods = user.admin.items("pods")
    held = Counter(pod["spec"].get("nodeName") for pod in pods)
    assert held[None] == 0
    assert set(held.values()) == {5}
    assert len(held) == 12
