"""Weights come to further nodes before replicas do: to which, when, and what follows a failure."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.jobs import download_fails, downloaded, downloading
from tests.support.in_memory.serving import SETTLED
from tests.support.in_memory.weights import (
    COMMIT,
    NEWER,
    jobs,
    prefetching_spec,
    read_from_hub,
    with_disks,
)
from tonnage import delays
from tonnage.api.names import ANNOTATION_PREFETCH_NODE
from tonnage.kube.kinds import JOBS, NODES, PODS
from tonnage.kube.protocol import ConflictError, ForbiddenError, Object, TransientError
from tonnage.workloads.weights_job import POD_NAME

THREE = {**MI300X, "count": 3}
UPGRADE = {"upgradedAt": "2026-11-27T12:00:00Z"}
RETRY = delays.PREFETCH_RETRY


def nodes(cluster: Cluster) -> list[str]:
    """The nodes that Jobs prefetch to."""
    return sorted(job["metadata"]["annotations"][ANNOTATION_PREFETCH_NODE] for job in jobs(cluster))


def replica_nodes(cluster: Cluster) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in cluster.pods()}


def prefetch(cluster: Cluster) -> dict[str, Any]:
    reported: dict[str, Any] = cluster.status()["prefetch"]
    return reported


async def served(*groups: dict[str, Any], count: int = 1, **spec: Any) -> Cluster:
    """All replicas are ready, and downloads have ended."""
    cluster = with_disks(*(groups or (THREE,)))
    cluster.apply("llama", prefetching_spec(count, **spec))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    return cluster


def fail_on(cluster: Cluster, *bad: str, message: str = "the disk lacks 1 GiB") -> None:
    """Downloads end badly on these nodes, on all without any, and well on others."""

    def end(pod: Object) -> Object:
        affinity = pod["spec"]["affinity"]["nodeAffinity"]
        (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        (node,) = term["matchFields"][0]["values"]
        return download_fails(message, 3) if not bad or node in bad else downloaded(pod)

    cluster.behaviours[POD_NAME] = end


async def spare_nodes(cluster: Cluster) -> list[str]:
    """The nodes without a replica, as they are chosen one after the other."""
    cluster.apply("llama", prefetching_spec(0))
    await cluster.settle()
    everywhere = {node["metadata"]["name"] for node in cluster.api.objects(NODES)}
    return sorted(everywhere - replica_nodes(cluster))


def completed(cluster: Cluster) -> set[str]:
    """The nodes whose Jobs have succeeded."""
    return {
        job["metadata"]["annotations"][ANNOTATION_PREFETCH_NODE]
        for job in jobs(cluster)
        if job["status"].get("succeeded")
    }


async def test_a_job_for_each_node_brings_the_files_to_nodes_without_replicas() -> None:
    cluster = await served(count=2)
    assert prefetch(cluster) == {"nodes": 2, "readyNodes": 2}
    assert set(nodes(cluster)) == {"mi300x-0", "mi300x-1", "mi300x-2"} - replica_nodes(cluster)
    (first, _) = jobs(cluster)
    pod = first["spec"]["template"]["spec"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "model")
    assert volume["hostPath"]["path"] == f"/var/lib/tonnage/weights/{NAMESPACE}"
    (container,) = pod["containers"]
    folder = {"name": "FOLDER", "value": f"/models/acme--llama/{COMMIT}"}
    assert folder in container["env"]
    assert container["resources"] == {"requests": {"cpu": "100m", "memory": "512Mi"}}


async def test_no_more_nodes_than_requested() -> None:
    cluster = await served(count=1)
    assert len(nodes(cluster)) == 1
    assert replica_nodes(cluster).isdisjoint(nodes(cluster))


async def test_nothing_is_downloaded_ahead_before_all_replicas_are_ready() -> None:
    cluster = with_disks(THREE)
    cluster.behaviours["llama"] = lambda pod: {"phase": "Running"}
    cluster.apply("llama", prefetching_spec(1))
    await cluster.settle()
    assert jobs(cluster) == []
    assert prefetch(cluster) == {
        "nodes": 0,
        "readyNodes": 0,
        "message": "downloads begin once the spec is rolled out and all replicas are ready",
    }


async def test_a_paused_rollout_begins_no_download() -> None:
    cluster = await served()
    cluster.apply("llama", prefetching_spec(1, rollout={"paused": True}))
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    assert prefetch(cluster) == {
        "nodes": 1,
        "readyNodes": 1,
        "message": "no download begins while spec.rollout.paused is true",
    }


async def test_nothing_is_written_while_nothing_changes() -> None:
    cluster = await served(count=2)
    writes = cluster.api.write_count
    await cluster.wait(3600)
    await cluster.resync()
    assert cluster.api.write_count == writes


async def test_a_node_that_joins_gets_the_files() -> None:
    cluster = await served({**MI300X, "count": 1})
    assert prefetch(cluster) == {
        "nodes": 0,
        "readyNodes": 0,
        "message": "pool chat has 0 nodes without replicas and with free GPUs and disk for one;"
        " 1 are requested",
    }
    cluster.join(**{**MI300X, "count": 2})
    await cluster.wait(delays.PREFETCH_CHECK)
    assert nodes(cluster) == ["mi300x-1"]
    assert prefetch(cluster) == {"nodes": 1, "readyNodes": 1}


async def test_a_node_that_is_lost_is_replaced() -> None:
    cluster = await served()
    (node,) = nodes(cluster)
    cluster.cordon(node)
    await cluster.wait(delays.PREFETCH_CHECK)
    (other,) = nodes(cluster)
    assert other != node
    assert prefetch(cluster) == {"nodes": 1, "readyNodes": 1}


async def test_a_node_that_gets_a_replica_is_replaced() -> None:
    cluster = await served()
    cluster.apply("llama", prefetching_spec(1, replicas=8 * 2))
    await cluster.settle()
    assert replica_nodes(cluster).isdisjoint(nodes(cluster))
    assert prefetch(cluster)["nodes"] == 1


async def test_a_job_stays_when_other_pods_take_the_gpus_of_its_node() -> None:
    cluster = await served()
    (before,) = jobs(cluster)
    cluster.occupy(before["metadata"]["annotations"][ANNOTATION_PREFETCH_NODE], 8)
    await cluster.wait(delays.PREFETCH_CHECK)
    (after,) = jobs(cluster)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_full_nodes_are_not_chosen() -> None:
    cluster = with_disks(THREE)
    for node in ("mi300x-1", "mi300x-2"):
        cluster.occupy(node, 8)
    cluster.apply("llama", prefetching_spec(1))
    await cluster.settle()
    assert jobs(cluster) == []
    assert "0 nodes without replicas" in prefetch(cluster)["message"]


async def test_the_pool_that_replicas_are_to_go_to_gets_the_files_before_they_go() -> None:
    cheaper = {"rebalance": {"policy": "WhenCheaperBy", "stabilizationWindow": "30m"}}
    cluster = with_disks({**MI300X, "count": 1}, {**H100, "count": 2}, costs=("0.50", "9"))
    cluster.apply("llama", prefetching_spec(1, placement=cheaper))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert nodes(cluster) == []
    with_disks(cluster=cluster, costs=("9", "0.50"))
    cluster.look_at_all()
    await cluster.settle()
    assert nodes(cluster) == ["h100-0"]
    assert cluster.deployments() == ["llama-mi300x"]
    await cluster.wait(1900)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert replica_nodes(cluster).isdisjoint(nodes(cluster))


async def test_each_pool_that_shares_the_replicas_has_nodes_with_the_files() -> None:
    spread = {"spread": {"policy": "WhenShort"}}
    few = {"gpusPerNode": 1}
    cluster = with_disks({**MI300X, **few, "count": 2}, {**H100, **few, "count": 3})
    cluster.apply("llama", prefetching_spec(1, replicas=4, placement=spread))
    await cluster.settle()
    assert len(cluster.deployments()) == 2
    first, second = (each["pool"] for each in cluster.status()["placements"])
    (node,) = nodes(cluster)
    assert node not in replica_nodes(cluster)
    assert node.startswith({"chat": "mi300x", "h100": "h100"}[second])
    assert prefetch(cluster)["message"].startswith(f"pool {first} has 0 nodes without replicas")


async def test_no_password_of_a_proxy_is_in_the_status() -> None:
    cluster = with_disks({**MI300X, "count": 2})
    fail_on(cluster, message="ProxyError: http://reader:password@proxy:3128 answers 407")
    cluster.apply("llama", prefetching_spec(1))
    await cluster.settle()
    assert "http://***@proxy:3128 answers 407" in prefetch(cluster)["message"]


async def test_a_failure_is_reported_and_tried_again_an_hour_later() -> None:
    cluster = with_disks({**MI300X, "count": 2})
    fail_on(cluster)
    cluster.apply("llama", prefetching_spec(1))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    (before,) = jobs(cluster)
    reported = prefetch(cluster)
    assert (reported["nodes"], reported["readyNodes"]) == (1, 0)
    assert "the disk lacks 1 GiB" in reported["message"]
    assert f"(Job {before['metadata']['name']}); not tried again before" in reported["message"]
    await cluster.wait(RETRY - 100)
    assert [job["metadata"]["uid"] for job in jobs(cluster)] == [before["metadata"]["uid"]]
    cluster.behaviours[POD_NAME] = downloaded
    await cluster.wait(200)
    assert prefetch(cluster) == {"nodes": 1, "readyNodes": 1}


async def test_a_node_whose_download_failed_gives_its_place_to_another() -> None:
    cluster = with_disks(THREE)
    (bad, good) = await spare_nodes(cluster)
    fail_on(cluster, bad)
    cluster.apply("llama", prefetching_spec(1))
    await cluster.settle()
    assert (prefetch(cluster)["nodes"], prefetch(cluster)["readyNodes"]) == (1, 1)
    assert f"node {bad}: the disk lacks 1 GiB" in prefetch(cluster)["message"]
    assert completed(cluster) == {good}
    writes = cluster.api.write_count
    await cluster.wait(RETRY - 60)
    assert cluster.api.write_count == writes
    await cluster.wait(RETRY)
    assert prefetch(cluster) == {"nodes": 1, "readyNodes": 1}
    assert completed(cluster) == {good}


async def test_every_node_has_its_turn_however_many_fail_before_it() -> None:
    cluster = with_disks({**MI300X, "count": 7})
    *bad, good = await spare_nodes(cluster)
    fail_on(cluster, *bad)
    cluster.apply("llama", prefetching_spec(1))
    await cluster.settle()
    for _ in range(3):
        await cluster.wait(RETRY)
    assert prefetch(cluster)["readyNodes"] == 1
    assert completed(cluster) == {good}


async def test_a_cause_of_all_nodes_costs_few_jobs() -> None:
    cluster = with_disks({**MI300X, "count": 9})
    fail_on(cluster, message="the token is revoked")
    cluster.apply("llama", prefetching_spec(2))
    await cluster.settle()
    assert len(jobs(cluster)) == 4
    assert (prefetch(cluster)["nodes"], prefetch(cluster)["readyNodes"]) == (2, 0)
    writes = cluster.api.write_count
    await cluster.wait(RETRY - 60)
    assert cluster.api.write_count == writes
    cluster.behaviours[POD_NAME] = downloaded
    await cluster.wait(100)
    assert prefetch(cluster) == {"nodes": 2, "readyNodes": 2}


@pytest.mark.parametrize("cause", ["forbidden", "timeout", "conflict"])
async def test_a_job_that_cannot_be_written_leaves_the_others(cause: str) -> None:
    error = {
        "forbidden": ForbiddenError("no more Jobs"),
        "timeout": TransientError("timed out"),
        "conflict": ConflictError("name taken"),
    }[cause]
    cluster = with_disks({**MI300X, "count": 4})
    cluster.apply("llama", prefetching_spec(0))
    await cluster.settle()
    cluster.api.fail_next(None, error, kind=JOBS)
    cluster.apply("llama", prefetching_spec(3))
    await cluster.reconcile("llama")
    assert len(jobs(cluster)) == 2
    assert cluster.status()["prefetch"]["nodes"] == 2
    assert str(error) in prefetch(cluster)["message"]
    assert prefetch(cluster)["message"].startswith("a Job could not be written: ")
    await cluster.wait(delays.REQUEUE_UNWATCHED)
    assert prefetch(cluster) == {"nodes": 3, "readyNodes": 3}


async def test_several_jobs_that_cannot_be_written_are_counted() -> None:
    cluster = with_disks({**MI300X, "count": 4})
    cluster.apply("llama", prefetching_spec(0))
    await cluster.settle()
    for message in ("one", "two"):
        cluster.api.fail_next(None, TransientError(message), kind=JOBS)
    cluster.apply("llama", prefetching_spec(3))
    await cluster.reconcile("llama")
    assert prefetch(cluster)["message"] == "2 Jobs could not be written: one; two"


async def test_pods_of_jobs_that_cannot_be_listed_stop_nothing_of_the_object() -> None:
    cluster = with_disks(THREE)
    cluster.behaviours[POD_NAME] = downloading
    cluster.apply("llama", prefetching_spec(1))
    await cluster.settle()
    cluster.api.fail_next("list", TransientError("timed out"), kind=PODS, times=100)
    cluster.apply("llama", prefetching_spec(1, replicas=2))
    await cluster.settle()
    assert cluster.errors == []
    assert cluster.status()["readyReplicas"] == 2
    assert "not downloaded yet" in prefetch(cluster)["message"]


async def test_a_download_that_has_not_ended_is_named() -> None:
    cluster = with_disks(THREE)
    cluster.behaviours[POD_NAME] = downloading
    cluster.apply("llama", prefetching_spec(1))
    await cluster.settle()
    (job,) = jobs(cluster)
    (node,) = nodes(cluster)
    since, name = job["metadata"]["creationTimestamp"], job["metadata"]["name"]
    unready = f"node {node}: not downloaded yet (Job {name}, created at {since})"
    assert prefetch(cluster)["message"] == unready


async def test_another_commit_is_downloaded_once_replicas_load_it() -> None:
    cluster = await served()
    cluster.hub.answer = read_from_hub(NEWER)
    cluster.apply("llama", prefetching_spec(1, rollout=UPGRADE))
    await cluster.settle()
    (job,) = jobs(cluster)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert {"name": "COMMIT", "value": NEWER} in container["env"]
    assert prefetch(cluster) == {"nodes": 1, "readyNodes": 1}


async def test_a_user_can_turn_it_on_and_off_without_a_restart_of_a_pod() -> None:
    cluster = await served()
    running = {pod["metadata"]["uid"] for pod in cluster.pods()}
    deployment = cluster.deployment("llama-mi300x")
    for count in (0, 2):
        cluster.apply("llama", prefetching_spec(count))
        await cluster.settle()
        assert len(jobs(cluster)) == count
        assert ("prefetch" in cluster.status()) is bool(count)
    assert {pod["metadata"]["uid"] for pod in cluster.pods()} == running
    assert cluster.deployment("llama-mi300x")["spec"] == deployment["spec"]


@pytest.mark.parametrize("count", [0, 1])
async def test_a_job_that_waits_for_a_finalizer_is_deleted_once(count: int) -> None:
    cluster = await served()
    (job,) = jobs(cluster)
    job["metadata"] |= {"deletionTimestamp": "2026-11-27T12:00:00Z", "finalizers": ["acme.com/x"]}
    cluster.api.put(JOBS, job)
    cluster.cordon(job["metadata"]["annotations"][ANNOTATION_PREFETCH_NODE])
    cluster.apply("llama", prefetching_spec(count))
    await cluster.settle()
    assert len(jobs(cluster)) == count + 1


async def test_jobs_end_with_the_spec_that_asks_for_them() -> None:
    cluster = await served()
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert jobs(cluster) == []


async def test_without_the_right_to_make_jobs_the_replicas_serve() -> None:
    cluster = with_disks(THREE)
    forbidden = ForbiddenError("jobs are forbidden")
    cluster.api.fail_next("apply", forbidden, kind=JOBS, times=1000)
    cluster.apply("llama", prefetching_spec(1))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert jobs(cluster) == []
    assert prefetch(cluster) == {
        "nodes": 0,
        "readyNodes": 0,
        "message": "a Job could not be written: the API server forbids it: jobs are forbidden",
    }


async def test_without_the_right_to_delete_jobs_the_replicas_serve() -> None:
    cluster = await served()
    forbidden = ForbiddenError("jobs are forbidden")
    cluster.api.fail_next("delete", forbidden, kind=JOBS, times=1000)
    cluster.apply("llama", prefetching_spec(0))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert "prefetch" not in cluster.status()


async def test_a_download_takes_no_priority_over_pods_that_run() -> None:
    cluster = await served(podTemplate={"spec": {"priorityClassName": "high"}})
    (pod, *_) = cluster.pods()
    assert pod["spec"]["priorityClassName"] == "high"
    (job,) = jobs(cluster)
    assert "priorityClassName" not in job["spec"]["template"]["spec"]


async def test_a_name_that_another_object_has_stops_no_replica() -> None:
    cluster = await served()
    (job,) = jobs(cluster)
    cluster.apply("llama", prefetching_spec(0))
    await cluster.settle()
    name = job["metadata"]["name"]
    metadata = {"name": name, "namespace": NAMESPACE}
    cluster.api.put(JOBS, {**job, "metadata": metadata})
    cluster.apply("llama", prefetching_spec(1, replicas=2))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert prefetch(cluster)["readyNodes"] == 0
    assert prefetch(cluster)["message"].startswith(
        f"a Job could not be written: Job chat/{name} exists and is not controlled by this"
    )
    assert (
        cluster.api.object(JOBS, NAMESPACE, name)["metadata"]
        .keys()
        .isdisjoint({"ownerReferences", "labels"})
    )


async def test_a_job_that_expires_is_made_again_since_the_files_may_be_gone() -> None:
    cluster = await served()
    (before,) = jobs(cluster)
    await cluster.wait(86400 + 200)
    (after,) = jobs(cluster)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["metadata"]["name"] == before["metadata"]["name"]


async def test_the_files_stay_on_their_node_when_others_get_more_free_gpus() -> None:
    cluster = await served({**MI300X, "count": 3})
    (before,) = jobs(cluster)
    node = before["metadata"]["annotations"][ANNOTATION_PREFETCH_NODE]
    cluster.apply("other", spec_of(replicas=9))  # fills the first node, and takes GPUs of the next
    await cluster.settle()
    assert node in {pod["spec"].get("nodeName") for pod in cluster.pods("other")}
    for _ in range(3):
        await cluster.wait(86400 + 200)
        (after,) = jobs(cluster)
        assert after["metadata"]["annotations"][ANNOTATION_PREFETCH_NODE] == node
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        before = after
    assert prefetch(cluster) == {"nodes": 1, "readyNodes": 1}


@pytest.mark.parametrize("node", ["", "other"])
async def test_a_job_of_the_object_for_another_node_is_deleted(node: str) -> None:
    cluster = await served()
    (job,) = jobs(cluster)
    job["metadata"]["annotations"][ANNOTATION_PREFETCH_NODE] = node
    job["metadata"]["name"] = "llama-prefetch-other"
    cluster.api.put(JOBS, job)
    await cluster.settle()
    await cluster.wait(delays.PREFETCH_CHECK)
    assert [one["metadata"]["name"] for one in jobs(cluster)] != ["llama-prefetch-other"]
    assert len(jobs(cluster)) == 1
    assert all(pod["spec"] for pod in cluster.api.objects(PODS))


@pytest.mark.parametrize("node", ["a\nb", "x" * 10_000])
async def test_what_names_no_node_is_not_reported(node: str) -> None:
    cluster = await served()
    (job,) = jobs(cluster)
    cluster.behaviours[POD_NAME] = downloading
    cluster.apply("llama", prefetching_spec(1, rollout={"paused": True}))
    await cluster.settle()
    job["metadata"]["annotations"][ANNOTATION_PREFETCH_NODE] = node
    job["metadata"]["name"] = "llama-prefetch-other"
    cluster.api.put(JOBS, {**job, "status": {}})
    await cluster.resync()
    await cluster.settle()
    assert node not in prefetch(cluster)["message"]
