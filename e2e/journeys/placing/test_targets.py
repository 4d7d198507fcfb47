"""Limits of users on latency and cost."""

from __future__ import annotations

import re

from e2e.harness.rest import Json
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.pools import H100, MI300X, await_pool, counts, declared
from e2e.journeys.user import User, condition, has, runs_on, verdict
from e2e.models import inference

L4 = {"nvidia.com/gpu.product": "NVIDIA-L4"}


def workload(**more: object) -> Json:
    return {"workload": {"maxModelLen": 8192, "concurrency": 4, **more}}


def await_pools(user: User, *names: str) -> None:
    """Wait until the operator reports these pools: it chooses among those that it knows."""
    for name in names:
        await_pool(user.admin, name, lambda pool: counts(pool)[0] > 0, why=f"pool {name}")


def test_a_latency_target_rejects_a_cheap_slow_pool(
    fleet: UseFleet, declare: Declare, user: User
) -> None:
    groups = [
        {"name": "l4", "accelerator": "l4", "count": 2, "gpusPerNode": 1},
        {"name": "h100", "accelerator": "h100-sxm-80gb"},
    ]
    fleet({"groups": groups})
    declare(declared("cheap", L4, costPerGPUHour="0.10"))
    declare(declared("dear", H100, costPerGPUHour="9.00"))
    await_pools(user, "cheap", "dear")
    user.apply(inference("patient", "llama-3.1-8b", **workload()))
    user.wait("patient", runs_on("cheap"), timeout=90)
    targets = {"timePerOutputToken": "20ms"}
    user.apply(inference("hurried", "llama-3.1-8b", **workload(latencyTargets=targets)))
    status = user.wait("hurried", runs_on("dear"), timeout=90)
    slow = verdict(status, "cheap")
    assert (slow["verdict"], slow["reason"]) == ("Rejected", "TooSlow")
    estimated, target = re.findall(r"([\d.]+) ?ms", slow["message"])[:2]
    assert float(estimated) > float(target) == 20


def test_a_target_that_no_pool_meets_is_reported_with_each_pools_estimate(
    fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    targets = {"timeToFirstToken": "1ms", "timePerOutputToken": "1ms"}
    user.apply(inference("llama", "llama-3.1-8b", **workload(latencyTargets=targets)))
    status = user.wait("llama", has("Placed", "False"))
    assert {entry["reason"] for entry in status["candidates"]} == {"TooSlow"}
    assert all("ms" in entry["message"] for entry in status["candidates"])
    assert "latencyTargets" in condition(status, "Placed")["message"]
    assert user.children("deployments", "llama") == []


def test_a_cost_limit_rejects_pools_with_both_amounts(
    fleet: UseFleet, declare: Declare, user: User
) -> None:
    fleet("tiny")
    declare(declared("amd", MI300X, costPerGPUHour="3.00"))
    declare(declared("nvidia", H100, costPerGPUHour="1.00"))
    await_pools(user, "amd", "nvidia")
    fast = {"policy": "HighestThroughput", "maxCostPerHour": "2.50"}
    user.apply(inference("bounded", "llama-3.1-8b", placement=fast, **workload()))
    status = user.wait("bounded", runs_on("nvidia"), timeout=90)
    over = verdict(status, "amd")
    assert (over["verdict"], over["reason"]) == ("Rejected", "OverBudget")
    assert "3.00" in over["message"]
    assert "2.50" in over["message"]
    poor = {"maxCostPerHour": "0.50"}
    user.apply(inference("poor", "llama-3.1-8b", placement=poor, **workload()))
    status = user.wait("poor", has("Placed", "False"))
    assert {entry["reason"] for entry in status["candidates"]} == {"OverBudget"}
    assert "maxCostPerHour" in condition(status, "Placed")["message"]
