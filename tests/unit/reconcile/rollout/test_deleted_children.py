"""What running replicas need is created again after somebody has deleted it, in every state."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.fleets.dra_objects import MI300X as KIND
from tests.support.fleets.dra_objects import gpu_slice
from tests.support.in_memory.approving import change
from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import ready, without_image
from tests.support.in_memory.serving import SETTLED
from tests.support.in_memory.spreading import HOUR, two_pools
from tests.support.in_memory.weights import cached_spec, model_claim, read_from_hub
from tonnage.api.conditions import Reason
from tonnage.checkpoint.lookup import ModelUnavailable
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    COMPUTE_DOMAINS,
    NODES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    SERVICES,
)
from tonnage.kube.protocol import Kind, Object
from tonnage.workloads.weights_job import POD_NAME

IMAGE = "registry.local/vllm:other"
OTHER: dict[str, Any] = {"engine": {"vllm": {"image": IMAGE}}}


async def pause(cluster: Cluster) -> None:
    change(cluster, **OTHER, rollout={"paused": True})
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "RolloutPaused")


async def fail(cluster: Cluster) -> None:
    cluster.behaviours["llama"] = lambda pod: (
        without_image(pod) if pod["spec"]["containers"][0]["image"] == IMAGE else ready(pod)
    )
    cluster.clock.advance(HOUR)
    change(cluster, **OTHER)
    await cluster.settle()
    await cluster.wait(24 * HOUR)
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")


async def propose(cluster: Cluster) -> None:
    change(cluster, **OTHER, approval="Manual")
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "AwaitingApproval")


async def ask_for_no_pool(cluster: Cluster) -> None:
    change(cluster, placement={"poolSelector": {"matchLabels": {"team": "none"}}})
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "NoMatchingPool")


async def make_invalid(cluster: Cluster) -> None:
    change(cluster, workload={"maxModelLen": 99_999_999})
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "InvalidSpec")


async def download_first(cluster: Cluster) -> None:
    cluster.administer(model_claim())
    cluster.hub.answer = read_from_hub()
    cluster.behaviours[POD_NAME] = lambda pod: {"phase": "Pending"}
    cluster.apply("llama", cached_spec(replicas=1))
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "DownloadingWeights")


STATES = {
    "paused": pause,
    "rolled back": fail,
    "waiting for approval": propose,
    "without a pool": ask_for_no_pool,
    "not accepted": make_invalid,
    "downloading": download_first,
}
State = Callable[[Cluster], Awaitable[None]]
STATE = pytest.mark.parametrize("bring_about", STATES.values(), ids=STATES)


async def on_dra() -> Cluster:
    """A replica whose pods claim GPUs that a driver publishes."""
    cluster = Cluster(MI300X)
    for node in cluster.api.objects(NODES):
        for resources in (node["status"]["allocatable"], node["status"].get("capacity") or {}):
            resources.pop("amd.com/gpu", None)
        cluster.api.put(NODES, node)
        cluster.api.put(RESOURCE_SLICES, gpu_slice(node["metadata"]["name"], KIND))
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    return cluster


async def over_nvlink() -> Cluster:
    """A replica on two nodes whose GPUs share memory."""
    cluster = Cluster({**H100, "count": 4, "labels": {"rack": "a", "nvidia.com/gpu.clique": "a.1"}})
    cluster.has_leader_worker_set = cluster.has_compute_domains = True
    interconnect = {"nodeSelector": {"rack": "a"}, "interconnect": {"computeDomain": True}}
    pool = {"metadata": {"name": "rack", "uid": "rack"}, "spec": interconnect}
    cluster.api.put(ACCELERATOR_POOLS, pool)
    cluster.apply("llama", spec_of(model="deepseek-v3"))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    return cluster


def names(cluster: Cluster, kind: Kind) -> list[str]:
    return [body["metadata"]["name"] for body in cluster.api.objects(kind)]


async def delete_all(cluster: Cluster, kind: Kind) -> list[str]:
    """Delete every object of the kind; their names."""
    deleted = names(cluster, kind)
    for name in deleted:
        cluster.api.remove(kind, NAMESPACE, name)
    await cluster.settle()
    return deleted


async def expect_created_again(cluster: Cluster, kind: Kind, count: int = 1) -> None:
    before: list[Object] = cluster.api.objects(kind)
    pods = {pod["metadata"]["uid"] for pod in cluster.pods()}
    assert len(before) == count
    deleted = await delete_all(cluster, kind)
    assert names(cluster, kind) == deleted
    assert [body["spec"] for body in cluster.api.objects(kind)] == [one["spec"] for one in before]
    writes = cluster.api.write_count
    await cluster.resync()
    assert cluster.api.write_count == writes
    assert {pod["metadata"]["uid"] for pod in cluster.pods()} == pods


@STATE
async def test_a_service(bring_about: State) -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    await bring_about(cluster)
    await expect_created_again(cluster, SERVICES)


@STATE
async def test_a_claim_template(bring_about: State) -> None:
    cluster = await on_dra()
    await bring_about(cluster)
    await expect_created_again(cluster, RESOURCE_CLAIM_TEMPLATES)


@pytest.mark.parametrize("state", ["paused", "rolled back", "without a pool", "not accepted"])
async def test_a_compute_domain(state: str) -> None:
    cluster = await over_nvlink()
    await STATES[state](cluster)
    await expect_created_again(cluster, COMPUTE_DOMAINS)


@pytest.mark.parametrize("state", ["paused", "without a pool", "not accepted"])
async def test_services_of_placements(state: str) -> None:
    cluster = await two_pools()
    await STATES[state](cluster)
    await expect_created_again(cluster, SERVICES, count=3)


async def test_a_service_while_the_model_is_unknown() -> None:
    """A new operator asks a Hub that does not answer."""
    cluster = Cluster(MI300X)
    cluster.hub.answer = read_from_hub()
    cluster.apply("llama", spec_of() | {"model": {"source": {"huggingFace": {"repo": "a/b"}}}})
    await cluster.settle()
    cluster.hub.answer = ModelUnavailable(Reason.MODEL_SOURCE_UNREACHABLE, "no answer", 30.0)
    cluster.start_operator()
    await cluster.settle()
    await expect_created_again(cluster, SERVICES)
