"""Invalid nodes and pools are reported by object and field, and affect no other object."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.harness.admin import Admin
from e2e.harness.rest import ApiError, Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.pools import MI300X, await_pool, counts, declared, unusable
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from e2e.nodes.descriptions import render_nodes
from e2e.nodes.fleet import apply_nodes


def node_of(name: str, accelerator: str, **changes: Any) -> Json:
    """A node as its labeller and device plugin write it, but for these labels and resources."""
    (node,) = render_nodes({"groups": [{"name": name, "accelerator": accelerator}]})
    for kind in ("capacity", "allocatable"):
        node["status"][kind] |= changes.get("resources", {})
    node["metadata"]["labels"] |= changes.get("labels", {})
    return dict(node)


BAD_NODES: dict[str, tuple[Json, tuple[str, ...]]] = {
    "two-vendors-0": (
        node_of("two-vendors", "mi325x", resources={"nvidia.com/gpu": "4"}),
        ("amd.com/gpu", "nvidia.com/gpu"),
    ),
    "fewer-than-counted-0": (
        node_of("fewer-than-counted", "h200-sxm-141gb", labels={"nvidia.com/gpu.count": "4"}),
        ("nvidia.com/gpu.count=4", "8"),
    ),
    "two-cards-0": (
        node_of("two-cards", "mi325x", labels={"amd.com/gpu.device-id": "75a3"}),
        ("amd.com/gpu.device-id=75a3", "amd.com/gpu.product-name=AMD_Instinct_MI325_OAM"),
    ),
    "unknown-card-0": (
        node_of("unknown-card", "mi325x", labels={"amd.com/gpu.device-id": "dead"}),
        ("amd.com/gpu.device-id=dead",),
    ),
}
"""Nodes that contradict themselves, each with words that its reason has to have."""


def test_contradictory_nodes_are_no_capacity_and_affect_no_object(
    control_plane: Stack, fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    apply_nodes(control_plane.access, [node for node, _ in BAD_NODES.values()])

    def silent_on() -> dict[str, str]:
        """The bad nodes whose reason lacks a word, with the reason."""
        reasons = unusable(user.admin)
        return {
            name: reasons.get(name, "")
            for name, (_, words) in BAD_NODES.items()
            if not all(word in reasons.get(name, "") for word in words)
        }

    user.admin.until(
        "each bad node to be reported with its wrong labels",
        lambda: not silent_on(),
        describe=lambda: str(silent_on()),
    )
    user.apply(inference("llama", "llama-3.1-8b", replicas=8))
    user.wait_ready("llama")
    used = {pod["spec"]["nodeName"] for pod in user.children("pods", "llama")}
    assert used == {"mi300x-0"}


def test_the_first_of_overlapping_pools_by_name_owns_the_nodes_and_both_report_it(
    fleet: UseFleet, declare: Declare, user: User
) -> None:
    groups = [
        {"name": "a", "accelerator": "mi300x", "labels": {"team": "chat"}},
        {"name": "b", "accelerator": "mi300x"},
    ]
    fleet({"groups": groups})
    declare(declared("amd", MI300X))
    declare(declared("team-chat", {"team": "chat"}))
    await_pool(user.admin, "amd", lambda pool: counts(pool) == (16, 16, 16, 8), why="both nodes")
    status = await_pool(user.admin, "team-chat", has("Ready", "False"), why="the pool without any")
    assert "amd" in condition(status, "Ready")["message"]
    assert "spec.nodeSelector" in condition(status, "Ready")["message"]
    user.apply(inference("llama", "llama-3.1-8b"))
    assert user.wait_ready("llama")["placements"][0]["pool"] == "amd"


def test_a_pool_with_an_unknown_accelerator_reports_the_nearest_known_one(
    fleet: UseFleet, declare: Declare, user: User
) -> None:
    fleet("tiny")
    declare(declared("typo", MI300X, accelerator="mi300"))
    status = await_pool(user.admin, "typo", has("Ready", "False"), why="the pool to be refused")
    message = condition(status, "Ready")["message"]
    assert "spec.accelerator" in message
    assert "'mi300'" in message
    assert "mi300x" in message
    user.apply(inference("llama", "llama-3.1-8b"))
    assert user.wait_ready("llama")["placements"][0]["accelerator"] == "h100-sxm-80gb"


REFUSED_POOLS: dict[str, tuple[Json, str]] = {
    "a price in words": ({"costPerGPUHour": "cheap"}, "spec.costPerGPUHour"),
    "a negative price": ({"costPerGPUHour": "-1.00"}, "spec.costPerGPUHour"),
    "a price that is not text": ({"costPerGPUHour": 2.5}, "spec.costPerGPUHour"),
    "no node at most": ({"maxNodes": 0}, "spec.maxNodes"),
    "a weight beyond the scale": ({"weight": 5000}, "spec.weight"),
    "no labels": ({"nodeSelector": {}}, "spec.nodeSelector"),
    "a field that does not exist": ({"price": "1.00"}, "price"),
}


@pytest.mark.parametrize("case", REFUSED_POOLS)
def test_the_api_server_refuses_an_invalid_pool_with_the_field(installed: Admin, case: str) -> None:
    changes, field = REFUSED_POOLS[case]
    pool = declared("bad", MI300X)
    pool["spec"] |= changes
    with pytest.raises(ApiError, match=field):
        installed.apply(pool)


UNKNOWN_NAMES: dict[str, tuple[Json, tuple[str, ...]]] = {
    "a near name": ({"accelerators": ["h1000"]}, ("spec.placement.accelerators", "h100-sxm-80gb")),
    "a slip": (
        {"accelerators": ["mi300x", "mi30x"]},
        ("spec.placement.accelerators[1]", "'mi30x'", "mi300x"),
    ),
    "a rule": ({"allow": ["UnsupportedAcelerator"]}, ("spec.placement.allow", "UnsupportedAcc")),
}


@pytest.mark.parametrize("name", ["h100", "H100", "nvidia"])
def test_an_accelerator_may_be_named_by_its_family_or_vendor(
    fleet: UseFleet, user: User, name: str
) -> None:
    fleet("tiny")
    user.apply(inference("llama", "llama-3.1-8b", placement={"accelerators": [name]}))
    assert user.wait_ready("llama")["placements"][0]["accelerator"] == "h100-sxm-80gb"


@pytest.mark.parametrize("case", UNKNOWN_NAMES)
def test_an_unknown_accelerator_is_refused_with_the_nearest_known_one(
    fleet: UseFleet, user: User, case: str
) -> None:
    placement, words = UNKNOWN_NAMES[case]
    fleet("tiny")
    user.apply(inference("typo", "llama-3.1-8b", placement=placement))
    user.apply(inference("llama", "llama-3.1-8b"))
    status = user.wait("typo", has("Accepted", "False", "InvalidSpec"))
    message = condition(status, "Accepted")["message"]
    assert [word for word in words if word not in message] == [], message
    user.wait_ready("llama")
