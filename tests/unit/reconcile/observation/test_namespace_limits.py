"""What ResourceQuotas leave of each kind of GPU."""

from typing import Any

import pytest

from tonnage.placement.namespace import Quota
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


def test_every_resource_of_pods_has_its_quota() -> None:
    bodies = [
        quota({NVIDIA: "8", "requests.amd.com/gpu": "4"}, {NVIDIA: "6"}, "b"),
        quota({"cpu": "8", "limits.memory": "1Gi", "pods": "3"}, {"cpu": "1500m"}, "a"),
        quota({"count/pods": "2", "requests.cpu": "1"}, {}, "c"),
    ]
    assert read_quotas(bodies) == (
        Quota("a", "memory", 2**30, 0, of_limits=True),
        Quota("a", "pods", 3, 0),
        Quota("a", "cpu", 8000, 1500),
        Quota("b", "amd.com/gpu", 4, 0),
        Quota("b", "nvidia.com/gpu", 8, 6),
        Quota("c", "pods", 2, 0),
        Quota("c", "cpu", 1000, 0),
    )


@pytest.mark.parametrize(
    "body",
    [
        quota({NVIDIA: "8"}, {}, scopes=["BestEffort"]),
        quota({NVIDIA: "8"}, {}, scopes=["Terminating"]),
        quota({NVIDIA: "8"}, {}, scopeSelector={"matchExpressions": [{"scopeName": "BestEffort"}]}),
        {"metadata": {"name": "new"}, "spec": {"hard": {NVIDIA: "8"}}},
        quota({NVIDIA: None}, {}),
        quota({NVIDIA: "many"}, {}),
        quota({"nvidia.com/gpu": "8", "services": "1", "count/deployments.apps": "1"}, {}),
        {"metadata": {"name": "odd"}, "spec": "x", "status": ["y"]},
    ],
)
def test_what_does_not_count_or_cannot_be_read_is_left_out(body: dict[str, Any]) -> None:
    assert read_quotas([body]) == ()


@pytest.mark.parametrize("scope", ["NotTerminating", "NotBestEffort"])
def test_scopes_of_every_pod_count(scope: str) -> None:
    (read,) = read_quotas([quota({NVIDIA: "8"}, {}, scopes=[scope])])
    assert read.counts(None)
    assert read.counts("high")


@pytest.mark.parametrize(
    ("selector", "counted"),
    [
        ({"operator": "In", "values": ["high"]}, {"high"}),
        ({"operator": "NotIn", "values": ["high"]}, {"low", None}),
        ({"operator": "Exists"}, {"high", "low"}),
        ({"operator": "DoesNotExist"}, {None}),
    ],
)
def test_a_quota_counts_the_pods_of_its_priority_classes(
    selector: dict[str, Any], counted: set[str | None]
) -> None:
    expressions = [{"scopeName": "PriorityClass", **selector}]
    (read,) = read_quotas(
        [quota({NVIDIA: "8"}, {}, scopeSelector={"matchExpressions": expressions})]
    )
    assert {name for name in ("high", "low", None) if read.counts(name)} == counted


def test_the_scope_of_priority_classes_is_that_of_any() -> None:
    (read,) = read_quotas([quota({NVIDIA: "8"}, {}, scopes=["PriorityClass"])])
    assert (read.counts("high"), read.counts(None)) == (True, False)


def test_own_pods_do_not_use_it_up() -> None:
    quota = Quota("a", "nvidia.com/gpu", 8, 6)
    assert (quota.left, quota.without(4).left, quota.without(7).left) == (2, 6, 8)
    assert Quota("a", "nvidia.com/gpu", 2, 6).left == 0, "lowered since"


@pytest.mark.parametrize(
    ("quota", "need", "message"),
    [
        (
            Quota("a", "nvidia.com/gpu", 8, 6),
            4,
            "ResourceQuota a leaves 2 of 8 nvidia.com/gpu, and a replica needs 4; raise the quota",
        ),
        (
            Quota("a", "pods", 1_000_000, 999_999),
            2,
            "ResourceQuota a leaves 1 of 1000000 pods, and a replica needs 2; raise the quota",
        ),
        (
            Quota("a", "cpu", 8000, 6500),
            3000,
            "ResourceQuota a leaves 1.5 of 8 CPUs, and a replica needs 3; raise the quota",
        ),
        (
            Quota("a", "memory", 2**36, 2**35, of_limits=True),
            3 * 2**34,
            "ResourceQuota a leaves 32 of 64 GiB of memory as limits, and a replica needs 48;"
            " raise the quota",
        ),
    ],
)
def test_the_message_has_the_unit_of_the_resource(quota: Quota, need: int, message: str) -> None:
    assert quota.explain(need) == message
