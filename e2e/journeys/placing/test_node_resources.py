"""Nodes that have free GPUs, but not the disk that the weights of a model take."""

from __future__ import annotations

from typing import Final

from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from tests.support.in_memory.cluster import H100, MI300X

SMALL_DISK: Final[Json] = {**H100, "disk": "40Gi"}
"""For one replica of an 8B model, which requests 24 GiB."""


def test_a_pool_is_rejected_where_its_nodes_have_no_disk_for_the_weights(
    fleet: UseFleet, user: User
) -> None:
    fleet({"groups": [SMALL_DISK, MI300X]})
    user.apply(
        inference(
            "llama", "llama-3.1-8b", replicas=2, placement={"accelerators": [H100["accelerator"]]}
        )
    )
    status = user.wait("llama", has("Placed", "False", "InsufficientGPUs"))
    assert (
        "as the CPU, memory and storage of its nodes allow"
        in condition(status, "Placed")["message"]
    )
    assert status["placements"][0]["replicas"] == 1

    user.apply(inference("large", "llama-3.3-70b", replicas=1))
    status = user.wait_ready("large")
    assert [each["accelerator"] for each in status["placements"]] == ["mi300x"]
    rejected = {each["accelerator"]: each["reason"] for each in status["candidates"][1:]}
    assert rejected == {H100["accelerator"]: "InsufficientResources"}

    fleet({"groups": [H100, MI300X]})
    user.wait_ready("llama", timeout=90)
