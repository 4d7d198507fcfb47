"""The AcceleratorPool objects: discovered ones are created, kept, reported and removed."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, MI300X, WORLD, Cluster, spec_of
from tonnage.api.names import LABEL_DISCOVERED
from tonnage.kube.kinds import ACCELERATOR_POOLS, NODES
from tonnage.kube.protocol import ConflictError, TransientError
from tonnage.reconcile.integrations.accelerator_pools import PoolReporter

SELECTOR = {"amd.com/gpu.device-id": "74a1"}


def reporter(cluster: Cluster) -> PoolReporter:
    cluster.watch()
    return PoolReporter(
        cluster.api, cluster.fleet.view, WORLD.catalog, cluster.clock.now, WORLD.settings
    )


def pools(cluster: Cluster) -> dict[str, Any]:
    return {body["metadata"]["name"]: body for body in cluster.api.objects(ACCELERATOR_POOLS)}


async def reported(*groups: dict[str, Any]) -> Cluster:
    cluster = Cluster(*groups)
    await reporter(cluster).report()
    return cluster


def declare(cluster: Cluster, name: str, **spec: Any) -> None:
    body = {"metadata": {"name": name}, "spec": {"nodeSelector": SELECTOR, **spec}}
    cluster.api.put(ACCELERATOR_POOLS, body)


async def test_discovered_pools_are_created_with_their_status() -> None:
    cluster = await reported(MI300X, {**H100, "count": 2})
    live = pools(cluster)
    assert list(live) == ["amd-mi300x", "nvidia-h100-sxm-80gb"]
    pool = live["nvidia-h100-sxm-80gb"]
    assert pool["metadata"]["labels"][LABEL_DISCOVERED] == "true"
    assert pool["status"]["nodes"] == 2
    assert pool["status"]["gpus"] == {
        "total": 16,
        "allocatable": 16,
        "free": 16,
        "largestFreeBlock": 8,
    }
    (ready,) = pool["status"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("True", "PoolUsable")


async def test_a_refused_pod_template_is_reported() -> None:
    cluster = Cluster(MI300X)
    declare(cluster, "team-a", podTemplate={"spec": {"hostNetwork": True}})
    await reporter(cluster).report()
    (ready,) = pools(cluster)["team-a"]["status"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec")
    assert ready["message"].startswith("AcceleratorPool team-a: spec.podTemplate.spec.hostNetwork")
    assert "--pool-pod-security=privileged" in ready["message"]


async def test_a_second_report_writes_nothing() -> None:
    cluster = await reported(MI300X, H100)
    before = cluster.api.write_count
    await reporter(cluster).report()
    assert cluster.api.write_count == before


async def test_the_status_follows_what_runs() -> None:
    cluster = await reported(MI300X)
    cluster.apply("llama", spec_of(replicas=3))
    await cluster.settle()
    await reporter(cluster).report()
    assert pools(cluster)["amd-mi300x"]["status"]["gpus"]["free"] == 5


async def test_a_declared_pool_takes_the_nodes_of_a_discovered_one_which_is_removed() -> None:
    cluster = await reported(MI300X)
    declare(cluster, "team-a")
    before = pools(cluster)["team-a"]
    await reporter(cluster).report()
    live = pools(cluster)
    assert list(live) == ["team-a"]
    assert live["team-a"]["status"]["nodes"] == 1
    assert live["team-a"]["spec"] == before["spec"]
    assert live["team-a"]["metadata"]["generation"] == before["metadata"]["generation"]


async def test_a_declared_pool_with_the_name_of_a_discovered_one_is_left_alone() -> None:
    cluster = Cluster(MI300X, H100)
    spec = {"nodeSelector": {"no-node": "has-this"}}
    cluster.api.put(ACCELERATOR_POOLS, {"metadata": {"name": "amd-mi300x"}, "spec": spec})
    await reporter(cluster).report()
    await reporter(cluster).report()
    live = pools(cluster)
    assert live["amd-mi300x"]["spec"] == spec
    assert LABEL_DISCOVERED not in live["amd-mi300x"]["metadata"].get("labels", {})
    assert "nvidia-h100-sxm-80gb" in live


async def test_a_discovered_pool_without_nodes_is_removed() -> None:
    cluster = await reported(MI300X, H100)
    cluster.leave("h100")
    await reporter(cluster).report()
    assert list(pools(cluster)) == ["amd-mi300x"]


async def test_a_pool_that_only_the_cache_has_lost_is_kept() -> None:
    cluster = await reported(MI300X)
    for node in cluster.stores.nodes.values():
        cluster.fleet.change_node(node.name, node, None)
    stale = PoolReporter(
        cluster.api, cluster.fleet.view, WORLD.catalog, cluster.clock.now, WORLD.settings
    )
    await stale.report()
    assert list(pools(cluster)) == ["amd-mi300x"]
    assert len(cluster.api.objects(NODES)) == 1


async def test_a_declared_pool_without_nodes_is_kept_and_reported() -> None:
    cluster = Cluster()
    declare(cluster, "team-a")
    await reporter(cluster).report()
    (ready,) = pools(cluster)["team-a"]["status"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "NoNodes")


async def test_a_declared_pool_that_cannot_be_read_is_left_to_its_owner() -> None:
    cluster = Cluster(MI300X)
    cluster.api.put(ACCELERATOR_POOLS, {"metadata": {"name": "team-a"}, "spec": {"nodes": 7}})
    await reporter(cluster).report()
    live = pools(cluster)
    assert list(live) == ["amd-mi300x", "team-a"]
    assert live["team-a"]["spec"] == {"nodes": 7}
    (ready,) = live["team-a"]["status"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec")
    before = cluster.api.write_count
    await reporter(cluster).report()
    assert cluster.api.write_count == before


async def test_an_invalid_price_is_reported_by_its_field_and_harms_no_other_pool() -> None:
    cluster = Cluster(MI300X, H100)
    declare(cluster, "team-a", costPerGPUHour="abc")
    declare(cluster, "team-h", nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    await reporter(cluster).report()
    live = pools(cluster)
    (ready,) = live["team-a"]["status"]["conditions"]
    assert ready["reason"] == "InvalidSpec"
    assert "AcceleratorPool team-a: spec.costPerGPUHour" in ready["message"]
    assert live["team-h"]["status"]["nodes"] == 1
    assert live["amd-mi300x"]["status"]["nodes"] == 1


async def test_an_unreadable_pool_with_the_name_of_a_discovered_one_is_reported_too() -> None:
    cluster = Cluster(MI300X)
    cluster.api.put(ACCELERATOR_POOLS, {"metadata": {"name": "amd-mi300x"}, "spec": {"nodes": 7}})
    await reporter(cluster).report()
    (ready,) = pools(cluster)["amd-mi300x"]["status"]["conditions"]
    assert ready["reason"] == "InvalidSpec"


async def test_an_edit_of_a_discovered_pool_is_undone() -> None:
    cluster = await reported(MI300X)
    body = pools(cluster)["amd-mi300x"]
    want = body["spec"]
    cluster.api.put(ACCELERATOR_POOLS, body | {"spec": {"nodeSelector": {"other": "label"}}})
    await reporter(cluster).report()
    selector = pools(cluster)["amd-mi300x"]["spec"]["nodeSelector"]
    assert want["nodeSelector"].items() <= selector.items()


@pytest.mark.parametrize("error", [ConflictError("409"), TransientError("503")])
@pytest.mark.parametrize("verb", ["apply", "apply_status"])
async def test_a_pool_that_cannot_be_written_holds_up_no_other(verb: Any, error: Any) -> None:
    cluster = Cluster(MI300X, H100)
    cluster.api.fail_next(verb, error)
    await reporter(cluster).report()
    assert pools(cluster)["nvidia-h100-sxm-80gb"]["status"]["nodes"] == 1
    await reporter(cluster).report()
    assert pools(cluster)["amd-mi300x"]["status"]["nodes"] == 1


async def test_a_pool_that_cannot_be_removed_holds_up_no_other() -> None:
    cluster = await reported(MI300X, H100)
    cluster.leave("")
    cluster.api.fail_next("delete", ConflictError("409"))
    await reporter(cluster).report()
    assert len(pools(cluster)) == 1
    await reporter(cluster).report()
    assert pools(cluster) == {}


async def test_the_time_of_a_pools_condition_changes_only_with_its_status() -> None:
    cluster = await reported(MI300X)
    first = pools(cluster)["amd-mi300x"]["status"]["conditions"][0]
    cluster.clock.advance(60)
    cluster.occupy("mi300x-0", 8)
    await reporter(cluster).report()
    full = pools(cluster)["amd-mi300x"]["status"]["conditions"][0]
    assert full["lastTransitionTime"] == first["lastTransitionTime"]
    assert full["message"] != first["message"]
    cluster.cordon("mi300x")
    cluster.clock.advance(60)
    await reporter(cluster).report()
    cordoned = pools(cluster)["amd-mi300x"]["status"]["conditions"][0]
    assert (cordoned["status"], cordoned["reason"]) == ("False", "NoUsableNodes")
    assert cordoned["lastTransitionTime"] > first["lastTransitionTime"]
