"""When a new object leaves a pool where its pods are refused, or fit on no node for another reason
than GPUs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.cluster import L40S, MI300X, Cluster, spec_of
from tests.support.controllers import gpus_of
from tests.support.pricing import ONE_H100, place_of, price
from tests.support.production.admission import service_account
from tests.support.production.claims import volume_claim
from tests.support.production.quotas import resource_quota
from tests.support.production.webhooks import Webhook, denying
from tests.support.serving import SETTLED
from tonnage.kube.kinds import NODES, PODS
from tonnage.kube.protocol import Kind, Object

MINUTE = 60.0
QUOTA_OF_NVIDIA = resource_quota({"requests.nvidia.com/gpu": 0})
SMALL_CPU = {"resources": {"requests": {"cpu": "20"}}}


class DenyingNvidia(Webhook):
    """Refuses pods with GPUs of NVIDIA, as Pod Security may refuse what one vendor needs."""

    def refuse(self, kind: Kind, body: Object) -> str | None:
        is_nvidia = kind == PODS and "nvidia.com/gpu" in gpus_of(body)
        return super().refuse(kind, body) if is_nvidia else None


def shrink_disk(cluster: Cluster) -> None:
    (node,) = (one for one in cluster.api.objects(NODES) if one["metadata"]["name"] == "h100-0")
    node["status"]["allocatable"]["ephemeral-storage"] = "10Gi"
    cluster.api.put(NODES, node)


Cause = Callable[[Cluster], object]


@dataclass(frozen=True)
class Case:
    """What keeps the pods from the H100, and the reason that the status has."""

    cause: Cause
    reason: str
    template: Any = None


CASES = {
    "a quota of the vendor's GPUs": Case(
        lambda cluster: cluster.administer(QUOTA_OF_NVIDIA), "ChildRefused"
    ),
    "pods of the vendor that are denied": Case(
        lambda cluster: cluster.webhooks.append(DenyingNvidia((PODS,), "not privileged")),
        "ChildRefused",
    ),
    "no CPU": Case(lambda cluster: cluster.use("h100-0", cpu=10), "Unschedulable", SMALL_CPU),
    "no disk": Case(
        shrink_disk,
        "Unschedulable",
        {"resources": {"requests": {"ephemeral-storage": "100Gi"}}},
    ),
}


def started(case: Case, *groups: Object, **placement: object) -> Cluster:
    cluster = Cluster(*groups)
    price(cluster, "h100", "1")
    case.cause(cluster)
    template = {"template": {"spec": case.template}} if case.template else {}
    cluster.apply("llama", spec_of(placement=placement, **template))
    return cluster


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_replicas_that_cannot_come_leave_after_the_fallback_time(case: Case) -> None:
    cluster = started(case, ONE_H100, MI300X)
    await cluster.settle()
    await cluster.wait(3 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "failedPlans" not in cluster.status()
    assert "another pool is taken at 2026" in cluster.message("Ready")

    await cluster.wait(8 * MINUTE)
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-mi300x"]
    (failed,) = cluster.status()["failedPlans"]
    assert (failed["pool"], failed["reason"]) == ("h100", case.reason)
    placement = place_of(cluster)
    assert placement["reason"] == "FellBack"
    assert f"its replicas did not come up: {case.reason}" in placement["message"]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_they_do_not_return_while_nothing_has_changed(case: Case) -> None:
    fallback = {"after": "4m", "back": "WhenPossible"}
    cluster = started(
        case, ONE_H100, MI300X, fallback=fallback, rebalance={"stabilizationWindow": "1m"}
    )
    await cluster.settle()
    for _ in range(6):
        await cluster.wait(2 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]


async def test_a_quota_of_a_vendor_leads_to_another_vendor_at_once() -> None:
    cluster = started(CASES["a quota of the vendor's GPUs"], ONE_H100, L40S, MI300X)
    price(cluster, "l40s", "1.10")
    await cluster.settle()
    tried = set(cluster.deployments())
    for _ in range(12):
        await cluster.wait(MINUTE)
        tried |= set(cluster.deployments())
    assert tried == {"llama-h100-sxm-80gb", "llama-mi300x"}
    assert cluster.conditions() == SETTLED


async def test_a_quota_of_the_only_vendor_leads_nowhere() -> None:
    cluster = started(CASES["a quota of the vendor's GPUs"], ONE_H100, L40S)
    await cluster.settle()
    for _ in range(5):
        await cluster.wait(5 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "failedPlans" not in cluster.status()
    assert "another pool" not in cluster.message("Ready")
    cluster.withdraw(QUOTA_OF_NVIDIA)
    await cluster.settle()
    assert cluster.conditions() == SETTLED


CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
QUOTA_OF_CPU = resource_quota({"requests.cpu": "0"})
EVERYWHERE = {
    "a quota of CPU": (
        lambda cluster: cluster.administer(QUOTA_OF_CPU),
        lambda cluster: cluster.withdraw(QUOTA_OF_CPU),
        {},
    ),
    "a missing account": (
        lambda cluster: None,
        lambda cluster: cluster.administer(service_account("models")),
        {"serviceAccountName": "models"},
    ),
    "a claim without a volume": (
        lambda cluster: cluster.administer(volume_claim("data", bound=False)),
        lambda cluster: cluster.administer(volume_claim("data", bound=True)),
        CLAIM,
    ),
}


@pytest.mark.parametrize("case", EVERYWHERE.values(), ids=EVERYWHERE)
async def test_what_every_pool_lacks_makes_the_replicas_leave_none(case: Any) -> None:
    cause, remove, template = case
    cluster = started(Case(cause, "", template), ONE_H100, MI300X)
    await cluster.settle()
    for _ in range(5):
        await cluster.wait(5 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "failedPlans" not in cluster.status()
    assert "another pool" not in cluster.message("Ready")
    remove(cluster)
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_pods_that_are_denied_everywhere_try_each_pool_once() -> None:
    cluster = started(
        Case(lambda cluster: cluster.webhooks.append(denying("no")), ""),
        ONE_H100,
        MI300X,
        {**L40S, "gpusPerNode": 8},
        fallback={"after": "2m"},
    )
    await cluster.settle()
    tried = []
    for _ in range(12):
        await cluster.wait(MINUTE)
        tried.append(*cluster.deployments())
    pools = list(dict.fromkeys(tried))
    assert len(pools) == 3
    assert tried == sorted(tried, key=pools.index), "no pool is tried twice"


async def test_replicas_of_which_some_serve_stay() -> None:
    cluster = Cluster({**ONE_H100, "gpusPerNode": 2}, MI300X)
    price(cluster, "h100", "1")
    cluster.administer(resource_quota({"requests.nvidia.com/gpu": 1}))
    cluster.apply("llama", spec_of(replicas=2))
    await cluster.settle()
    for _ in range(5):
        await cluster.wait(5 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert cluster.status()["readyReplicas"] == 1
