"""podTemplates in the loop: their changes roll pods, and clashes keep an object off a pool."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import MI300X, Cluster, spec_of
from tests.support.in_memory.serving import SETTLED, served
from tonnage.api.names import ANNOTATION_TEMPLATE
from tonnage.kube.kinds import ACCELERATOR_POOLS, PODS

POOL = {
    "apiVersion": "tonnage.dev/v1alpha1",
    "kind": "AcceleratorPool",
    "metadata": {"name": "chat", "uid": "p", "generation": 1},
    "spec": {"nodeSelector": {"amd.com/gpu.device-id": "74a1"}},
}

NO_USER = {"$patch": "replace", "runAsNonRoot": True}


def declare(cluster: Cluster, pod: dict[str, Any]) -> None:
    spec = {**POOL["spec"], "podTemplate": {"spec": pod}}
    cluster.api.put(ACCELERATOR_POOLS, {**POOL, "spec": spec})


def pod_spec(cluster: Cluster) -> dict[str, Any]:
    spec: dict[str, Any] = cluster.deployment("llama-mi300x")["spec"]["template"]["spec"]
    return spec


def uids(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)}


async def test_pods_have_the_settings_of_the_pool_and_of_the_object() -> None:
    cluster = Cluster(MI300X)
    declare(cluster, {"schedulerName": "volcano", "securityContext": NO_USER})
    cluster.apply("llama", spec_of(podTemplate={"spec": {"runtimeClassName": "kata"}}))
    await cluster.settle()
    pod = pod_spec(cluster)
    assert (pod["schedulerName"], pod["runtimeClassName"]) == ("volcano", "kata")
    assert pod["securityContext"] == {"runAsNonRoot": True}
    assert cluster.conditions() == SETTLED


@pytest.mark.parametrize("pod", [{"schedulerName": "volcano"}, {"securityContext": NO_USER}])
async def test_a_change_of_the_pools_template_waits_for_an_upgrade(pod: dict[str, Any]) -> None:
    cluster = Cluster(MI300X)
    declare(cluster, {})
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert "availableUpdate" not in cluster.status()
    before, running = pod_spec(cluster), uids(cluster)
    declare(cluster, pod)
    await cluster.settle()
    assert (pod_spec(cluster), uids(cluster)) == (before, running)
    message = cluster.status()["availableUpdate"]["message"]
    assert message.endswith("podTemplate of AcceleratorPool chat")
    cluster.apply("llama", spec_of(rollout={"upgradedAt": "2026-11-26T00:00:00Z"}))
    await cluster.settle()
    assert pod_spec(cluster) != before
    assert uids(cluster) != running
    assert "availableUpdate" not in cluster.status()


def requiring(key: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"spec": {"affinity": {"nodeAffinity": required}}}


def last_key(cluster: Cluster) -> str:
    pod = cluster.deployment("llama-mi300x")["spec"]["template"]["spec"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    return str(term["matchExpressions"][-1]["key"])


async def test_a_change_of_the_affinity_rolls_the_pods() -> None:
    cluster = await served(MI300X, podTemplate=requiring("noisy"))
    assert last_key(cluster) == "noisy"
    for template, want in ((requiring("slow"), "slow"), ({}, "tonnage.dev/shard")):
        cluster.apply("llama", spec_of(podTemplate=template))
        await cluster.settle()
        assert last_key(cluster) == want
        assert cluster.conditions() == SETTLED


@pytest.mark.parametrize(
    "pod",
    [
        {"hostAliases": [], "nodeSelector": {}, "schedulerName": ""},
        {"containers": [{"name": "vllm", "resources": {"limits": {"memory": "65536Mi"}}}]},
        {"containers": [{"name": "side", "image": "a:1", "resources": {"requests": {"cpu": 1}}}]},
    ],
)
async def test_however_it_is_written_the_object_converges(pod: dict[str, Any]) -> None:
    cluster = await served(MI300X, podTemplate={"spec": pod})
    assert cluster.conditions() == SETTLED


async def test_the_deprecated_template_can_be_moved_without_a_restart() -> None:
    cluster = await served(MI300X, template={"spec": {"runtimeClassName": "kata"}})
    before = cluster.deployment("llama-mi300x")["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    cluster.apply("llama", spec_of(podTemplate={"spec": {"runtimeClassName": "kata"}}))
    await cluster.settle()
    after = cluster.deployment("llama-mi300x")["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    assert after == before
    assert cluster.conditions() == SETTLED


async def test_what_the_user_must_not_set_is_reported_with_its_path() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of(podTemplate={"spec": {"hostNetwork": True}}))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "InvalidSpec")
    message = cluster.message("Accepted")
    assert message.startswith("spec.podTemplate.spec.hostNetwork: true is refused")


async def test_a_pool_with_an_invalid_template_is_not_taken_and_what_runs_there_stays() -> None:
    cluster = await served(MI300X)
    pods = {pod["metadata"]["name"] for pod in cluster.pods()}
    broken = {**POOL["spec"], "podTemplate": {"spec": {"nodeName": "a"}}}
    cluster.api.put(ACCELERATOR_POOLS, {**POOL, "spec": broken})
    cluster.apply("other", spec_of())
    await cluster.settle()
    assert {pod["metadata"]["name"] for pod in cluster.pods()} == pods
    (candidate,) = cluster.status("other")["candidates"]
    assert candidate["reason"] == "InvalidPodTemplate"
    assert candidate["message"].startswith("AcceleratorPool chat: spec.podTemplate.spec.nodeName")
