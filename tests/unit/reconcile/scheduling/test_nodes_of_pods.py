"""What the podTemplates and the volumes of an object require of nodes decides its placement."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.pricing import price
from tests.support.in_memory.serving import SETTLED
from tests.support.production.claims import volume_claim, volume_in_zone
from tonnage.kube.kinds import ACCELERATOR_POOLS

ZONE = "topology.kubernetes.io/zone"
CACHE = {"name": "weights", "persistentVolumeClaim": {"claimName": "weights"}}


def in_zone(group: dict[str, Any], zone: str, **fields: Any) -> dict[str, Any]:
    return {**group, "labels": {ZONE: zone}, **fields}


def cluster_of(*groups: dict[str, Any]) -> Cluster:
    """A cluster that prefers MI300X."""
    cluster = Cluster(*groups)
    price(cluster, "mi300x", "1")
    return cluster


def bind(cluster: Cluster, zone: str) -> None:
    cluster.administer(volume_claim("weights", bound=True, volume="disk-1"))
    cluster.administer(volume_in_zone("disk-1", "weights", zone))


MOUNTING: dict[str, dict[str, Any]] = {
    "volume of podTemplate": {"podTemplate": {"spec": {"volumes": [CACHE]}}},
    "volume of template": {"template": {"spec": {"volumes": [CACHE]}}},
}


@pytest.mark.parametrize("spec", MOUNTING.values(), ids=MOUNTING)
async def test_replicas_go_where_their_volume_can_be_mounted(spec: dict[str, Any]) -> None:
    cluster = cluster_of(in_zone(H100, "a"), in_zone(MI300X, "b"))
    bind(cluster, "a")
    cluster.apply("llama", spec_of(**spec))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    verdict, reason, message = cluster.candidate("mi300x")
    assert (verdict, reason) == ("Rejected", "NoMatchingNodes")
    assert (
        "but none of its nodes can run the pods (mi300x-0 does not match"
        " PersistentVolumeClaim weights: topology.kubernetes.io/zone In (a))" in message
    )


async def test_the_volume_of_the_model_counts() -> None:
    cluster = cluster_of(in_zone(H100, "a"), in_zone(MI300X, "b"))
    bind(cluster, "a")
    spec = spec_of()
    facts = {"inline": spec["model"]["source"]["inline"] | {"weightsBytes": 16 * 10**9}}
    spec["model"]["source"] = {
        "persistentVolumeClaim": {"claimName": "weights", "path": "m", "facts": facts}
    }
    cluster.apply("llama", spec)
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]


async def test_only_nodes_of_the_zone_are_capacity() -> None:
    near, far = in_zone(MI300X, "a", name="near", count=1), in_zone(MI300X, "b", name="far")
    cluster = cluster_of(near, far, in_zone(H100, "a", count=2))
    bind(cluster, "a")
    cluster.apply("llama", spec_of(replicas=10, **MOUNTING["volume of podTemplate"]))
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "capacity for 8 of 10 replicas now" in cluster.candidate("mi300x")[2]


@pytest.mark.parametrize(
    "template",
    [
        {"nodeSelector": {ZONE: "a"}},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": ZONE, "operator": "NotIn", "values": ["b"]}
                                ]
                            }
                        ]
                    }
                }
            }
        },
    ],
)
async def test_a_node_selector_of_the_user_counts(template: dict[str, Any]) -> None:
    cluster = cluster_of(in_zone(H100, "a"), in_zone(MI300X, "b"))
    cluster.apply("llama", spec_of(podTemplate={"spec": template}))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "does not match spec.podTemplate.spec." in cluster.candidate("mi300x")[2]


async def test_without_a_matching_node_the_object_waits_for_one() -> None:
    cluster = cluster_of(in_zone(MI300X, "b"))
    cluster.apply("llama", spec_of(podTemplate={"spec": {"nodeSelector": {ZONE: "a"}}}))
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "NoMatchingNodes")
    assert cluster.deployments() == []
    cluster.join(**in_zone(H100, "a"))
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_replicas_that_run_stay_when_their_volume_moves() -> None:
    cluster = cluster_of(in_zone(H100, "a"), in_zone(MI300X, "b"))
    bind(cluster, "b")
    cluster.apply("llama", spec_of(**MOUNTING["volume of podTemplate"]))
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    pods = {pod["metadata"]["uid"] for pod in cluster.pods()}
    bind(cluster, "a")
    cluster.clock.advance(3600)
    await cluster.resync()
    assert pods == {pod["metadata"]["uid"] for pod in cluster.pods()}
    assert cluster.deployments() == ["llama-mi300x"]


async def test_a_volume_of_another_claim_limits_nothing() -> None:
    cluster = cluster_of(in_zone(H100, "a"), in_zone(MI300X, "b"))
    cluster.administer(volume_claim("weights", bound=True, volume="disk-1"))
    cluster.administer(volume_in_zone("disk-1", "weights", "a", namespace="other"))
    cluster.apply("llama", spec_of(**MOUNTING["volume of podTemplate"]))
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]


async def test_an_interconnect_that_the_operator_refuses_rejects_its_pool() -> None:
    cluster = Cluster(MI300X)
    interconnect = {"resource": "rdma/ib", "capabilities": ["NET_ADMIN"]}
    spec = {"nodeSelector": {"amd.com/gpu.device-id": "74a1"}, "interconnect": interconnect}
    cluster.api.put(ACCELERATOR_POOLS, {"metadata": {"name": "a", "uid": "a"}, "spec": spec})
    cluster.apply("llama", spec_of())
    await cluster.settle()
    verdict, reason, message = cluster.candidate("a")
    assert (verdict, reason) == ("Rejected", "InvalidPodTemplate")
    assert "spec.interconnect.capabilities[0]" in message
