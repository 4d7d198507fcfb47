"""ResourceClaimTemplates: made before the workload that names them, deleted once no pod needs
them."""

import copy

from tests.support.fleets.dra_objects import MI300X as KIND
from tests.support.fleets.dra_objects import gpu_slice
from tests.support.in_memory.cluster import MI300X, Cluster, spec_of
from tests.support.in_memory.controllers import ready, without_image
from tests.support.in_memory.serving import served
from tonnage.kube.kinds import (
    DEPLOYMENTS,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
)
from tonnage.kube.protocol import Object
from tonnage.workloads.claim_template import claim_template_names

HOUR = 3600


def publish(cluster: Cluster) -> None:
    """The driver takes over from the device plugin on all nodes."""
    for node in cluster.api.objects(NODES):
        for resources in (node["status"]["allocatable"], node["status"].get("capacity") or {}):
            resources.pop("amd.com/gpu", None)
        cluster.api.put(NODES, node)
        cluster.api.put(RESOURCE_SLICES, gpu_slice(node["metadata"]["name"], KIND))


def claim_templates(cluster: Cluster) -> list[str]:
    return [body["metadata"]["name"] for body in cluster.api.objects(RESOURCE_CLAIM_TEMPLATES)]


def named(deployment: Object) -> list[str]:
    claims = deployment["spec"]["template"]["spec"].get("resourceClaims") or []
    return [claim["resourceClaimTemplateName"] for claim in claims]


async def on_dra() -> Cluster:
    cluster = Cluster(MI300X)
    publish(cluster)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    return cluster


async def test_a_placement_on_published_gpus_has_the_template_that_its_pods_name() -> None:
    cluster = await on_dra()
    (deployment,) = cluster.api.objects(DEPLOYMENTS)
    assert claim_templates(cluster) == named(deployment)
    assert len(named(deployment)) == 1
    assert deployment["metadata"]["name"] == "llama-mi300x"
    (template,) = cluster.api.objects(RESOURCE_CLAIM_TEMPLATES)
    (owner,) = template["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("InferenceDeployment", "llama")


async def test_nothing_is_written_while_nothing_changes() -> None:
    cluster = await on_dra()
    writes = cluster.api.write_count
    await cluster.resync()
    assert cluster.api.write_count == writes


async def test_a_template_that_no_pod_needs_any_more_is_deleted() -> None:
    cluster = await on_dra()
    (before,) = claim_templates(cluster)
    cluster.apply("llama", spec_of("llama-3.1-405b-fp8"))  # takes more GPUs
    await cluster.settle()
    (deployment,) = cluster.api.objects(DEPLOYMENTS)
    assert claim_templates(cluster) == named(deployment)
    assert claim_templates(cluster) != [before]


async def test_a_pool_that_moves_to_a_driver_replaces_no_pod() -> None:
    cluster = await served(MI300X)
    before = {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)}
    (deployment,) = copy.deepcopy(cluster.api.objects(DEPLOYMENTS))
    publish(cluster)
    await cluster.settle()
    await cluster.wait(3600)
    assert {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)} == before
    (after,) = cluster.api.objects(DEPLOYMENTS)
    assert after["spec"] == deployment["spec"]
    assert claim_templates(cluster) == []


async def test_a_pod_that_requests_gpus_as_its_pool_offered_them_before_says_what_to_do() -> None:
    cluster = await served(MI300X)
    publish(cluster)
    await cluster.settle()
    (pod,) = cluster.pods()
    cluster.api.remove(PODS, "chat", pod["metadata"]["name"])  # its node is drained
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "Unschedulable")
    message = cluster.message("Ready")
    assert "Insufficient amd.com/gpu" in message
    assert message.endswith(
        "; the GPUs of pool amd-mi300x-dra are in ResourceSlices now, and pods claim them after "
        "`kubectl tonnage upgrade llama -n chat`"
    )
    upgraded = {"upgradedAt": "2026-11-28T12:00:00Z"}
    cluster.apply("llama", spec_of(rollout=upgraded))
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


async def test_a_rollback_starts_pods_though_the_failed_plan_had_other_claims() -> None:
    cluster = Cluster({**MI300X, "count": 1})
    publish(cluster)
    cluster.apply("llama", spec_of("llama-3.1-405b-fp8"))
    await cluster.settle()
    (before,) = claim_templates(cluster)
    cluster.behaviours["llama"] = lambda pod: (
        ready(pod) if before in claim_template_names(pod) else without_image(pod)
    )
    cluster.clock.advance(HOUR)  # pods are distinguished by their creation time
    cluster.apply("llama", spec_of("llama-3.3-70b", rollout={"strategy": "Recreate"}))
    await cluster.settle()
    (deployment,) = cluster.api.objects(DEPLOYMENTS)
    (after,) = named(deployment)
    assert after != before
    assert not [pod for pod in cluster.pods() if before in claim_template_names(pod)]
    assert set(claim_templates(cluster)) == {before, after}
    await cluster.wait(HOUR)
    assert cluster.conditions()["Degraded"] == ("True", "RolledBack")
    (deployment,) = cluster.api.objects(DEPLOYMENTS)
    assert named(deployment) == [before]
    assert before in claim_templates(cluster)
    assert cluster.conditions()["Available"] == ("True", "ReplicasReady")
