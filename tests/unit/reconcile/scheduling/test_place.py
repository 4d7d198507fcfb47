"""Which objects get GPUs and keep them, and when replicas leave a pool."""

import pytest

from tests.support.in_memory.cluster import (
    H100,
    L40S,
    MI300X,
    NAMESPACE,
    Cluster,
    spec_of,
)
from tests.support.in_memory.controllers import loading, ready
from tests.support.in_memory.end_state import end_state
from tests.support.in_memory.serving import SETTLED, served
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
)
from tonnage.kube.protocol import (
    Object,
)
from tonnage.reconcile.key import Key

# Capacity


async def test_an_object_without_capacity_is_placed_when_nodes_join() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 1})
    cluster.occupy("mi300x-0", 1)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    assert cluster.conditions()["Progressing"] == ("False", "Waiting")
    assert "Stalled" not in cluster.conditions()
    assert cluster.deployments() == []
    assert cluster.fleet.waiting_keys() == [Key(NAMESPACE, "llama")]
    cluster.join(**H100)
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert cluster.fleet.waiting_keys() == []


async def test_a_part_of_the_replicas_runs_and_the_rest_follows() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 2})
    cluster.occupy("mi300x-0", 1)
    cluster.apply("llama", spec_of(replicas=2))
    await cluster.settle()
    assert len(cluster.pods()) == 1
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    assert cluster.conditions()["Available"] == ("True", "ReplicasReady")
    assert cluster.conditions()["Ready"] == ("False", "InsufficientGPUs")
    assert cluster.conditions()["Progressing"] == ("False", "Waiting")
    assert "capacity for 1 of 2 replicas" in cluster.message("Ready")
    cluster.free("mi300x-0")
    await cluster.settle()
    assert cluster.conditions() == SETTLED


# Keeping a pool, and leaving it


async def test_replicas_stay_when_their_nodes_are_cordoned() -> None:
    cluster = await served(MI300X, H100, replicas=2)
    want = end_state(cluster.api)
    cluster.cordon("mi300x")
    cluster.start_operator()
    await cluster.settle()
    await cluster.wait(3600)
    assert cluster.conditions() == SETTLED
    assert end_state(cluster.api).keys() == want.keys()
    assert len(cluster.pods()) == 2


@pytest.mark.parametrize("after", ["10m", "0s"])
async def test_replicas_stay_when_their_pool_vanishes(after: str) -> None:
    cluster = await served(MI300X, H100, placement={"fallback": {"after": after}})
    pods = cluster.pods()
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    cluster.relabel("mi300x", labels)
    cluster.start_operator()
    await cluster.settle()
    await cluster.wait(7200)
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.pods() == pods
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    assert "those that run there stay" in cluster.message("Placed")


async def test_replicas_stay_where_they_are_when_a_team_declares_their_pool() -> None:
    cluster = await served(MI300X, H100)
    spec = {"nodeSelector": {"amd.com/gpu.device-id": "74a1"}, "costPerGPUHour": "99"}
    cluster.api.put(ACCELERATOR_POOLS, {"metadata": {"name": "team-a"}, "spec": spec})
    cluster.start_operator()
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.status()["placements"][0]["pool"] == "team-a"


async def test_replicas_without_a_node_leave_a_full_pool_only_after_the_fallback() -> None:
    cluster = await served(
        {**MI300X, "gpusPerNode": 1}, H100, placement={"fallback": {"after": "10m"}}
    )
    cluster.leave("mi300x")
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    assert cluster.conditions()["Progressing"] == ("False", "Waiting")
    await cluster.wait(590)
    assert cluster.deployments() == ["llama-mi300x"]
    await cluster.wait(15)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert cluster.conditions() == SETTLED


async def test_replicas_without_a_node_stay_when_the_node_comes_back_in_time() -> None:
    cluster = await served({**MI300X, "gpusPerNode": 1}, H100)
    cluster.leave("mi300x")
    await cluster.settle()
    await cluster.wait(300)
    cluster.join(**{**MI300X, "gpusPerNode": 1})
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.conditions() == SETTLED


async def test_a_workload_that_outgrows_its_pool_leaves_it_after_the_fallback() -> None:
    cluster = await served(
        L40S, workload={"concurrency": 4}, placement={"fallback": {"after": "10m"}}
    )
    cluster.join(**MI300X)
    cluster.apply(
        "llama",
        spec_of(workload={"concurrency": 1000}, placement={"fallback": {"after": "10m"}}),
    )
    await cluster.settle()
    assert cluster.deployments() == ["llama-l40s"]
    assert "KV cache" in cluster.message("Placed")
    assert "another pool is taken at 2026-01-01T00:10:00Z" in cluster.message("Placed")
    await cluster.wait(590)
    assert cluster.deployments() == ["llama-l40s"]
    await cluster.wait(15)
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.conditions() == SETTLED


async def test_a_workload_that_outgrows_every_pool_is_reported_and_goes_on_running() -> None:
    cluster = await served(L40S, workload={"concurrency": 4})
    pods = cluster.pods()
    cluster.apply("llama", spec_of(workload={"concurrency": 1000}))
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "DoesNotFit")
    assert cluster.conditions()["Stalled"][0] == "True"
    assert cluster.pods() == pods


async def test_an_old_placement_serves_until_the_new_one_does() -> None:
    cluster = await served(L40S, H100, placement={"accelerators": ["l40s"]})
    cluster.behaviours["llama"] = lambda pod: (
        ready(pod) if pod["metadata"]["name"].startswith("llama-l40s") else loading(pod)
    )
    cluster.apply("llama", spec_of(placement={"accelerators": ["h100-sxm-80gb"]}))
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb", "llama-l40s"]
    assert cluster.conditions()["Available"] == ("True", "ReplicasReady")
    assert cluster.conditions()["Ready"] == ("False", "RollingOut")
    assert cluster.conditions()["Reconciling"] == ("True", "RollingOut")
    reserved = {one.placement for one in cluster.fleet.view().snapshot().reservations}
    assert reserved == {"h100-sxm-80gb", "l40s"}
    assert [one["name"] for one in cluster.status()["placements"]] == ["h100-sxm-80gb", "l40s"]
    del cluster.behaviours["llama"]
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert cluster.conditions() == SETTLED


async def test_gpus_of_a_target_pool_are_reserved_for_the_migrating_replicas() -> None:
    cluster = Cluster(*({**H100, "name": one, "labels": {"team": one}} for one in ("a", "b")))
    for team in ("a", "b"):
        metadata = {"name": f"team-{team}", "labels": {"team": team}}
        spec = {"nodeSelector": {"team": team}}
        cluster.api.put(ACCELERATOR_POOLS, {"metadata": metadata, "spec": spec})

    def eight_in(team: str) -> Object:
        selector = {"matchLabels": {"team": team}}
        return spec_of(replicas=8, placement={"poolSelector": selector})

    cluster.apply("llama", eight_in("a"))
    await cluster.settle()
    cluster.apply("llama", eight_in("b"))
    cluster.apply("other", eight_in("b"))
    await cluster.reconcile("llama")
    await cluster.reconcile("other")
    assert cluster.conditions("llama")["Placed"] == ("True", "PoolChosen")
    assert cluster.conditions("other")["Placed"] == ("False", "InsufficientGPUs")
