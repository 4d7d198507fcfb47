"""With approval: Manual the operator proposes a migration, and it blocks no other object."""

from tests.support.in_memory.approving import (
    MANUAL,
    OTHER_IMAGE,
    approve,
    approved,
    change,
    proposed,
)
from tests.support.in_memory.cluster import H100, L40S, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.pricing import ONE_H100, place_of, price
from tests.support.in_memory.serving import SETTLED
from tonnage.reconcile.key import Key

MINUTE = 60.0


async def test_a_lost_pool_is_left_only_when_that_is_approved() -> None:
    cluster = Cluster(ONE_H100, MI300X)
    price(cluster, "h100", "1")
    cluster.apply("llama", spec_of(**MANUAL))
    await cluster.settle()
    approve(cluster)
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    cluster.leave("h100")
    await cluster.settle()
    assert "another pool is proposed at 2026-01-01T00:10:00Z" in cluster.message("Placed")
    await cluster.wait(10 * MINUTE)
    await cluster.wait(24 * 60 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert cluster.conditions()["Placed"] == ("False", "AwaitingApproval")
    assert "pool h100 cannot take the replicas" in cluster.message("Placed")
    assert "pool from h100 to amd-mi300x" in proposed(cluster)["message"]
    approve(cluster)
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.conditions() == SETTLED
    assert place_of(cluster)["reason"] == "FellBack"


async def test_a_pool_that_comes_back_ends_the_proposal_to_leave_it() -> None:
    cluster = Cluster(ONE_H100, MI300X)
    price(cluster, "h100", "1")
    cluster.apply("llama", spec_of(**MANUAL))
    await cluster.settle()
    approve(cluster)
    await cluster.settle()
    cluster.leave("h100")
    await cluster.settle()
    await cluster.wait(10 * MINUTE)
    assert proposed(cluster)
    cluster.join(**ONE_H100)
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert proposed(cluster) is None


async def rebalancing(*names: str) -> Cluster:
    """Objects on an H100 that would move to a cheaper MI300X, those named m... by approval."""
    cluster = Cluster(MI300X, H100)
    price(cluster, "h100", "2")
    price(cluster, "mi300x", "2.10")
    cheaper = {"rebalance": {"policy": "WhenCheaperBy", "stabilizationWindow": "30m"}}
    for name in names:
        manual = MANUAL if name.startswith("m") else {}
        cluster.apply(name, spec_of(placement=cheaper, **manual))
        await cluster.settle()
        if manual:
            approve(cluster, name)
            await cluster.settle()
        assert cluster.conditions(name) == SETTLED
        cluster.clock.advance(1)
    price(cluster, "mi300x", "1")
    await cluster.resync()
    return cluster


async def test_a_migration_by_choice_waits_while_the_object_stays_ready_and_scales() -> None:
    cluster = await rebalancing("manual")
    await cluster.wait(30 * MINUTE)
    await cluster.wait(24 * 60 * MINUTE)
    assert cluster.deployments() == ["manual-h100-sxm-80gb"]
    assert cluster.conditions("manual") == SETTLED
    assert "mi300x costs 1.00/h, h100 2.00/h" in proposed(cluster, "manual")["message"]
    assert "waits for approval" in cluster.message("Placed", "manual")
    cluster.apply("manual", {**cluster.inference_deployment("manual")["spec"], "replicas": 2})
    await cluster.settle()
    assert len(cluster.pods("manual")) == 2
    await cluster.wait(30 * MINUTE)
    approve(cluster, "manual")
    await cluster.settle()
    await cluster.wait(30 * MINUTE)
    assert cluster.deployments() == ["manual-mi300x"]
    assert cluster.conditions("manual") == SETTLED


async def test_a_migration_that_waits_for_approval_blocks_no_other() -> None:
    cluster = await rebalancing("manual", "other")
    await cluster.wait(31 * MINUTE)
    assert cluster.deployments() == ["manual-h100-sxm-80gb", "other-mi300x"]
    assert proposed(cluster, "manual")


async def test_a_new_leader_finds_the_same_plan_waiting() -> None:
    cluster = await approved(MI300X, L40S)
    change(cluster, engine=OTHER_IMAGE)
    await cluster.settle()
    status = cluster.status()
    cluster.start_operator()
    await cluster.settle()
    assert cluster.status() == status
    assert Key(NAMESPACE, "llama") in cluster.fleet.known_keys()
