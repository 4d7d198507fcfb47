"""A paused rollout: running replicas stay as they are, and the rollout goes on where it stopped."""

from typing import Any

from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.controllers import loading, ready, without_image
from tests.support.in_memory.serving import SETTLED, served
from tonnage.kube.kinds import DEPLOYMENTS

PAUSED = {"rollout": {"paused": True}}
CHANGE: dict[str, Any] = {"engine": {"vllm": {"maxNumSeqs": 77}}}


def pods(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.pods()}


async def test_a_paused_converged_object_is_ready_and_reports_the_pause() -> None:
    cluster = await served(MI300X, replicas=2)
    before = cluster.deployment("llama-mi300x")["spec"]["template"]
    cluster.apply("llama", spec_of(replicas=2, **PAUSED))
    await cluster.settle()
    conditions = cluster.conditions()
    assert conditions["Ready"] == ("True", "ReplicasReady")
    assert conditions["Progressing"] == ("False", "RolloutPaused")
    spec = cluster.deployment("llama-mi300x")["spec"]
    assert spec["paused"] is True
    assert spec["template"] == before


async def test_a_change_waits_for_the_end_of_the_pause() -> None:
    cluster = await served(MI300X, replicas=2)
    before = pods(cluster)
    cluster.apply("llama", spec_of(replicas=2, **PAUSED, **CHANGE))
    await cluster.settle()
    assert pods(cluster) == before
    assert cluster.conditions()["Ready"] == ("False", "RolloutPaused")
    assert cluster.conditions()["Available"] == ("True", "ReplicasReady")
    assert "Stalled" not in cluster.conditions()
    assert cluster.status()["placements"][0]["readyReplicas"] == 2
    cluster.apply("llama", spec_of(replicas=2, **CHANGE))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert not before & pods(cluster)
    assert "paused" not in cluster.deployment("llama-mi300x")["spec"]


async def test_a_pause_of_the_deployment_by_somebody_else_is_ended() -> None:
    cluster = await served(MI300X, replicas=2)
    before = pods(cluster)
    body = cluster.deployment("llama-mi300x")
    cluster.api.put(DEPLOYMENTS, {**body, "spec": {**body["spec"], "paused": True}})
    cluster.apply("llama", spec_of(replicas=2, **CHANGE))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert not before & pods(cluster)


async def test_a_rollout_stops_halfway_and_goes_on() -> None:
    cluster = await served({**MI300X, "gpusPerNode": 2}, replicas=2)
    old = pods(cluster)
    cluster.behaviours["llama"] = lambda pod: (
        ready(pod) if pod["metadata"]["name"] in old else loading(pod)
    )
    cluster.apply("llama", spec_of(replicas=2, **CHANGE))
    await cluster.settle()
    halfway = pods(cluster)
    assert len(halfway & old) == 1
    cluster.apply("llama", spec_of(replicas=2, **PAUSED, **CHANGE))
    await cluster.settle()
    del cluster.behaviours["llama"]
    await cluster.settle()
    assert pods(cluster) == halfway
    assert cluster.conditions()["Progressing"] == ("False", "RolloutPaused")
    assert cluster.conditions()["Ready"] == ("False", "RolloutPaused")
    cluster.apply("llama", spec_of(replicas=2, **CHANGE))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert not old & pods(cluster)


async def test_no_replica_starts_on_another_pool_during_a_pause() -> None:
    cluster = await served(MI300X, H100, placement={"accelerators": ["mi300x"]})
    there = {"placement": {"accelerators": ["h100-sxm-80gb"]}}
    cluster.apply("llama", spec_of(**PAUSED, **there))
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    assert [one["name"] for one in cluster.status()["placements"]] == ["mi300x"]
    cluster.apply("llama", spec_of(**there))
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]


async def test_an_object_that_begins_paused_starts_nothing() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of(**PAUSED))
    await cluster.settle()
    assert cluster.deployments() == []
    assert cluster.conditions()["Ready"] == ("False", "RolloutPaused")
    assert cluster.fleet.view().snapshot().reservations == ()


async def test_scaling_works_during_a_pause() -> None:
    cluster = await served(MI300X)
    before = pods(cluster)
    cluster.apply("llama", spec_of(replicas=3, **PAUSED))
    await cluster.settle()
    assert len(pods(cluster)) == 3
    assert before < pods(cluster)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


async def test_a_pause_after_a_failed_rollout_keeps_the_failure() -> None:
    cluster = await served(MI300X)
    cluster.clock.advance(60)
    before = pods(cluster)
    cluster.behaviours["llama"] = lambda pod: (
        ready(pod) if pod["metadata"]["name"] in before else without_image(pod)
    )
    cluster.apply("llama", spec_of(**CHANGE))
    await cluster.settle()
    await cluster.wait(4000)
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    cluster.apply("llama", spec_of(**PAUSED, **CHANGE))
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "RolloutPaused")
    assert pods(cluster) == before
    cluster.apply("llama", spec_of(**CHANGE))
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    assert not cluster.deployment("llama-mi300x")["spec"].get("paused")
    assert pods(cluster) == before


async def test_a_restarted_operator_writes_nothing_during_a_pause() -> None:
    cluster = await served(MI300X)
    cluster.apply("llama", spec_of(**PAUSED, **CHANGE))
    await cluster.settle()
    writes = cluster.api.write_count
    cluster.start_operator()
    await cluster.settle()
    await cluster.resync()
    assert cluster.api.write_count == writes
