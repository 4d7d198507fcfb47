"""Which losses keep a pool from running its replicas, and when these leave it for that."""

from collections.abc import Callable

import pytest

from tests.support.in_memory.cluster import H100, L40S, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.pricing import ONE_H100, SELECTORS, on_h100, place_of, price
from tests.support.in_memory.serving import SETTLED
from tonnage import delays
from tonnage.kube.kinds import ACCELERATOR_POOLS, PODS

MINUTE = 60.0


LOSSES = {
    "deleted": Cluster.leave,
    "cordoned": Cluster.cordon,
    "silent": Cluster.silence,
    "taken": lambda cluster, node: cluster.occupy(f"{node}-0", 1, "nvidia.com/gpu"),
}


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
async def test_a_pool_lost_before_any_pod_has_a_node_is_not_waited_for(
    lose: Callable[[Cluster, str], None],
) -> None:
    cluster = Cluster(ONE_H100, MI300X)
    price(cluster, "h100", "1")
    cluster.apply("llama", spec_of())
    await cluster.reconcile("llama")
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    lose(cluster, "h100")
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.conditions() == SETTLED
    assert place_of(cluster)["reason"] == "LowestCost", "no replica fell back"


async def test_a_pool_lost_before_any_pod_has_a_node_is_reported_at_once() -> None:
    cluster = Cluster(ONE_H100)
    cluster.apply("llama", spec_of())
    await cluster.reconcile("llama")
    cluster.leave("h100")
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "NoMatchingPool")
    assert "another pool is taken" not in cluster.message("Placed")
    cluster.join(**ONE_H100)
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_pods_that_have_long_waited_for_a_node_wait_for_a_lost_pool() -> None:
    cluster = Cluster(ONE_H100, MI300X)
    price(cluster, "h100", "1")
    cluster.apply("llama", spec_of())
    await cluster.reconcile("llama")
    cluster.leave("h100")
    cluster.clock.advance(delays.PROVISIONAL + 1)
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "another pool is taken at 2026-01-01T00:10:" in cluster.message("Placed")


async def test_a_drained_node_is_waited_for_as_long_as_the_user_said() -> None:
    cluster = await on_h100()
    cluster.cordon("h100")
    cluster.api.remove(PODS, NAMESPACE, cluster.pods()[0]["metadata"]["name"])
    await cluster.settle()
    assert "another pool is taken at 2026-01-01T00:10:00Z" in cluster.message("Placed")
    await cluster.wait(9 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    await cluster.wait(1 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]


async def test_replicas_on_a_node_that_does_not_answer_wait_from_then_on() -> None:
    cluster = await on_h100()
    cluster.silence("h100")
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    assert cluster.message("Placed").startswith(
        "pool h100 has replicas on nodes that do not answer (h100-0); another pool is taken at"
        " 2026-01-01T00:10:00Z (spec.placement.fallback.after); "
    )
    await cluster.wait(9 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    await cluster.wait(1 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]
    assert "it had replicas on nodes that do not answer" in place_of(cluster)["message"]


async def test_a_node_that_answers_again_finds_its_replicas() -> None:
    cluster = await on_h100()
    (pod,) = cluster.pods()
    for _ in range(5):
        cluster.silence("h100")
        await cluster.settle()
        await cluster.wait(9 * MINUTE)
        cluster.silence("h100", heard=True)
        await cluster.settle()
        assert cluster.conditions()["Ready"][0] == "True"
    assert [each["metadata"]["uid"] for each in cluster.pods()] == [pod["metadata"]["uid"]]


async def test_a_silent_node_is_no_shortage_where_the_pool_has_other_capacity() -> None:
    cluster = Cluster({**ONE_H100, "count": 2}, MI300X)
    price(cluster, "h100", "1")
    cluster.apply("llama", spec_of())
    await cluster.settle()
    cluster.silence("h100-0")
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("True", "PoolChosen")


async def test_of_several_replicas_one_on_a_silent_node_keeps_its_claim() -> None:
    cluster = Cluster({**ONE_H100, "count": 2}, MI300X)
    price(cluster, "h100", "1")
    cluster.apply("llama", spec_of(replicas=2))
    await cluster.settle()
    cluster.silence("h100-1")
    await cluster.settle()
    assert cluster.deployment("llama-h100-sxm-80gb")["spec"]["replicas"] == 2
    assert "replicas on nodes that do not answer (h100-1)" in cluster.message("Placed")
    await cluster.wait(10 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]


async def test_an_unreported_end_of_a_pod_on_a_lost_node_does_not_start_the_wait() -> None:
    cluster = await on_h100()
    await cluster.wait(24 * 60 * MINUTE)
    (pod,) = cluster.pods()
    cluster.cordon("h100")
    cluster.api.now = cluster.clock.now()
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    pod["metadata"]["ownerReferences"] = []  # its successor is created all the same
    cluster.api.put(PODS, pod)
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "another pool is taken at 2026-01-02T00:10:00Z" in cluster.message("Placed")


async def test_a_pool_that_others_have_filled_is_left() -> None:
    cluster = await on_h100()
    cluster.api.remove(PODS, NAMESPACE, cluster.pods()[0]["metadata"]["name"])
    cluster.occupy("h100-0", 1, "nvidia.com/gpu")
    await cluster.settle()
    await cluster.wait(10 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]
    assert "has 0 free of 1" in place_of(cluster)["message"]


async def test_a_pool_with_capacity_for_some_is_left_for_one_with_capacity_for_all() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 2})
    cluster.occupy("mi300x-0", 1)
    cluster.apply("llama", spec_of(replicas=2))
    await cluster.settle()
    await cluster.wait(24 * 60 * MINUTE)
    assert len(cluster.pods()) == 1
    cluster.join(**ONE_H100)
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"], "another pool with capacity for one only"
    cluster.join(**{**L40S, "gpusPerNode": 4})
    await cluster.settle()
    assert cluster.deployments() == ["llama-l40s"]
    assert "it had capacity for 1 of 2 replicas" in place_of(cluster)["message"]
    assert cluster.conditions() == SETTLED


async def test_an_object_scaled_to_zero_waits_for_no_pool() -> None:
    cluster = await on_h100()
    cluster.apply("llama", spec_of(replicas=0))
    await cluster.settle()
    cluster.occupy("h100-0", 1, "nvidia.com/gpu")
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert "llama-mi300x" in cluster.deployments()


async def test_a_pool_that_the_users_selector_does_not_select_any_more_is_left() -> None:
    cluster = Cluster(MI300X, H100)
    for pool in ("mi300x", "h100"):
        spec = {"nodeSelector": SELECTORS[pool]}
        cluster.api.put(
            ACCELERATOR_POOLS,
            {"metadata": {"name": pool, "labels": {"for": "chat"}}, "spec": spec},
        )
    cluster.watch()
    cluster.apply("llama", spec_of(placement={"poolSelector": {"matchLabels": {"for": "chat"}}}))
    await cluster.settle()
    (before,) = cluster.deployments()
    left = place_of(cluster)["pool"]
    cluster.api.put(
        ACCELERATOR_POOLS,
        {"metadata": {"name": left, "labels": {}}, "spec": {"nodeSelector": SELECTORS[left]}},
    )
    cluster.watch()
    await cluster.resync()
    assert cluster.deployments() == [before]
    await cluster.wait(10 * MINUTE)
    assert cluster.deployments() != [before]
    assert cluster.conditions() == SETTLED


# Nodes to come


async def grown(**placement: object) -> Cluster:
    """An object on a full pool that a node autoscaler may grow by a node, next to a full H100."""
    cluster = Cluster({**MI300X, "gpusPerNode": 2}, ONE_H100)
    cluster.occupy("mi300x-0", 2)
    cluster.occupy("h100-0", 1, "nvidia.com/gpu")
    price(cluster, "mi300x", "2", maxNodes=2)
    cluster.apply("llama", spec_of(replicas=2, placement=placement))
    await cluster.settle()
    return cluster


async def test_pods_wait_for_nodes_to_come_so_that_the_autoscaler_sees_them() -> None:
    cluster = await grown()
    assert [pod["spec"].get("nodeName") for pod in cluster.pods()] == [None, None]
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    assert "capacity for 0 of 2 replicas" in cluster.message("Placed")
    assert cluster.status()["desiredReplicas"] == 2
    cluster.join(**{**MI300X, "gpusPerNode": 2, "count": 2})
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_nodes_that_do_not_come_in_time_are_given_up_for_another_pool() -> None:
    cluster = await grown()
    await cluster.wait(24 * 60 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"], "no other pool has capacity"
    cluster.start_operator()
    await cluster.settle()
    cluster.free("h100-0")
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert place_of(cluster)["reason"] == "FellBack"
    assert "it had capacity for 0 of 2 replicas" in place_of(cluster)["message"]


async def test_nodes_to_come_are_waited_for_as_long_as_the_user_said() -> None:
    cluster = await grown()
    cluster.free("h100-0")
    await cluster.settle()
    await cluster.wait(9 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]
    await cluster.wait(1 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]


async def cheaper_that_must_grow(**placement: object) -> Cluster:
    """An object next to a free H100 and a full, cheaper pool that may grow by a node."""
    cluster = Cluster({**MI300X, "gpusPerNode": 2}, ONE_H100)
    cluster.occupy("mi300x-0", 2)
    price(cluster, "mi300x", "0.5", maxNodes=2)
    price(cluster, "h100", "3")
    cluster.apply("llama", spec_of(placement=placement))
    await cluster.settle()
    return cluster


async def test_free_gpus_are_taken_before_a_cheaper_pool_that_must_grow() -> None:
    cluster = await cheaper_that_must_grow()
    assert cluster.conditions() == SETTLED
    assert place_of(cluster)["pool"] == "h100"
    assert cluster.message("Placed").endswith("the lowest cost of 1 pool with capacity now")


async def test_a_user_may_prefer_the_growth_of_a_cheaper_pool() -> None:
    cluster = await cheaper_that_must_grow(preferGrowth=True)
    assert [pod["spec"].get("nodeName") for pod in cluster.pods()] == [None]
    assert cluster.deployments() == ["llama-mi300x"]
    cluster.join(**{**MI300X, "gpusPerNode": 2, "count": 2})
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert place_of(cluster)["pool"] == "mi300x"


async def test_growth_that_does_not_come_is_given_up_for_free_gpus() -> None:
    cluster = await cheaper_that_must_grow(preferGrowth=True)
    await cluster.wait(9 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]
    await cluster.wait(1 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert cluster.conditions() == SETTLED
    await cluster.wait(24 * 60 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]


# Pools where the model is not verified

A100 = {"name": "a100", "accelerator": "a100-sxm-80gb"}
FP8 = "llama-3.3-70b-fp8-dynamic"


async def fp8_on(cluster: Cluster, **spec: object) -> None:
    """vLLM computes FP8 in 16 bits on A100, which costs less than H100."""
    cluster.apply("llama", spec_of(FP8, **spec))
    await cluster.settle()


async def test_a_model_runs_where_it_is_verified_while_there_is_capacity() -> None:
    cluster = Cluster(A100, H100)
    await fp8_on(cluster)
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    reasons = {one["accelerator"]: one["reason"] for one in cluster.status()["candidates"]}
    assert reasons["a100-sxm-80gb"] == "NotVerified"


async def test_replicas_wait_for_the_verified_pool_while_some_run_there() -> None:
    cluster = Cluster(A100, {**H100, "gpusPerNode": 2})
    await fp8_on(cluster, replicas=2)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "capacity for 1 of 2 replicas" in cluster.message("Placed")
    await cluster.wait(24 * 60 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]


async def test_a_pool_without_verification_is_the_fallback_of_a_lost_one() -> None:
    cluster = Cluster(A100, H100)
    await fp8_on(cluster)
    cluster.leave("h100")
    await cluster.settle()
    await cluster.wait(10 * MINUTE)
    assert cluster.deployments() == ["llama-a100-sxm-80gb"]
    assert cluster.conditions() == SETTLED
