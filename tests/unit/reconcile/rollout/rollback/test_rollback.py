"""A failed rollout rolls back to the plan that served before, and is not tried again."""

from typing import Any

import pytest

from tests.support.in_memory.approving import approve, change
from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.controllers import (
    Behaviour,
    crashing,
    loading,
    ready,
    serves,
    without_image,
)
from tests.support.in_memory.pricing import price
from tests.support.in_memory.serving import SETTLED, served
from tests.support.in_memory.spreading import by_pool, spread
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    REPLICA_SETS,
)
from tonnage.kube.protocol import ForbiddenError, Object

MINUTE, HOUR = 60, 3600
GOOD, BAD = "registry.local/vllm:1", "registry.local/vllm:2"
KV_SPACE = (
    "ValueError: To serve at least one request with the model's max seq len (8192), (4.00 GiB KV"
    " cache is needed, which is larger than the available KV cache memory (1.00 GiB)."
)


def image(name: str, **spec: Any) -> Object:
    """A spec with this image."""
    return spec_of(engine={"vllm": {"image": name}}, **spec)


def only_with(name: str, behaviour: Behaviour) -> Behaviour:
    """Pods with the image have the behaviour, all others serve."""

    def behave(pod: Object) -> Object:
        running = pod["spec"]["containers"][0]["image"]
        return behaviour(pod) if running == name else ready(pod)

    return behave


def images(cluster: Cluster) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in cluster.pods()]


async def serving(*groups: dict[str, object], **spec: Any) -> Cluster:
    """A cluster whose object serves with the good image, and fails with the bad one."""
    cluster = await served(*groups, engine={"vllm": {"image": GOOD}}, **spec)
    cluster.behaviours["llama"] = only_with(BAD, without_image)
    cluster.clock.advance(HOUR)  # pods are distinguished by their creation time
    return cluster


async def test_the_plan_that_served_is_kept_in_status() -> None:
    cluster = await serving(MI300X, replicas=2)
    last = cluster.status()["lastReadyPlan"]
    assert (last["generation"], last["placement"]["image"]) == (1, GOOD)
    assert (last["placement"]["pool"], last["placement"]["replicas"]) == ("amd-mi300x", 2)
    assert "failedPlans" not in cluster.status()


@pytest.mark.parametrize("gpus", [2, 3], ids=["on a full pool", "with GPUs to spare"])
async def test_a_bad_image_is_rolled_back_after_the_deadline(gpus: int) -> None:
    cluster = await serving({**MI300X, "gpusPerNode": gpus}, replicas=2)
    before = cluster.deployment("llama-mi300x")["spec"]["template"]
    cluster.apply("llama", image(BAD, replicas=2))
    await cluster.settle()
    assert BAD in images(cluster)
    assert cluster.status()["readyReplicas"] >= 1
    await cluster.wait(HOUR)
    assert images(cluster) == [GOOD, GOOD]
    assert cluster.deployment("llama-mi300x")["spec"]["template"] == before
    conditions = cluster.conditions()
    assert conditions["Ready"] == ("False", "RolledBack")
    assert conditions["Degraded"] == ("True", "RolledBack")
    assert conditions["Stalled"] == ("True", "RolledBack")
    assert conditions["Available"] == ("True", "ReplicasReady")
    assert "not found" in cluster.message("Degraded")
    assert BAD in cluster.message("Ready")
    placement = cluster.status()["placements"][0]
    assert (placement["image"], placement["reason"]) == (GOOD, "RolledBack")
    (failed,) = cluster.status()["failedPlans"]
    assert (failed["image"], failed["reason"]) == (BAD, "ImagePullFailed")
    assert ("Ready", "RolledBack") in cluster.recorder.events


async def test_a_failed_plan_is_not_tried_again() -> None:
    cluster = await serving(MI300X)
    cluster.apply("llama", image(BAD))
    await cluster.settle()
    await cluster.wait(HOUR)
    writes = cluster.api.write_count
    cluster.start_operator()
    await cluster.settle()
    await cluster.wait(24 * HOUR)
    await cluster.resync()
    assert cluster.api.write_count == writes
    assert images(cluster) == [GOOD]


async def test_a_lack_of_memory_does_not_wait_for_the_deadline() -> None:
    cluster = await serving(MI300X)
    killed = crashing(137, "OOMKilled")
    cluster.behaviours["llama"] = only_with(BAD, killed)
    cluster.apply("llama", image(BAD))
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    assert images(cluster) == [GOOD]


async def test_a_retry_after_a_lack_of_memory_stops_no_serving_replica() -> None:
    """Split over more GPUs the model would need all of the pool, or leave one replica without."""
    cluster = await serving({**MI300X, "gpusPerNode": 4}, replicas=3)
    cluster.behaviours["llama"] = only_with(BAD, crashing(1, message=KV_SPACE))
    cluster.apply("llama", image(BAD, replicas=3))
    for _ in range(60):
        cluster.clock.advance(2)
        await cluster.reconcile("llama")
        cluster.step()
        assert sum(map(serves, cluster.pods())) >= 2
    assert cluster.conditions()["Degraded"] == ("True", "RolledBack")
    assert images(cluster) == [GOOD] * 3
    assert {plan["reason"] for plan in cluster.status()["failedPlans"]} == {"OutOfMemory"}


CHANGES = {
    "another spec": lambda cluster: cluster.apply("llama", image("registry.local/vllm:3")),
    "a restart that a user asks for": lambda cluster: cluster.apply(
        "llama", image(BAD, rollout={"restartedAt": "2026-02-01T00:00:00Z"})
    ),
    "another pool in the fleet": lambda cluster: cluster.join(**H100),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_failed_plan_is_tried_again_in_other_circumstances(change: str) -> None:
    cluster = await serving(MI300X)
    cluster.apply("llama", image(BAD))
    await cluster.settle()
    await cluster.wait(HOUR)
    del cluster.behaviours["llama"]
    CHANGES[change](cluster)
    await cluster.resync()
    assert cluster.conditions() == SETTLED
    assert GOOD not in images(cluster)
    assert "failedPlans" not in cluster.status()


async def test_scaling_is_followed_and_does_not_retry_a_failed_plan() -> None:
    cluster = await serving(MI300X)
    cluster.apply("llama", image(BAD))
    await cluster.settle()
    await cluster.wait(HOUR)
    cluster.apply("llama", image(BAD, replicas=3))
    await cluster.settle()
    assert images(cluster) == [GOOD] * 3
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    assert cluster.status()["desiredReplicas"] == 3
    (reservation,) = cluster.fleet.view().snapshot().reservations
    assert reservation.replicas == 3


async def test_reverting_the_change_is_ready_at_once() -> None:
    cluster = await serving(MI300X, replicas=2)
    cluster.apply("llama", image(BAD, replicas=2))
    await cluster.settle()
    await cluster.wait(HOUR)
    pods = {pod["metadata"]["name"] for pod in cluster.pods()}
    cluster.apply("llama", image(GOOD, replicas=2))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert {pod["metadata"]["name"] for pod in cluster.pods()} == pods
    assert "failedPlans" not in cluster.status()


async def test_without_an_earlier_plan_the_failure_is_only_reported() -> None:
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = without_image
    cluster.apply("llama", image(BAD))
    await cluster.settle()
    await cluster.wait(HOUR)
    assert cluster.conditions()["Ready"] == ("False", "ImagePullFailed")
    assert "Degraded" not in cluster.conditions()
    assert len(cluster.status()["failedPlans"]) == 1
    del cluster.behaviours["llama"]
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert "failedPlans" not in cluster.status()


async def test_a_plan_that_served_and_fails_later_is_no_failed_rollout() -> None:
    cluster = await serving(MI300X)
    cluster.behaviours["llama"] = crashing(1, message=KV_SPACE)
    await cluster.settle()
    await cluster.wait(HOUR)
    assert "failedPlans" not in cluster.status()
    assert cluster.conditions()["Ready"] == ("False", "OutOfMemory")


async def test_a_late_failure_after_a_lost_status_is_no_failed_rollout() -> None:
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = loading
    cluster.apply("llama", image(GOOD))
    await cluster.settle()
    cluster.behaviours["llama"] = ready
    await cluster.wait(MINUTE)
    assert cluster.conditions() == SETTLED
    cluster.behaviours["llama"] = crashing(1, message=KV_SPACE)
    cluster.step()
    body = cluster.inference_deployment()
    cluster.api.put(INFERENCE_DEPLOYMENTS, {**body, "status": {}})
    await cluster.settle()
    assert "lastReadyPlan" not in cluster.status()
    assert "failedPlans" not in cluster.status()


@pytest.mark.parametrize("seconds", [0, HOUR], ids=["the same second", "an hour"])
async def test_a_plan_that_was_scaled_to_zero_before_it_served_can_fail(seconds: int) -> None:
    """The Deployment controller reports a rollout of no replica as complete, to the second."""
    cluster = await serving(MI300X, replicas=2)
    cluster.apply("llama", image(BAD, replicas=0))
    await cluster.settle()
    cluster.clock.advance(seconds)
    cluster.apply("llama", image(BAD, replicas=2))
    await cluster.settle()
    assert images(cluster) == [BAD, BAD]
    await cluster.wait(HOUR)
    assert images(cluster) == [GOOD, GOOD]
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")


async def test_an_object_created_with_zero_replicas_tries_other_plans() -> None:
    cluster = Cluster(MI300X, H100)
    cluster.behaviours["llama"] = crashing(1, message=KV_SPACE)
    cluster.apply("llama", spec_of(replicas=0))
    await cluster.settle()
    cluster.clock.advance(HOUR)
    cluster.apply("llama", spec_of(replicas=1))
    await cluster.settle()
    tried = {(one["pool"], one["tensorParallelSize"]) for one in cluster.status()["failedPlans"]}
    assert tried >= {("amd-mi300x", 1), ("amd-mi300x", 2), ("nvidia-h100-sxm-80gb", 1)}


async def test_a_silent_node_is_no_failure_of_a_plan() -> None:
    cluster = await serving({**MI300X, "gpusPerNode": 1})
    cluster.behaviours["llama"] = only_with(BAD, loading)
    cluster.apply("llama", image(BAD))
    await cluster.settle()
    assert images(cluster) == [BAD]
    cluster.silence("mi300x")
    await cluster.wait(HOUR)
    await cluster.resync()
    assert "failedPlans" not in cluster.status()


async def test_a_shortage_of_gpus_is_no_failure_of_a_plan() -> None:
    cluster = await serving({**MI300X, "gpusPerNode": 2})
    cluster.occupy("mi300x-0", 1)
    cluster.cordon("mi300x")
    cluster.apply("llama", image("registry.local/vllm:3", rollout={"strategy": "Surge"}))
    await cluster.settle()
    await cluster.wait(HOUR)
    assert "failedPlans" not in cluster.status()


async def test_a_server_that_never_answers_has_until_the_deadline_too() -> None:
    cluster = await serving(MI300X)
    cluster.behaviours["llama"] = only_with(BAD, loading)
    cluster.apply("llama", image(BAD, rollout={"progressDeadline": "10m"}))
    await cluster.settle()
    await cluster.wait(599)
    assert cluster.conditions()["Ready"][1] != "RolledBack"
    await cluster.wait(2)
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    assert "within 600 s" in cluster.message("Ready")


async def spread_and_rolled_back() -> Cluster:
    """Two replicas on each of two pools, of a spec whose last change has failed."""
    cluster = Cluster({**MI300X, "gpusPerNode": 2}, {**H100, "gpusPerNode": 2})
    cluster.behaviours["llama"] = only_with(BAD, without_image)
    cluster.apply("llama", spread(4, engine={"vllm": {"image": GOOD}}))
    await cluster.settle()
    assert by_pool(cluster) == {"amd-mi300x": 2, "nvidia-h100-sxm-80gb": 2}
    cluster.clock.advance(HOUR)
    cluster.apply("llama", spread(4, engine={"vllm": {"image": BAD}}))
    await cluster.settle()
    await cluster.wait(2 * HOUR)
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    return cluster


async def test_spread_replicas_all_count_after_a_rollback() -> None:
    cluster = await spread_and_rolled_back()
    assert sorted(images(cluster)) == [GOOD] * 4
    assert cluster.status()["desiredReplicas"] == 4
    (budget,) = cluster.api.objects(POD_DISRUPTION_BUDGETS)
    assert budget["spec"]["minAvailable"] == 3


@pytest.mark.parametrize("replicas", [3, 2, 1, 0])
async def test_spread_replicas_are_scaled_down_after_a_rollback(replicas: int) -> None:
    cluster = await spread_and_rolled_back()
    change(cluster, replicas=replicas)
    await cluster.settle()
    assert len(cluster.pods()) == replicas
    assert cluster.status()["desiredReplicas"] == replicas


async def test_secondary_replicas_that_failed_too_give_way_after_a_rollback() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 2}, {**H100, "gpusPerNode": 4})
    cluster.behaviours["llama"] = only_with(BAD, without_image)
    cluster.apply("llama", spread(5, engine={"vllm": {"image": GOOD}}))
    await cluster.settle()
    cluster.clock.advance(HOUR)
    change(cluster, replicas=0)
    await cluster.settle()
    cluster.clock.advance(HOUR)
    change(cluster, replicas=5, engine={"vllm": {"image": BAD}})
    await cluster.settle()
    assert images(cluster) == [BAD] * 5
    await cluster.wait(2 * HOUR)
    await cluster.wait(2 * HOUR)
    assert images(cluster) == [GOOD] * 2
    assert cluster.conditions()["Degraded"] == ("True", "RolledBack")


@pytest.mark.parametrize("is_rolled_back", [True, False], ids=["after", "before"])
async def test_a_pool_may_be_renamed_around_a_rollback(is_rolled_back: bool) -> None:
    cluster = await serving({**MI300X, "gpusPerNode": 2}, replicas=2)
    cluster.apply("llama", image(BAD, replicas=2))
    await cluster.settle()
    if is_rolled_back:
        await cluster.wait(HOUR)
        assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    price(cluster, "mi300x", "2")  # declares a pool for the same nodes
    await cluster.resync()
    await cluster.wait(2 * HOUR)
    assert images(cluster) == [GOOD, GOOD]
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    assert cluster.status()["placements"][0]["pool"] == "mi300x"


async def test_another_pool_that_fails_leaves_the_first_one_serving() -> None:
    cluster = await served(MI300X, H100, replicas=2, placement={"accelerators": ["mi300x"]})
    pods = {pod["metadata"]["name"] for pod in cluster.pods()}
    cluster.behaviours["llama"] = lambda pod: (
        without_image(pod) if "h100" in pod["metadata"]["name"] else ready(pod)
    )
    cluster.apply("llama", spec_of(replicas=2, placement={"accelerators": ["h100-sxm-80gb"]}))
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb", "llama-mi300x"]
    await cluster.wait(HOUR)
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    assert {pod["metadata"]["name"] for pod in cluster.pods()} == pods
    assert [placement["name"] for placement in cluster.status()["placements"]] == ["mi300x"]


async def rolled_back_to_another_pool(replicas: int = 2) -> Cluster:
    """The pool that the spec asks for has failed, and the one before serves."""
    first, second = (
        {"placement": {"accelerators": [name]}} for name in ("mi300x", "h100-sxm-80gb")
    )
    cluster = await served(MI300X, H100, replicas=replicas, **first)
    cluster.behaviours["llama"] = lambda pod: (
        without_image(pod) if "h100" in pod["metadata"]["name"] else ready(pod)
    )
    cluster.apply("llama", spec_of(replicas=replicas, **second))
    await cluster.settle()
    await cluster.wait(HOUR)
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    return cluster


async def test_a_rollback_to_another_pool_outlasts_zero_replicas() -> None:
    cluster = await rolled_back_to_another_pool()
    change(cluster, replicas=0)
    await cluster.settle()
    assert cluster.pods() == []
    assert cluster.conditions()["Ready"] == ("True", "ScaledToZero")
    assert cluster.conditions()["Progressing"] == ("False", "Settled")
    assert not {"Degraded", "Stalled"} & cluster.conditions().keys()
    (placement,) = cluster.status()["placements"]
    assert (placement["name"], placement["replicas"]) == ("mi300x", 0)
    cluster.start_operator()
    await cluster.wait(HOUR)
    change(cluster, replicas=2)
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.status()["readyReplicas"] == 2
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")


async def test_a_rollback_needs_no_approval() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", image(GOOD, approval="Manual"))
    await cluster.settle()
    plan = approve(cluster)
    await cluster.settle()
    cluster.behaviours["llama"] = only_with(BAD, without_image)
    body = cluster.inference_deployment()
    vllm = {"vllm": {"image": BAD}}
    cluster.apply("llama", {**body["spec"], "engine": vllm})
    await cluster.settle()
    approve(cluster)
    await cluster.settle()
    await cluster.wait(HOUR)
    assert images(cluster) == [GOOD]
    assert cluster.conditions()["Degraded"] == ("True", "RolledBack")
    assert cluster.status()["plan"] == plan


async def test_an_edit_of_the_rolled_back_deployment_is_undone() -> None:
    cluster = await serving(MI300X)
    cluster.apply("llama", image(BAD))
    await cluster.settle()
    await cluster.wait(HOUR)
    body = cluster.deployment("llama-mi300x")
    (container,) = body["spec"]["template"]["spec"]["containers"]
    container["image"] = "registry.local/other:1"
    cluster.api.put(DEPLOYMENTS, body)
    await cluster.settle()
    assert images(cluster) == [GOOD]


async def test_without_the_right_to_list_replica_sets_there_is_no_rollback() -> None:
    cluster = await serving(MI300X)
    forbidden = ForbiddenError("replicasets is forbidden")
    cluster.api.fail_next("list", forbidden, kind=REPLICA_SETS, times=1000)
    cluster.apply("llama", image(BAD))
    await cluster.settle()
    await cluster.wait(HOUR)
    assert cluster.conditions()["Ready"] == ("False", "ImagePullFailed")


async def test_old_replica_sets_are_listed_only_for_a_rollback() -> None:
    cluster = await serving(MI300X)
    cluster.apply("llama", image("registry.local/vllm:3"))
    await cluster.settle()
    assert not [call for call in cluster.api.calls if call.kind is REPLICA_SETS]


async def test_status_has_no_variable_of_the_plan_that_served() -> None:
    secret = {"env": [{"name": "API_KEY", "value": "sk-very-secret"}]}
    cluster = await served(MI300X, engine={"vllm": {"image": GOOD, **secret}})
    cluster.behaviours["llama"] = only_with(BAD, crashing(1, message="ValueError: sk-very-secret"))
    cluster.apply("llama", spec_of(engine={"vllm": {"image": BAD, **secret}}))
    await cluster.settle()
    await cluster.wait(HOUR)
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    assert "sk-very-secret" not in str(cluster.status())


async def test_a_lost_status_costs_one_more_try() -> None:
    cluster = await serving(MI300X)
    cluster.apply("llama", image(BAD))
    await cluster.settle()
    await cluster.wait(HOUR)
    body = cluster.inference_deployment()
    cluster.api.put(INFERENCE_DEPLOYMENTS, {**body, "status": {}})
    await cluster.settle()
    assert BAD in images(cluster)


async def test_a_failed_voluntary_migration_is_not_repeated_and_the_object_stays_ready() -> None:
    cheaper = {"policy": "WhenCheaperBy", "stabilizationWindow": "10m"}
    cluster = Cluster(MI300X, H100)
    declare(cluster, "0.50")
    cluster.apply("llama", spec_of(placement={"rebalance": cheaper}))
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    cluster.behaviours["llama"] = lambda pod: (
        without_image(pod) if "mi300x" in pod["metadata"]["name"] else ready(pod)
    )
    declare(cluster, "9")
    await cluster.resync()
    await cluster.wait(601)
    assert cluster.deployments() == ["llama-h100-sxm-80gb", "llama-mi300x"]
    for _ in range(3):
        await cluster.wait(HOUR)
        await cluster.resync()
        assert cluster.deployments() == ["llama-h100-sxm-80gb"]
        assert cluster.conditions() == SETTLED
    assert [plan["accelerator"] for plan in cluster.status()["failedPlans"]] == ["mi300x"]
    assert "rebalance" not in cluster.status()


def declare(cluster: Cluster, dollars: str) -> None:
    """Declare the price of an H100 in dollars an hour."""
    selector = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    spec = {"nodeSelector": selector, "costPerGPUHour": dollars}
    cluster.api.put(ACCELERATOR_POOLS, {"metadata": {"name": "h100"}, "spec": spec})
    cluster.look_at_all()
