"""LimitRanges and Pod Security Standards decide which pools a new object can be placed on."""

from typing import Any

from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.pricing import price
from tests.support.in_memory.serving import SETTLED
from tests.support.production.limit_ranges import limit_range
from tests.support.production.pod_security import enforced_namespace
from tonnage.kube.protocol import Object


def cluster_with(
    *bodies: Object, cheapest: str = "mi300x", model: str = "llama-3.1-8b", **spec: Any
) -> Cluster:
    """An object that the cheapest pool is chosen for, but for the bodies."""
    cluster = Cluster(H100, MI300X)
    price(cluster, cheapest, "1")
    for body in bodies:
        cluster.administer(body)
    cluster.apply("llama", spec_of(model, **spec))
    return cluster


async def test_a_namespace_that_wants_no_root_gets_a_pool_whose_pods_are_not_root() -> None:
    cluster = cluster_with(enforced_namespace("restricted"))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    verdict, reason, message = cluster.candidate("mi300x")
    assert (verdict, reason) == ("Rejected", "PodSecurityViolated")
    assert (
        "the namespace enforces the Pod Security Standard restricted, which asks for true in"
        " securityContext.runAsNonRoot (it is not set); set it in spec.podTemplate of the object"
        " or of the AcceleratorPool, or use another namespace" in message
    )


async def test_without_a_pool_that_the_standard_admits_the_object_waits_for_it() -> None:
    restricted = enforced_namespace("restricted")
    cluster = cluster_with(restricted, placement={"accelerators": ["mi300x"]})
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "PodSecurityViolated")
    assert "Pod Security Standard of the namespace leaves no pool" in cluster.message("Placed")
    assert cluster.deployments() == []
    cluster.administer(enforced_namespace("baseline"))
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_a_pod_template_that_meets_the_standard_opens_the_pool() -> None:
    context = {"runAsNonRoot": True, "runAsUser": 1000}
    template = {"spec": {"securityContext": context}}
    cluster = cluster_with(enforced_namespace("restricted"), podTemplate=template)
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-mi300x"]


async def test_a_limit_range_for_gpus_of_one_vendor_leaves_the_other() -> None:
    cluster = cluster_with(limit_range(max={"amd.com/gpu": "0"}))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    verdict, reason, message = cluster.candidate("mi300x")
    assert (verdict, reason) == ("Rejected", "LimitRangeViolated")
    assert "container vllm may use 1 amd.com/gpu, more than the maximum of 0 amd.com/gpu" in message


async def test_a_plan_has_no_more_gpus_than_a_limit_range_allows() -> None:
    placement = {"accelerators": ["h100"], "policy": "HighestThroughput"}
    free = cluster_with(model="llama-3.3-70b", placement=placement)
    limits = limit_range(max={"nvidia.com/gpu": "2"})
    limited = cluster_with(limits, model="llama-3.3-70b", placement=placement)
    for cluster, parallelism in ((free, "TP 8"), (limited, "TP 2")):
        await cluster.settle()
        assert cluster.conditions() == SETTLED
        assert f"fits with {parallelism}" in cluster.message("Placed")


async def test_without_a_pool_that_limit_ranges_allow_the_object_waits_for_them() -> None:
    limits = limit_range(max={"memory": "8Gi"})
    cluster = cluster_with(limits)
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "LimitRangeViolated")
    assert "the LimitRanges of the namespace leave no pool" in cluster.message("Placed")
    assert cluster.deployments() == []
    cluster.withdraw(limits)
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_replicas_that_run_stay_whatever_the_namespace_allows_later() -> None:
    cluster = cluster_with()
    await cluster.settle()
    pods = {pod["metadata"]["uid"] for pod in cluster.pods()}
    cluster.administer(limit_range(max={"memory": "8Gi"}))
    cluster.administer(enforced_namespace("restricted"))
    await cluster.settle()
    await cluster.resync()
    assert pods == {pod["metadata"]["uid"] for pod in cluster.pods()}
    assert cluster.conditions() == SETTLED
