"""The replicas of one object on several pools: taken, kept, released and lost."""

import json

import pytest

from tests.support.in_memory.cluster import H100, L40S, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.serving import SETTLED
from tests.support.in_memory.spreading import (
    H100_CHILD,
    H100_POOL,
    HOUR,
    L40S_POOL,
    MI300X_CHILD,
    MI300X_POOL,
    ask,
    by_pool,
    lose,
    running,
    scarce,
    spread,
    two_pools,
)
from tonnage.api.names import ANNOTATION_PLACEMENT, LABEL_PLACEMENT
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.kube.kinds import ACCELERATOR_POOLS, DEPLOYMENTS, SERVICES
from tonnage.reconcile.observation.children import read_deployments
from tonnage.reconcile.scheduling.admission import read_claims
from tonnage.reconcile.scheduling.migration_lock import is_under_way


def weights(cluster: Cluster) -> list[int | None]:
    return [placement.get("weight") for placement in cluster.status()["placements"]]


def services(cluster: Cluster) -> list[str]:
    return [body["metadata"]["name"] for body in cluster.api.objects(SERVICES)]


async def test_replicas_without_capacity_in_the_first_pool_run_on_another() -> None:
    cluster = await two_pools(4)
    assert by_pool(cluster) == {MI300X_POOL: 2, H100_POOL: 2}
    assert weights(cluster) == [50, 50]
    assert cluster.deployments() == [H100_CHILD, MI300X_CHILD]
    assert cluster.status()["desiredReplicas"] == cluster.status()["readyReplicas"] == 4
    message = cluster.message("Placed")
    assert "2 replicas on amd-mi300x" in message
    assert "2 replicas on nvidia-h100-sxm-80gb" in message


async def test_each_placement_reports_its_own_image_and_cost() -> None:
    cluster = await two_pools(5)
    amd, nvidia = cluster.status()["placements"]
    assert "rocm" in amd["image"]
    assert "rocm" not in nvidia["image"]
    assert (amd["costPerHour"], nvidia["costPerHour"]) == ("3.98", "8.97")


async def test_without_a_spread_policy_replicas_wait() -> None:
    cluster = scarce()
    cluster.apply("llama", spec_of(replicas=4))
    await cluster.settle()
    assert by_pool(cluster) == {MI300X_POOL: 2}
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")


async def test_when_short_a_pool_with_capacity_for_all_is_the_only_one() -> None:
    cluster = Cluster(MI300X, H100)
    cluster.occupy("mi300x-0", 6)
    await ask(cluster, 4)
    assert by_pool(cluster) == {H100_POOL: 4}


async def test_by_cost_the_cheapest_pool_is_filled_first() -> None:
    cluster = Cluster(MI300X, H100)
    cluster.occupy("mi300x-0", 6)
    await ask(cluster, 4, policy="ByCost")
    assert list(by_pool(cluster).items()) == [(MI300X_POOL, 2), (H100_POOL, 2)]
    assert cluster.conditions() == SETTLED


async def test_one_service_is_over_all_and_one_over_each_while_there_are_several() -> None:
    cluster = await two_pools(4)
    assert services(cluster) == ["llama", H100_CHILD, MI300X_CHILD]
    own = cluster.api.object(SERVICES, NAMESPACE, H100_CHILD)
    assert own["spec"]["selector"][LABEL_PLACEMENT] == "h100-sxm-80gb"
    await ask(cluster, 2)
    assert services(cluster) == ["llama"]


async def test_scaling_up_uses_free_capacity_and_scaling_down_releases_the_dearer_pool() -> None:
    cluster = await two_pools(4)
    first = running(cluster)
    await ask(cluster, 5)
    assert by_pool(cluster) == {MI300X_POOL: 2, H100_POOL: 3}
    assert first < running(cluster)
    await ask(cluster, 3)
    assert by_pool(cluster) == {MI300X_POOL: 2, H100_POOL: 1}
    kept = running(cluster)
    await ask(cluster, 2)
    assert by_pool(cluster) == {MI300X_POOL: 2}
    assert running(cluster) < kept
    assert cluster.deployments() == [MI300X_CHILD]
    assert cluster.conditions() == SETTLED


async def test_the_dearer_pool_is_released_first_though_the_cheaper_one_is_secondary() -> None:
    cluster = Cluster(MI300X, {**H100, "gpusPerNode": 2})
    cluster.occupy("mi300x-0", 8)
    await ask(cluster, 2)
    cluster.free("mi300x-0")
    await ask(cluster, 4)
    assert by_pool(cluster) == {H100_POOL: 2, MI300X_POOL: 2}
    kept = {name for name in running(cluster) if "mi300x" in name}
    await ask(cluster, 2)
    assert by_pool(cluster) == {MI300X_POOL: 2}
    assert running(cluster) == kept
    assert cluster.deployments() == [MI300X_CHILD]


async def test_a_promoted_placement_reports_no_fallback_of_the_other() -> None:
    cluster = Cluster({**L40S, "gpusPerNode": 2})
    await ask(cluster, 2)
    lose(cluster, "l40s")
    cluster.join(**{**H100, "gpusPerNode": 2})
    await cluster.settle()
    await cluster.wait(HOUR)
    assert cluster.status()["placements"][0]["reason"] == "FellBack"
    cluster.join(**{**MI300X, "gpusPerNode": 2})
    await ask(cluster, 4)
    await ask(cluster, 2)
    assert by_pool(cluster) == {MI300X_POOL: 2}
    assert cluster.status()["placements"][0]["reason"] == "LowestCost"
    assert cluster.conditions() == SETTLED


async def test_no_replica_moves_when_a_pool_grows() -> None:
    cluster = await two_pools(4, placement={"rebalance": {"policy": "WhenCheaperBy", "percent": 1}})
    before = running(cluster)
    cluster.free("mi300x-0")
    await cluster.wait(10 * HOUR)
    await cluster.resync()
    assert running(cluster) == before
    assert "rebalance" not in cluster.status()
    assert cluster.conditions() == SETTLED


async def test_a_shortage_is_reported_over_all_pools() -> None:
    cluster = scarce()
    await ask(cluster, 7)
    assert by_pool(cluster) == {MI300X_POOL: 2, H100_POOL: 3}
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    assert "the pools have capacity for 5 of 7 replicas" in cluster.message("Placed")
    cluster.free("h100-0")
    await cluster.settle()
    assert by_pool(cluster) == {MI300X_POOL: 2, H100_POOL: 5}
    assert cluster.conditions() == SETTLED


async def test_a_waiting_object_claims_no_more_than_it_lacks() -> None:
    cluster = scarce()
    await ask(cluster, 6)
    status = InferenceDeploymentStatus.model_validate(cluster.status())
    (claim,) = read_claims((NAMESPACE, "llama"), status)
    assert (claim.pool, claim.replicas) == (MI300X_POOL, 1)


async def test_a_spread_is_no_migration_even_after_an_earlier_one() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 2})
    await ask(cluster, 2)
    lose(cluster, "mi300x")
    cluster.join(**{**H100, "gpusPerNode": 2})
    cluster.join(**{**L40S, "gpusPerNode": 2})
    await cluster.settle()
    await cluster.wait(HOUR)
    assert cluster.conditions() == SETTLED
    await ask(cluster, 4)
    assert cluster.conditions() == SETTLED
    deployments = read_deployments(cluster.api.objects(DEPLOYMENTS), uid_of(cluster), ())
    assert [deployment.last_migration is not None for deployment in deployments].count(True) == 1
    assert not is_under_way(deployments)


async def test_a_share_on_a_node_that_takes_no_new_pods_stays() -> None:
    cluster = await two_pools(4)
    before = running(cluster)
    cluster.join(**L40S)
    cluster.cordon("h100")
    await cluster.resync()
    assert running(cluster) == before
    assert by_pool(cluster) == {MI300X_POOL: 2, H100_POOL: 2}


async def test_no_migration_is_planned_while_replicas_are_spread() -> None:
    cheaper = {"rebalance": {"policy": "WhenCheaperBy", "percent": 1}}
    cluster = Cluster(MI300X, {**H100, "gpusPerNode": 2})
    cluster.occupy("mi300x-0", 8)
    await ask(cluster, 2)
    cluster.occupy("mi300x-0", 6)
    await ask(cluster, 4, placement=cheaper)
    assert list(by_pool(cluster)) == [H100_POOL, MI300X_POOL]
    cluster.free("mi300x-0")
    await cluster.resync()
    assert "rebalance" not in cluster.status()


async def test_no_fallback_runs_while_others_cover_the_shortage() -> None:
    cluster = scarce()
    cluster.occupy("h100-0", 4, "nvidia.com/gpu")
    await ask(cluster, 6)
    before = running(cluster)
    cluster.join(**L40S)
    await cluster.wait(10 * HOUR)
    assert before == running(cluster)
    assert cluster.conditions() == SETTLED


async def test_a_share_whose_pool_is_lost_goes_elsewhere() -> None:
    cluster = await two_pools(4)
    kept = {name for name in running(cluster) if "mi300x" in name}
    cluster.join(**L40S)
    lose(cluster, "h100")
    await cluster.settle()
    assert by_pool(cluster) == {MI300X_POOL: 2, L40S_POOL: 2}
    assert kept < running(cluster)
    assert cluster.conditions() == SETTLED


async def test_a_share_of_a_lost_pool_is_reported_where_there_is_no_other_pool() -> None:
    cluster = await two_pools(4)
    lose(cluster, "h100")
    await cluster.settle()
    assert by_pool(cluster) == {MI300X_POOL: 2}
    assert "capacity for 2 of 4 replicas" in cluster.message("Placed")
    assert cluster.conditions()["Available"][0] == "True"


async def test_when_the_first_pool_is_lost_the_secondary_one_serves_on() -> None:
    cluster = await two_pools(4)
    kept = {name for name in running(cluster) if "h100" in name}
    lose(cluster, "mi300x")
    await cluster.settle()
    assert cluster.conditions()["Available"][0] == "True"
    await cluster.wait(HOUR)
    assert by_pool(cluster) == {H100_POOL: 3}
    assert kept < running(cluster)
    assert "capacity for 3 of 4 replicas" in cluster.message("Placed")


async def test_a_deleted_deployment_is_recreated_and_no_other_pod_rolls() -> None:
    cluster = await two_pools(4)
    kept = {name for name in running(cluster) if "h100" in name}
    cluster.api.remove(DEPLOYMENTS, NAMESPACE, MI300X_CHILD)
    await cluster.settle()
    assert by_pool(cluster) == {MI300X_POOL: 2, H100_POOL: 2}
    assert kept < running(cluster)
    secondary = {
        body["metadata"]["name"]
        for body in cluster.api.objects(DEPLOYMENTS)
        if json.loads(body["metadata"]["annotations"][ANNOTATION_PLACEMENT]).get("beside")
    }
    assert secondary == {MI300X_CHILD}
    assert cluster.conditions() == SETTLED


async def test_replicas_move_to_one_pool_when_the_spread_ends() -> None:
    cluster = await two_pools(4)
    cluster.free("mi300x-0")
    await cluster.settle()
    cluster.apply("llama", spec_of(replicas=4))
    await cluster.settle()
    assert by_pool(cluster) == {MI300X_POOL: 4}
    assert cluster.conditions() == SETTLED


async def test_scaled_to_zero_no_replica_is_left() -> None:
    cluster = await two_pools(4)
    await ask(cluster, 0)
    assert cluster.pods() == []
    assert cluster.conditions()["Placed"] == ("True", "ScaledToZero")


@pytest.mark.parametrize(
    ("bounds", "want"),
    [
        pytest.param({"maxPools": 2}, {L40S_POOL: 2, MI300X_POOL: 2}, id="no third pool"),
        pytest.param(
            {"minReplicasPerPool": 2},
            {L40S_POOL: 2, MI300X_POOL: 2, H100_POOL: 2},
            id="no single replica on a third pool",
        ),
        pytest.param({"minReplicasPerPool": 4}, {L40S_POOL: 2}, id="no pool for fewer"),
    ],
)
async def test_bounds_on_pools_are_kept(bounds: dict[str, int], want: dict[str, int]) -> None:
    cluster = scarce()
    cluster.join(**L40S)
    cluster.occupy("l40s-0", 2, "nvidia.com/gpu")
    await ask(cluster, 5, bounds=bounds)
    replicas = by_pool(cluster)
    assert {pool: replicas[pool] for pool in replicas if pool in want} == want


async def test_all_together_cost_no_more_than_the_user_allows() -> None:
    cluster = scarce()
    await ask(cluster, 4, placement={"maxCostPerHour": "15.00"})
    assert by_pool(cluster) == {MI300X_POOL: 2, H100_POOL: 2}
    await ask(cluster, 4, placement={"maxCostPerHour": "11.00"})  # four on H100 would cost more
    assert by_pool(cluster)[MI300X_POOL] == 2
    assert "capacity for 2 of 4 replicas" in cluster.message("Placed")


async def test_a_further_pool_of_the_same_accelerator_has_a_name_of_its_own() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 2})
    cluster.join(name="other", accelerator="mi300x", gpusPerNode=2, labels={"team": "other"})
    declare(cluster, "other", {"team": "other"})
    await ask(cluster, 4)
    assert sorted(by_pool(cluster).values()) == [2, 2]
    first, second = cluster.deployments()
    assert first == MI300X_CHILD
    assert second.startswith(f"{MI300X_CHILD}-")
    assert {placement["accelerator"] for placement in cluster.status()["placements"]} == {"mi300x"}
    assert cluster.conditions() == SETTLED
    before = running(cluster)
    await cluster.resync()
    assert running(cluster) == before


async def test_replicas_count_by_what_they_carry() -> None:
    """Without spec.replicas a pool of large devices needs fewer replicas for the same work."""
    cluster = scarce()
    cluster.occupy("h100-0", 2, "nvidia.com/gpu")
    workload = {"maxModelLen": 32768, "concurrency": 168, "inputTokens": 30000}
    cluster.apply("llama", spread(None, workload=workload))
    await cluster.settle()
    candidates = cluster.status()["candidates"]
    full = {candidate["pool"]: candidate["replicas"] for candidate in candidates}
    assert full == {MI300X_POOL: 4, H100_POOL: 5}
    assert by_pool(cluster) == {MI300X_POOL: 2, H100_POOL: 3}  # 2/4 and 3/5 of the work
    assert weights(cluster) == [45, 55]
    assert cluster.conditions() == SETTLED


def declare(cluster: Cluster, name: str, labels: dict[str, str]) -> None:
    """A platform team declares a pool of the nodes with these labels."""
    metadata = {"name": name, "resourceVersion": "1", "generation": 1}
    cluster.api.put(ACCELERATOR_POOLS, {"metadata": metadata, "spec": {"nodeSelector": labels}})
    cluster.watch()


def uid_of(cluster: Cluster) -> str:
    return str(cluster.inference_deployment()["metadata"]["uid"])
