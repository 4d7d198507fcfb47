"""What ResourceQuotas leave of each kind of GPU."""

from typing import Any

import pytest

from tonnage.placement.namespace import GpuQuota
from tonnage.reconcile.observation.namespace_limits import read_quotas

NVIDIA = "requests.nvidia.com/gpu"


def quota(
    hard: dict[str, Any], used: dict[str, Any], name: str = "quota", **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used},
    }


def test_each_resource_has_the_quota_that_leaves_the_fewest() -> None:
    bodies = [
        quota({NVIDIA: "8", "requests.amd.com/gpu": "4"}, {NVIDIA: "6"}, "a"),
        quota({NVIDIA: "16"}, {NVIDIA: "15"}, "b"),
        quota({"requests.cpu": "8", "pods": "1"}, {}, "c"),
    ]
    assert read_quotas(bodies) == (
        GpuQuota("a", "amd.com/gpu", 4, 0),
        GpuQuota("b", "nvidia.com/gpu", 16, 15),
    )


@pytest.mark.parametrize(
    "body",
    [
        quota({NVIDIA: "8"}, {}, scopes=["BestEffort"]),
        quota({NVIDIA: "8"}, {}, scopes=["Terminating"]),
        quota({NVIDIA: "8"}, {}, scopeSelector={"matchExpressions": []} | {"a": "b"}),
        {"metadata": {"name": "new"}, "spec": {"hard": {NVIDIA: "8"}}},
        quota({NVIDIA: "1k"}, {}),
        quota({NVIDIA: 8.5}, {}),
        quota({NVIDIA: None}, {}),
        quota({NVIDIA: "8"}, {NVIDIA: "-1"}),
        quota({"nvidia.com/gpu": "8"}, {}),
        {"metadata": {"name": "odd"}, "spec": "x", "status": ["y"]},
    ],
)
def test_what_does_not_count_or_cannot_be_read_is_left_out(body: dict[str, Any]) -> None:
    assert read_quotas([body]) == ()


@pytest.mark.parametrize("scope", ["NotTerminating", "NotBestEffort"])
def test_scopes_of_every_pod_count(scope: str) -> None:
    assert read_quotas([quota({NVIDIA: "8"}, {}, scopes=[scope])])


def test_own_pods_do_not_use_it_up() -> None:
    quota = GpuQuota("a", "nvidia.com/gpu", 8, 6)
    assert (quota.left, quota.without(4).left, quota.without(7).left) == (2, 6, 8)
    assert GpuQuota("a", "nvidia.com/gpu", 2, 6).left == 0, "lowered since"
