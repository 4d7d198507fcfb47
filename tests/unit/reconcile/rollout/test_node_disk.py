"""Weights on the disks of nodes: one commit for all replicas, no Job, and what keeps pods away."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import loading
from tests.support.in_memory.serving import SETTLED
from tests.support.in_memory.weights import COMMIT, NEWER, cached_spec, jobs, on_hub, read_from_hub
from tests.support.production.pod_security import enforced_namespace
from tonnage.checkpoint.safetensors.formats import make_checkpoint
from tonnage.checkpoint.shape import parse_config_text
from tonnage.kube.kinds import ACCELERATOR_POOLS, PODS
from tonnage.kube.protocol import Object

DISK = {"nodeDisk": {"path": "/mnt/nvme", "capacity": "2Ti"}}
UPGRADE = {"upgradedAt": "2026-11-27T12:00:00Z"}


def declare(
    cluster: Cluster,
    weights: dict[str, Any] | None,
    node_selector: Mapping[str, str] = MappingProxyType({"amd.com/gpu.device-id": "74a1"}),
) -> None:
    spec = {"nodeSelector": dict(node_selector), "weights": weights}
    body = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "AcceleratorPool",
        "metadata": {"name": "chat", "uid": "p", "generation": 1},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }
    cluster.api.put(ACCELERATOR_POOLS, body)


def on_node(**spec: Any) -> Object:
    applied = cached_spec(**spec)
    applied["model"]["cache"] = {"nodeDisk": {}}
    return applied


def cluster_with(weights: dict[str, Any] | None = DISK) -> Cluster:
    cluster = on_hub(MI300X)
    declare(cluster, weights)
    return cluster


async def served(**spec: Any) -> Cluster:
    cluster = cluster_with()
    cluster.apply("llama", on_node(**spec))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    return cluster


def pod_of(cluster: Cluster) -> dict[str, Any]:
    spec: dict[str, Any] = cluster.deployment("llama-mi300x")["spec"]["template"]["spec"]
    return spec


def uids(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)}


async def test_the_pods_bring_the_weights_to_their_nodes_without_a_job() -> None:
    cluster = await served()
    assert jobs(cluster) == []
    pod = pod_of(cluster)
    assert pod["containers"][0]["args"][0] == f"/models/acme--llama/{COMMIT}"
    (volume,) = (each for each in pod["volumes"] if each["name"] == "model")
    assert volume["hostPath"]["path"] == f"/mnt/nvme/{NAMESPACE}"


async def test_a_branch_that_moves_changes_nothing_until_the_user_asks() -> None:
    cluster = await served()
    running = uids(cluster)
    cluster.hub.answer = read_from_hub(NEWER)
    cluster.start_operator()
    await cluster.settle()
    cluster.apply("llama", on_node(replicas=2))
    await cluster.settle()
    assert running < uids(cluster)
    update = cluster.status()["availableUpdate"]["message"]
    assert update == f"commit of main from {COMMIT} to {NEWER}"
    cluster.apply("llama", on_node(replicas=2, rollout=UPGRADE))
    await cluster.settle()
    assert pod_of(cluster)["containers"][0]["args"][0] == f"/models/acme--llama/{NEWER}"
    assert cluster.conditions() == SETTLED


@pytest.mark.parametrize(
    "weights", [DISK, {"nodeDisk": {"path": "/mnt/other", "capacity": "9Ti"}}, None]
)
async def test_what_the_pool_declares_replaces_no_pod_of_other_models(
    weights: dict[str, Any] | None,
) -> None:
    cluster = cluster_with(None)
    spec = cached_spec()
    del spec["model"]["cache"]
    cluster.apply("llama", spec)
    await cluster.settle()
    before, running = cluster.deployment("llama-mi300x"), uids(cluster)
    declare(cluster, weights)
    await cluster.settle()
    assert uids(cluster) == running
    assert cluster.deployment("llama-mi300x") == before


async def test_another_directory_waits_for_an_upgrade() -> None:
    cluster = await served()
    running = uids(cluster)
    declare(cluster, {"nodeDisk": {"path": "/mnt/other", "capacity": "2Ti"}})
    await cluster.settle()
    assert uids(cluster) == running
    update = cluster.status()["availableUpdate"]["message"]
    assert f"volume from /mnt/nvme/{NAMESPACE} to /mnt/other/{NAMESPACE}" in update
    cluster.apply("llama", on_node(rollout=UPGRADE))
    await cluster.settle()
    assert running.isdisjoint(uids(cluster))
    assert cluster.conditions() == SETTLED


@pytest.mark.parametrize(
    ("weights", "reason", "want"),
    [
        (None, "NoNodeDisk", "its nodes keep no weights"),
        ({"nodeDisk": {"capacity": "8Gi"}}, "InsufficientResources", "takes 16.0 GiB of disk"),
    ],
)
async def test_what_runs_stays_when_the_pool_takes_it_no_more(
    weights: dict[str, Any] | None, reason: str, want: str
) -> None:
    cluster = await served()
    running = uids(cluster)
    declare(cluster, weights)
    await cluster.settle()
    await cluster.wait(3600)
    assert uids(cluster) == running
    assert cluster.candidate("chat")[:2] == ("Rejected", reason)
    assert want in cluster.message("Placed")
    assert cluster.conditions()["Available"] == ("True", "ReplicasReady")


async def test_a_pool_without_a_disk_is_named_and_taken_once_it_has_one() -> None:
    cluster = cluster_with(None)
    cluster.apply("llama", on_node())
    await cluster.settle()
    assert cluster.deployments() == []
    assert cluster.candidate("chat")[:2] == ("Rejected", "NoNodeDisk")
    declare(cluster, DISK)
    await cluster.settle()
    assert cluster.conditions() == SETTLED


@pytest.mark.parametrize("level", ["baseline", "restricted"])
async def test_a_namespace_that_forbids_host_paths_is_named(level: str) -> None:
    cluster = cluster_with()
    cluster.administer(enforced_namespace(level))
    cluster.apply("llama", on_node())
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "PodSecurityViolated")
    message = cluster.candidate("chat")[2]
    assert f"Pod Security Standard {level}, which forbids hostPath volumes" in message
    assert cluster.deployments() == []
    cluster.administer(enforced_namespace("privileged"))
    await cluster.settle()
    assert cluster.conditions() == SETTLED


def of_repo(repo: str, **spec: Any) -> Object:
    applied = on_node(**spec)
    applied["model"]["source"] = {"huggingFace": {"repo": repo}}
    return applied


async def test_what_other_models_take_on_a_node_counts_once_for_all_that_share_it() -> None:
    cluster = cluster_with({"nodeDisk": {"capacity": "24Gi"}})
    cluster.apply("llama", on_node(replicas=2))
    await cluster.settle()
    cluster.apply("same", on_node())
    await cluster.settle()
    assert cluster.conditions("same") == SETTLED
    cluster.apply("other", of_repo("acme/other"))
    await cluster.settle()
    assert cluster.candidate("chat", "other")[:2] == ("Rejected", "NoMatchingNodes")
    want = "mi300x-0 has 8.0 of 24.0 GiB for weights left, and the model takes 16.0 GiB"
    assert want in cluster.message("Placed", "other")
    cluster.delete("llama")
    await cluster.settle()
    assert cluster.candidate("chat", "other")[:2] == ("Rejected", "NoMatchingNodes")
    cluster.delete("same")
    await cluster.settle()
    assert cluster.conditions("other") == SETTLED


async def test_only_nodes_whose_disk_has_space_are_capacity() -> None:
    cluster = on_hub(MI300X | {"count": 2})
    declare(cluster, {"nodeDisk": {"capacity": "24Gi"}})
    cluster.apply("llama", on_node())
    await cluster.settle()
    cluster.apply("other", of_repo("acme/other", replicas=9))
    await cluster.settle()
    assert "capacity for 8 of 9 replicas now" in cluster.message("Placed", "other")


async def test_a_disk_that_others_have_filled_meanwhile_moves_no_replica() -> None:
    cluster = await served()
    running = uids(cluster)
    cluster.apply("other", of_repo("acme/other"))
    await cluster.settle()
    declare(cluster, DISK | {"nodeDisk": DISK["nodeDisk"] | {"capacity": "24Gi"}})
    await cluster.settle()
    await cluster.wait(3600)
    assert running < uids(cluster)
    for name in ("llama", "other"):
        assert cluster.conditions(name) == SETTLED


def keeper_fails(message: str, exit_code: int = 3) -> Any:
    end = {"exitCode": exit_code, "reason": "Error", "message": message}
    keeper = {
        "name": "weights",
        "started": False,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": end},
    }
    server = {"name": "vllm", "ready": False, "restartCount": 0,
              "state": {"waiting": {"reason": "PodInitializing"}}}  # fmt: skip
    return lambda pod: {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "initContainerStatuses": [keeper],
        "containerStatuses": [server],
    }


async def test_a_failed_download_of_a_group_is_known_when_its_pods_are_gone() -> None:
    cluster = on_hub({**H100, "count": 4, "resources": {"rdma/ib": "1k"}})
    cluster.has_leader_worker_set = True
    declare(cluster, DISK, {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    cluster.behaviours["llama"] = loading
    large = spec_of(model="deepseek-v3")
    config = json.dumps(large["model"]["source"]["inline"]["config"]).encode()
    cluster.hub.answer = make_checkpoint(
        parse_config_text(config), weights_bytes=688 * 10**9, revision=COMMIT
    )
    cluster.apply("llama", large | {"model": on_node()["model"]})
    await cluster.settle()
    pods = list(cluster.api.objects(PODS))
    assert len(pods) == 2
    await cluster.wait(60)
    status: Object = keeper_fails("the disk of the node lacks 9.0 GiB")(pods[1])
    status["initContainerStatuses"][0] |= {"restartCount": 1, "state": {"running": {}}}
    cluster.api.set_status(PODS, NAMESPACE, pods[1]["metadata"]["name"], status)
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "WeightsNotDownloaded")
    assert "was replaced: the disk of the node lacks 9.0 GiB" in cluster.message("Ready")


async def test_a_download_that_is_tried_again_is_no_failure() -> None:
    cluster = cluster_with()
    failing = keeper_fails("the Hub limits the rate of requests (429)", exit_code=1)

    def again(pod: Object) -> Object:
        status: Object = failing(pod)
        running = {"startedAt": "2026-01-01T00:00:00Z"}
        status["initContainerStatuses"][0]["state"] = {"running": running}
        return status

    cluster.behaviours["llama"] = failing
    cluster.apply("llama", on_node())
    await cluster.settle()
    assert "limits the rate" in cluster.message("Ready")
    cluster.behaviours["llama"] = again
    await cluster.settle()
    assert "limits the rate" not in cluster.message("Ready")


@pytest.mark.parametrize(
    ("message", "want"),
    [
        (
            "the disk of the node lacks 9.0 GiB",
            "the disk of the node lacks 9.0 GiB (node mi300x-0)",
        ),
        ("", "exit code 3 (node mi300x-0)"),
    ],
)
async def test_a_failed_download_is_reported_with_its_node(message: str, want: str) -> None:
    cluster = cluster_with()
    cluster.behaviours["llama"] = keeper_fails(message)
    cluster.apply("llama", on_node())
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "WeightsNotDownloaded")
    assert cluster.message("Ready").endswith(want)
    assert cluster.conditions()["Stalled"] == ("True", "WeightsNotDownloaded")
    await cluster.wait(6 * 3600)
    assert "failedPlans" not in cluster.status(), "another plan would not download it either"
