"""The order in which waiting objects get GPUs that become free."""

from __future__ import annotations

from datetime import UTC, datetime

from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, has
from e2e.models import inference

FOUR_OF_EIGHT = "llama-3.1-405b-fp8"
"""A model that takes half of the one MI300X node."""
WITHIN = 120
"""Seconds until freed GPUs serve. In a new cluster, the garbage collector learns of owners of a new
kind half a minute after their CRD."""


def apply_in_a_second_of_its_own(user: User, manifest: Json) -> None:
    """Apply, and wait until the next object will be younger: ages are recorded in whole seconds."""
    stored = user.apply(manifest)["metadata"]["creationTimestamp"]
    user.admin.until("the next second", lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}" > stored)


def test_freed_gpus_go_to_the_highest_priority_and_then_to_the_oldest_object(
    fleet: UseFleet, user: User
) -> None:
    fleet({"groups": [{"name": "mi300x", "accelerator": "mi300x"}]})
    user.admin.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "customers"},
            "value": 1000,
        }
    )
    template: Json = {"spec": {"priorityClassName": "customers"}}
    for name in ("first", "second"):
        user.apply(inference(name, FOUR_OF_EIGHT))
        user.wait_ready(name)
    # Neither the names nor the order of the events puts them into the order that is asked for.
    apply_in_a_second_of_its_own(user, inference("b-older", FOUR_OF_EIGHT))
    apply_in_a_second_of_its_own(user, inference("a-younger", FOUR_OF_EIGHT))
    user.apply(inference("z-urgent", FOUR_OF_EIGHT, template=template))
    for name in ("b-older", "a-younger", "z-urgent"):
        user.wait(name, has("Placed", "False", "InsufficientGPUs"))

    free_capacity(user, "first")
    user.wait_ready("z-urgent", timeout=WITHIN)
    assert waits(user, "b-older")
    assert waits(user, "a-younger")
    free_capacity(user, "second")
    user.wait_ready("b-older", timeout=WITHIN)
    assert waits(user, "a-younger")


def free_capacity(user: User, name: str) -> None:
    user.admin.delete("infd", name, timeout=None)
    user.forget(name)


def waits(user: User, name: str) -> bool:
    """Whether it has no place yet, and nothing of it exists."""
    placed = has("Placed", "False", "InsufficientGPUs")(user.status(name))
    return bool(placed) and not user.children("deployments", name)
