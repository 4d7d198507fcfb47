"""Changes of an object whose replicas run on several pools: one placement after the other."""

from tests.support.in_memory.approving import approve, change, proposed
from tests.support.in_memory.cluster import L40S
from tests.support.in_memory.controllers import loading, ready, without_image
from tests.support.in_memory.serving import SETTLED
from tests.support.in_memory.spreading import (
    H100_POOL,
    HOUR,
    MI300X_CHILD,
    MI300X_POOL,
    OTHER_ARGUMENTS,
    ask,
    by_pool,
    old,
    running,
    scarce,
    spread,
    two_pools,
)
from tonnage.api.names import LABEL_PLACEMENT


async def test_a_change_waits_for_every_placement_before_it() -> None:
    cluster = scarce()
    cluster.join(**{**L40S, "gpusPerNode": 1})
    await ask(cluster, 6)
    first, second, third = cluster.status()["placements"]
    cluster.clock.advance(HOUR)
    accelerator = second["accelerator"]
    cluster.behaviours["llama"] = lambda pod: (
        loading(pod) if not old(pod) and accelerator in pod["metadata"]["name"] else ready(pod)
    )
    await ask(cluster, 6, engine=OTHER_ARGUMENTS)
    changed = {pod["metadata"]["labels"][LABEL_PLACEMENT] for pod in cluster.pods() if not old(pod)}
    assert changed == {first["accelerator"], accelerator}
    assert third["accelerator"] not in changed


async def test_a_change_reaches_one_placement_after_the_other() -> None:
    cluster = await two_pools(4, rollout={"strategy": "Recreate"})
    cluster.clock.advance(HOUR)
    cluster.behaviours["llama"] = lambda pod: ready(pod) if old(pod) else loading(pod)
    cluster.apply("llama", spread(4, engine=OTHER_ARGUMENTS, rollout={"strategy": "Recreate"}))
    await cluster.settle()
    assert all(old(pod) for pod in cluster.pods() if "h100" in pod["metadata"]["name"])
    assert cluster.status()["readyReplicas"] >= 3
    assert cluster.conditions()["Ready"] == ("False", "RollingOut")
    cluster.behaviours["llama"] = ready
    await cluster.settle()
    assert not any(map(old, cluster.pods()))
    assert cluster.conditions() == SETTLED


async def test_a_failing_change_fails_on_the_first_placement_and_is_rolled_back() -> None:
    cluster = await two_pools(4)
    cluster.occupy("mi300x-0", 3)  # capacity for one more replica next to the running ones
    cluster.clock.advance(HOUR)
    cluster.behaviours["llama"] = lambda pod: ready(pod) if old(pod) else without_image(pod)
    cluster.apply("llama", spread(4, engine=OTHER_ARGUMENTS))
    await cluster.settle()
    await cluster.wait(HOUR)
    await cluster.wait(HOUR)
    assert cluster.conditions()["Degraded"] == ("True", "RolledBack")
    assert cluster.status()["readyReplicas"] == 4
    assert all(map(old, cluster.pods()))
    assert cluster.deployment(MI300X_CHILD)["spec"]["replicas"] == 2


async def test_a_pool_on_which_replicas_fail_gets_no_secondary_placement() -> None:
    cluster = scarce()
    cluster.behaviours["llama"] = lambda pod: (
        without_image(pod) if "h100" in pod["metadata"]["name"] else ready(pod)
    )
    await ask(cluster, 4)
    assert cluster.conditions()["Ready"][0] == "False"
    await cluster.wait(HOUR)
    await cluster.wait(HOUR)
    assert by_pool(cluster) == {MI300X_POOL: 2}
    assert [failed["pool"] for failed in cluster.status()["failedPlans"]] == [H100_POOL]
    assert "Degraded" not in cluster.conditions()


async def test_a_person_approves_each_placement() -> None:
    cluster = scarce()
    cluster.apply("llama", spread(4, approval="Manual"))
    await cluster.settle()
    assert proposed(cluster)["pool"] == MI300X_POOL
    approve(cluster)
    await cluster.settle()
    assert by_pool(cluster) == {MI300X_POOL: 2}
    assert cluster.conditions()["Placed"] == ("False", "AwaitingApproval")
    waiting = proposed(cluster)
    assert (waiting["pool"], waiting["replicas"]) == (H100_POOL, 2)
    assert "2 replicas in addition to the running ones" in waiting["message"]
    approve(cluster)
    await cluster.settle()
    assert by_pool(cluster) == {MI300X_POOL: 2, H100_POOL: 2}
    assert cluster.conditions() == SETTLED
    assert proposed(cluster) is None


async def test_a_secondary_placement_goes_on_until_a_person_approves_its_change() -> None:
    cluster = scarce()
    cluster.apply("llama", spread(4, approval="Manual"))
    await cluster.settle()
    for _ in range(2):
        approve(cluster)
        await cluster.settle()
    change(cluster, engine=OTHER_ARGUMENTS)
    await cluster.settle()
    approve(cluster)
    await cluster.settle()
    assert [old(pod) for pod in cluster.pods()] == [True, True, False, False]
    assert proposed(cluster)["pool"] == H100_POOL
    approve(cluster)
    await cluster.settle()
    assert not any(map(old, cluster.pods()))
    assert cluster.conditions() == SETTLED


async def test_while_paused_both_placements_stay_and_scaling_is_followed() -> None:
    cluster = await two_pools(4)
    before = running(cluster)
    change(cluster, rollout={"paused": True})
    await cluster.settle()
    assert running(cluster) == before
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    change(cluster, replicas=3)
    await cluster.settle()
    assert len(running(cluster)) == 3
