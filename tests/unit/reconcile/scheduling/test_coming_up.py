"""When a new object leaves a pool on which its replicas do not come up."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.in_memory.cluster import H100, L40S, MI300X, Cluster, spec_of
from tests.support.in_memory.controllers import Behaviour, crashing, loading, ready, without_image
from tests.support.in_memory.pricing import ONE_H100, place_of, price
from tests.support.in_memory.serving import SETTLED
from tests.support.production.quotas import resource_quota
from tests.support.production.webhooks import Webhook, adding_node_selector, denying
from tonnage.kube.kinds import PODS, RESOURCE_QUOTAS
from tonnage.kube.protocol import Object

Act = Callable[[Cluster], object]

MINUTE = 60.0
SOON = {"progressDeadline": "1m"}

NEVER_READY = {
    "crash loop": (crashing(message="bad driver"), "CrashLooping"),
    "image": (without_image, "ImagePullFailed"),
    "hang": (loading, "ContainersNotReady"),
}


def failing_on(accelerator: str, fault: Behaviour) -> Behaviour:
    """Pods of this accelerator's Deployment never become ready; all others do."""

    def behave(pod: Object) -> Object:
        return fault(pod) if accelerator in pod["metadata"]["name"] else ready(pod)

    return behave


def started(fault: Behaviour, *groups: Object, **placement: object) -> Cluster:
    """An object that H100 is chosen for, where its replicas do not come up."""
    cluster = Cluster(*groups)
    price(cluster, "h100", "1")
    cluster.behaviours["llama"] = failing_on("h100", fault)
    cluster.apply("llama", spec_of(placement=placement, rollout=SOON))
    return cluster


@pytest.mark.parametrize(("fault", "reason"), NEVER_READY.values(), ids=NEVER_READY)
async def test_replicas_that_do_not_come_up_leave_after_the_fallback_time(
    fault: Behaviour, reason: str
) -> None:
    cluster = started(fault, ONE_H100, MI300X)
    await cluster.settle()
    await cluster.wait(2 * MINUTE)
    (failed,) = cluster.status()["failedPlans"]
    assert (failed["pool"], failed["reason"]) == ("h100", reason)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "another pool is taken at 2026" in cluster.message("Ready")

    await cluster.wait(8 * MINUTE)
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-mi300x"]
    placement = place_of(cluster)
    assert placement["reason"] == "FellBack"
    assert f"its replicas did not come up: {reason}" in placement["message"]
    (h100,) = [one for one in cluster.status()["candidates"] if one["pool"] == "h100"]
    assert (h100["verdict"], h100["reason"]) == ("Rejected", "FailedBefore")
    assert reason in h100["message"]


async def test_replicas_that_fell_back_do_not_return_to_a_pool_where_they_failed() -> None:
    fallback = {"after": "2m", "back": "WhenPossible"}
    cluster = started(
        loading, ONE_H100, MI300X, fallback=fallback, rebalance={"stabilizationWindow": "1m"}
    )
    await cluster.settle()
    for _ in range(5):
        await cluster.wait(2 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]


async def test_replicas_return_once_the_pool_has_changed() -> None:
    fallback = {"after": "2m", "back": "WhenPossible"}
    cluster = started(
        loading, ONE_H100, MI300X, fallback=fallback, rebalance={"stabilizationWindow": "1m"}
    )
    await cluster.settle()
    await cluster.wait(3 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]
    del cluster.behaviours["llama"]
    price(cluster, "h100", "1", images={"vllm": "example.com/vllm-with-a-mended-driver:1"})
    for _ in range(3):
        await cluster.wait(2 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert cluster.conditions() == SETTLED


async def test_each_pool_is_tried_once_and_the_last_one_keeps_the_replicas() -> None:
    cluster = Cluster(ONE_H100, MI300X, {**L40S, "gpusPerNode": 8})
    cluster.behaviours["llama"] = loading
    cluster.apply("llama", spec_of(placement={"fallback": {"after": "2m"}}, rollout=SOON))
    await cluster.settle()
    tried = []
    for _ in range(12):
        await cluster.wait(MINUTE)
        tried.append(*cluster.deployments())
    pools = list(dict.fromkeys(tried))
    assert len(pools) == 3
    assert tried == sorted(tried, key=pools.index), "no pool is tried twice"
    assert {plan["pool"] for plan in cluster.status()["failedPlans"]} == {
        one["pool"] for one in cluster.status()["candidates"]
    }


async def test_replicas_stay_where_no_other_pool_has_capacity() -> None:
    cluster = started(loading, ONE_H100)
    await cluster.settle()
    await cluster.wait(30 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert cluster.conditions()["Ready"] == ("False", "ProgressDeadlineExceeded")
    assert "another pool" not in cluster.message("Ready")


async def test_a_change_that_fails_returns_to_the_plan_that_served_and_leaves_no_pool() -> None:
    cluster = Cluster({**H100, "gpusPerNode": 4}, MI300X)
    price(cluster, "h100", "1")
    cluster.apply("llama", spec_of(rollout=SOON))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    image = {"vllm": {"image": "example.com/vllm:typo"}}
    cluster.behaviours["llama"] = lambda pod: (
        without_image(pod)
        if pod["spec"]["containers"][0]["image"].endswith(":typo")
        else ready(pod)
    )
    cluster.apply("llama", spec_of(rollout=SOON, engine=image))
    await cluster.settle()
    for _ in range(5):
        await cluster.wait(10 * MINUTE)
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]


# Pods that cannot come


def refused(obstacle: Act, *groups: Object, **spec: object) -> Cluster:
    """An object that H100 is chosen for, where something keeps its pods away."""
    cluster = Cluster(*groups)
    price(cluster, "h100", "1")
    obstacle(cluster)
    cluster.apply("llama", spec_of(rollout=SOON, **spec))
    return cluster


def on_h100(webhook: Webhook) -> Webhook:
    """The webhook, for pods of the H100 pool alone."""
    resource = "nvidia.com/gpu"

    def asks_for_it(body: Object) -> bool:
        containers = body["spec"]["containers"]
        return resource in (containers[0]["resources"].get("limits") or {})

    return replace(webhook, only=asks_for_it)


OBSTACLES: dict[str, tuple[Act, str]] = {
    "a policy": (
        lambda cluster: cluster.webhooks.append(on_h100(denying("no driver is approved"))),
        "ChildRefused",
    ),
    "a node selector": (
        lambda cluster: cluster.webhooks.append(on_h100(adding_node_selector("absent", "true"))),
        "Unschedulable",
    ),
}


@pytest.mark.parametrize(("obstacle", "reason"), OBSTACLES.values(), ids=OBSTACLES)
async def test_replicas_that_cannot_come_leave_after_the_fallback_time(
    obstacle: Act, reason: str
) -> None:
    cluster = refused(obstacle, ONE_H100, MI300X)
    await cluster.settle()
    for _ in range(4):
        await cluster.wait(MINUTE)
    (failed,) = cluster.status()["failedPlans"]
    assert (failed["pool"], failed["reason"]) == ("h100", reason)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    await cluster.wait(8 * MINUTE)
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-mi300x"]
    assert f"its replicas did not come up: {reason}" in place_of(cluster)["message"]


@pytest.mark.parametrize(("obstacle", "reason"), OBSTACLES.values(), ids=OBSTACLES)
async def test_replicas_of_an_object_created_with_none_leave_such_a_pool(
    obstacle: Act, reason: str
) -> None:
    """For the Deployment controller, its rollout was complete before there was a replica."""
    cluster = refused(obstacle, ONE_H100, MI300X, replicas=0)
    await cluster.settle()
    cluster.clock.advance(MINUTE)
    cluster.apply("llama", spec_of(rollout=SOON, replicas=1))
    await cluster.settle()
    for _ in range(4):
        await cluster.wait(MINUTE)
    (failed,) = cluster.status()["failedPlans"]
    assert (failed["pool"], failed["reason"]) == ("h100", reason)
    await cluster.wait(8 * MINUTE)
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-mi300x"]


async def test_a_quota_that_every_pool_exceeds_makes_no_replica_move() -> None:
    def deny(cluster: Cluster) -> None:
        cluster.denied.add(RESOURCE_QUOTAS)  # else no pool is chosen
        cluster.administer(resource_quota({"pods": 0}))

    cluster = refused(
        deny,
        ONE_H100,
        MI300X,
        placement={"fallback": {"after": "2m"}},
    )
    await cluster.settle()
    for _ in range(10):
        await cluster.wait(2 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "failedPlans" not in cluster.status()
    cluster.withdraw(resource_quota({"pods": 0}))
    await cluster.settle()
    assert cluster.conditions() == SETTLED


@pytest.mark.parametrize(
    "template",
    [
        {"serviceAccountName": "missing"},
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]},
    ],
    ids=["an account that does not exist", "a claim that does not exist"],
)
async def test_what_is_missing_for_every_pool_makes_no_replica_move(template: Object) -> None:
    cluster = refused(
        lambda _: None,
        ONE_H100,
        MI300X,
        placement={"fallback": {"after": "2m"}},
        template={"spec": template},
    )
    await cluster.settle()
    for _ in range(10):
        await cluster.wait(2 * MINUTE)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "failedPlans" not in cluster.status()


@pytest.mark.parametrize(("obstacle", "reason"), OBSTACLES.values(), ids=OBSTACLES)
async def test_replicas_that_have_served_wait_on_their_pool(obstacle: Act, reason: str) -> None:
    cluster = Cluster({**H100, "gpusPerNode": 4}, MI300X)
    price(cluster, "h100", "1")
    cluster.apply("llama", spec_of(rollout=SOON, placement={"fallback": {"after": "2m"}}))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    obstacle(cluster)
    (pod,) = cluster.pods()
    cluster.api.remove(PODS, "chat", pod["metadata"]["name"])
    await cluster.settle()
    for _ in range(5):
        await cluster.wait(2 * MINUTE)
    assert cluster.conditions()["Ready"] == ("False", reason)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert "failedPlans" not in cluster.status()
