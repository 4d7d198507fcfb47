"""Which pool replicas stay on, when they leave it by choice, and what the status reports about
it."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, L40S, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import loading, ready
from tests.support.in_memory.pricing import ONE_H100, on_h100, place_of, price
from tests.support.in_memory.serving import SETTLED, served
from tonnage.api.names import ANNOTATION_MOVED
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS
from tonnage.reconcile.key import Key

MINUTE = 60.0
CHEAPER = {"policy": "WhenCheaperBy", "percent": 20, "stabilizationWindow": "30m"}


async def priced(*names: str, **placement: Any) -> Cluster:
    """Objects on an H100 at 2 dollars an hour, next to an MI300X at 2.10."""
    cluster = Cluster(MI300X, H100)
    price(cluster, "h100", "2")
    price(cluster, "mi300x", "2.10")
    for name in names or ("llama",):
        cluster.apply(name, spec_of(placement={"rebalance": CHEAPER, **placement}))
        await cluster.settle()
        assert place_of(cluster, name)["pool"] == "h100"
    return cluster


# For a cheaper pool


async def test_replicas_move_to_a_cheaper_pool_only_after_the_window() -> None:
    cluster = await priced()
    price(cluster, "mi300x", "1.60")
    await cluster.resync()
    assert cluster.status()["rebalance"] == {
        "pool": "mi300x",
        "reason": "Rebalanced",
        "since": "2026-01-01T00:00:00Z",
        "movesAt": "2026-01-01T00:30:00Z",
        "message": "mi300x costs 1.60/h, h100 2.00/h: at least 20 % less"
        " (spec.placement.rebalance)",
    }
    await cluster.wait(29 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    await cluster.wait(1 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.conditions() == SETTLED
    assert place_of(cluster)["reason"] == "Rebalanced"
    assert "left h100 at 2026-01-01T00:30:00Z: mi300x costs 1.60/h" in place_of(cluster)["message"]
    assert "rebalance" not in cluster.status()


@pytest.mark.parametrize(
    ("cost", "rebalance"),
    [("1.61", CHEAPER), ("0.10", {}), ("1.40", {**CHEAPER, "percent": 31})],
    ids=["not so much cheaper", "never, by default", "of another percentage"],
)
async def test_replicas_stay_where_the_spec_asks_for_no_migration(
    cost: str, rebalance: Any
) -> None:
    cluster = await priced(rebalance=rebalance)
    price(cluster, "mi300x", cost)
    await cluster.resync()
    await cluster.wait(3600 * 24)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "rebalance" not in cluster.status()


async def test_no_replica_moves_where_there_is_no_capacity_for_all() -> None:
    cluster = await priced()
    cluster.apply("llama", spec_of(replicas=2, placement={"rebalance": CHEAPER}))
    cluster.occupy("mi300x-0", 7)
    price(cluster, "mi300x", "0.50")
    await cluster.resync()
    await cluster.wait(3600)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]


async def on_h100_next_to_growth(**placement: Any) -> Cluster:
    """An object on an H100, next to a full and much cheaper pool that may grow by a node."""
    cluster = Cluster({**MI300X, "gpusPerNode": 2}, ONE_H100)
    cluster.occupy("mi300x-0", 2)
    price(cluster, "mi300x", "3")
    price(cluster, "h100", "2")
    cluster.apply("llama", spec_of(placement={"rebalance": CHEAPER, **placement}))
    await cluster.settle()
    price(cluster, "mi300x", "0.50", maxNodes=2)
    await cluster.resync()
    return cluster


async def test_no_replica_moves_to_a_pool_that_must_grow_by_default() -> None:
    cluster = await on_h100_next_to_growth()
    await cluster.wait(3600 * 24)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "rebalance" not in cluster.status()


async def test_replicas_move_to_a_pool_that_must_grow_where_the_user_prefers_that() -> None:
    cluster = await on_h100_next_to_growth(preferGrowth=True)
    assert cluster.status()["rebalance"]["pool"] == "mi300x"
    await cluster.wait(30 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb", "llama-mi300x"], "both, until it serves"
    assert cluster.conditions()["Available"] == ("True", "ReplicasReady")
    cluster.join(**{**MI300X, "gpusPerNode": 2, "count": 2})
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.conditions() == SETTLED


async def test_replicas_try_growth_that_did_not_come_only_once() -> None:
    cluster = await on_h100_next_to_growth(preferGrowth=True)
    await cluster.wait(30 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb", "llama-mi300x"]
    await cluster.wait(10 * MINUTE)
    for _ in range(24):
        assert cluster.deployments() == ["llama-h100-sxm-80gb"]
        assert len([pod for pod in cluster.pods() if pod["spec"].get("nodeName")]) == 1
        await cluster.wait(60 * MINUTE)


async def test_a_flapping_price_restarts_the_window() -> None:
    cluster = await priced()
    for _ in range(10):
        price(cluster, "mi300x", "1")
        await cluster.resync()
        await cluster.wait(25 * MINUTE)
        price(cluster, "mi300x", "2")
        await cluster.resync()
        assert "rebalance" not in cluster.status()
        await cluster.wait(25 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]


async def test_capacity_that_is_gone_for_a_while_restarts_the_window() -> None:
    cluster = await priced()
    price(cluster, "mi300x", "1")
    await cluster.resync()
    await cluster.wait(20 * MINUTE)
    cluster.occupy("mi300x-0", 8)
    await cluster.wait(0)
    cluster.free("mi300x-0")
    await cluster.wait(20 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]


async def test_a_window_outlives_the_operator() -> None:
    cluster = await priced()
    price(cluster, "mi300x", "1")
    await cluster.resync()
    await cluster.wait(29 * MINUTE)
    cluster.start_operator()
    await cluster.settle()
    await cluster.wait(1 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]


async def test_a_lost_status_restarts_the_window() -> None:
    cluster = await priced()
    price(cluster, "mi300x", "1")
    await cluster.resync()
    await cluster.wait(29 * MINUTE)
    body = cluster.inference_deployment()
    cluster.api.put(INFERENCE_DEPLOYMENTS, {**body, "status": {}})
    await cluster.settle()
    await cluster.wait(29 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    await cluster.wait(1 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]


async def test_the_old_replicas_serve_until_the_new_ones_do() -> None:
    cluster = await priced()
    cluster.behaviours["llama"] = lambda pod: (
        loading(pod) if "mi300x" in pod["metadata"]["name"] else ready(pod)
    )
    price(cluster, "mi300x", "1")
    await cluster.resync()
    await cluster.wait(30 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb", "llama-mi300x"]
    assert cluster.conditions()["Available"] == ("True", "ReplicasReady")
    assert cluster.conditions()["Ready"] == ("False", "RollingOut")
    cluster.start_operator()
    await cluster.settle()
    await cluster.wait(5 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb", "llama-mi300x"]
    del cluster.behaviours["llama"]
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.conditions() == SETTLED


async def test_replicas_move_between_pools_of_the_same_cards_without_a_break() -> None:
    cluster = Cluster(*({**H100, "name": one, "labels": {"team": one}} for one in ("a", "b")))
    price(cluster, "a", "2")
    price(cluster, "b", "3")
    cluster.apply("llama", spec_of(replicas=2, placement={"rebalance": CHEAPER}))
    await cluster.settle()
    price(cluster, "b", "1")
    await cluster.resync()
    await cluster.wait(30 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert {pod["spec"]["nodeName"] for pod in cluster.pods()} == {"b-0"}
    assert cluster.conditions() == SETTLED
    assert place_of(cluster)["reason"] == "Rebalanced"
    strategy = cluster.deployment("llama-h100-sxm-80gb")["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


async def test_a_selector_of_another_pool_of_the_same_cards_moves_the_replicas() -> None:
    cluster = Cluster(*({**H100, "name": one, "labels": {"team": one}} for one in ("a", "b")))
    price(cluster, "a", "2")
    price(cluster, "b", "2")
    for team in ("a", "b"):
        selector = {"matchLabels": {"team": team}}
        cluster.apply("llama", spec_of(replicas=2, placement={"poolSelector": selector}))
        await cluster.settle()
        assert {pod["spec"]["nodeName"] for pod in cluster.pods()} == {f"{team}-0"}
        assert cluster.conditions() == SETTLED


# One at a time


async def test_one_object_migrates_at_a_time_the_oldest_first() -> None:
    names = ["c", "b", "a"]
    cluster = Cluster(MI300X, H100)
    price(cluster, "h100", "2")
    price(cluster, "mi300x", "2.10")
    for name in names:
        cluster.apply(name, spec_of(placement={"rebalance": CHEAPER}))
        await cluster.settle()
        cluster.clock.advance(1)
        cluster.behaviours[name] = lambda pod: (
            loading(pod) if "mi300x" in pod["metadata"]["name"] else ready(pod)
        )
    price(cluster, "mi300x", "1")
    await cluster.resync()
    await cluster.wait(30 * MINUTE)
    for position, name in enumerate(names):
        moving = [one for one in cluster.deployments() if one.endswith("-mi300x")]
        assert moving == sorted(f"{each}-mi300x" for each in names[: position + 1])
        cluster.start_operator()
        await cluster.resync()
        await cluster.wait(5 * MINUTE)
        assert [one for one in cluster.deployments() if one.endswith("-mi300x")] == moving
        del cluster.behaviours[name]
        await cluster.settle()
    assert cluster.deployments() == ["a-mi300x", "b-mi300x", "c-mi300x"]


async def test_the_next_object_migrates_when_the_migrating_one_is_deleted() -> None:
    cluster = await priced("a", "b")
    cluster.behaviours["a"] = lambda pod: (
        loading(pod) if "mi300x" in pod["metadata"]["name"] else ready(pod)
    )
    price(cluster, "mi300x", "1")
    await cluster.resync()
    await cluster.wait(30 * MINUTE)
    assert "b-mi300x" not in cluster.deployments()
    cluster.delete("a")
    await cluster.settle()
    assert cluster.deployments() == ["b-mi300x"]


# Falling back, and returning


async def test_replicas_fall_back_to_the_other_vendor_stay_there_and_report_it() -> None:
    cluster = await on_h100()
    cluster.leave("h100")
    await cluster.settle()
    assert cluster.status()["desiredReplicas"] == 1
    await cluster.wait(10 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]
    cluster.join(**ONE_H100)
    await cluster.resync()
    await cluster.wait(24 * 60 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.conditions() == SETTLED
    placement = place_of(cluster)
    assert placement["reason"] == "FellBack"
    cause = "left h100 at 2026-01-01T00:10:00Z: no node has the labels of spec.nodeSelector"
    assert cause in placement["message"]
    assert placement["message"].endswith("; returns: never (spec.placement.fallback.back)")


async def test_replicas_return_once_their_pool_has_had_capacity_for_the_window() -> None:
    fallback = {"after": "10m", "back": "WhenPossible"}
    cluster = await on_h100(fallback=fallback)
    cluster.leave("h100")
    await cluster.settle()
    await cluster.wait(10 * MINUTE)
    message = place_of(cluster)["message"]
    assert "returns: after it has had capacity for all replicas for 30m" in message
    cluster.join(**ONE_H100)
    await cluster.resync()
    assert cluster.status()["rebalance"]["reason"] == "Returned"
    await cluster.wait(20 * MINUTE)
    cluster.cordon("h100")
    await cluster.settle()
    cluster.cordon("h100", cordoned=False)
    await cluster.resync()
    await cluster.wait(20 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]
    await cluster.wait(10 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert place_of(cluster)["reason"] == "Returned"
    assert cluster.conditions() == SETTLED
    await cluster.wait(24 * 60 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]


async def test_replicas_that_fall_back_twice_return_to_the_first_pool() -> None:
    fallback = {"after": "10m", "back": "WhenPossible"}
    mi300x = {**MI300X, "gpusPerNode": 1}
    cluster = await served(
        ONE_H100, mi300x, {**L40S}, placement={"policy": "HighestThroughput", "fallback": fallback}
    )
    first = place_of(cluster)["pool"]
    cluster.leave("h100" if "h100" in first else "mi300x")
    await cluster.settle()
    await cluster.wait(10 * MINUTE)
    second = place_of(cluster)["pool"]
    cluster.leave("h100" if "h100" in second else "mi300x")
    await cluster.settle()
    await cluster.wait(10 * MINUTE)
    assert place_of(cluster)["pool"] == "nvidia-l40s"
    assert f"left {first} at" in place_of(cluster)["message"]
    cluster.join(**ONE_H100)
    cluster.join(**mi300x)
    await cluster.resync()
    await cluster.wait(30 * MINUTE)
    assert place_of(cluster)["pool"] == first


# What the annotation stores


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "[" * 10**5, '{"reason":"FellBack"}', '{"reason":7,"at":[]}']
)
async def test_an_unreadable_migration_annotation_is_ignored_and_moves_no_replica(
    text: str,
) -> None:
    cluster = await on_h100()
    cluster.leave("h100")
    await cluster.settle()
    await cluster.wait(10 * MINUTE)
    pods = cluster.pods()
    body = cluster.deployment("llama-mi300x")
    body["metadata"]["annotations"][ANNOTATION_MOVED] = text
    cluster.api.put(DEPLOYMENTS, body)
    cluster.start_operator()
    await cluster.settle()
    assert cluster.pods() == pods
    assert "left " not in place_of(cluster)["message"]
    assert cluster.conditions() == SETTLED


async def test_a_new_spec_clears_the_migration_annotation() -> None:
    cluster = await on_h100()
    cluster.leave("h100")
    await cluster.settle()
    await cluster.wait(10 * MINUTE)
    cluster.apply("llama", spec_of(placement={"policy": "FewestGPUs"}))
    await cluster.settle()
    assert place_of(cluster)["reason"] == "FewestGPUs"
    assert ANNOTATION_MOVED not in cluster.deployment("llama-mi300x")["metadata"]["annotations"]


async def test_a_change_of_the_migration_policy_places_no_replica_anew() -> None:
    cluster = await priced(rebalance={})
    pods = cluster.pods()
    cluster.apply("llama", spec_of(placement={"rebalance": CHEAPER, "fallback": {"after": "1s"}}))
    await cluster.settle()
    assert cluster.pods() == pods
    assert cluster.fleet.waiting_keys() == []
    assert Key(NAMESPACE, "llama") in cluster.fleet.known_keys()
