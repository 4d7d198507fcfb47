"""A Job that waits for an image or a token is made again when the spec names another one."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.support.in_memory.cluster import MI300X, Cluster
from tests.support.in_memory.jobs import download_fails, downloading
from tests.support.in_memory.serving import SETTLED
from tests.support.in_memory.weights import cached_spec, jobs, on_hub, prefetching_spec, with_disks
from tonnage import delays
from tonnage.api.names import ANNOTATION_JOB_INPUTS
from tonnage.kube.kinds import JOBS, SECRETS
from tonnage.kube.protocol import Object
from tonnage.workloads.weights_job import POD_NAME

Change = Callable[[Object], None]


def other_image(spec: Object) -> None:
    spec["engine"] = {"vllm": {"image": "registry.example.com/vllm:v0.32.0"}}


def other_token(spec: Object) -> None:
    spec["model"]["source"]["huggingFace"]["tokenSecretRef"] = {"name": "other", "key": "token"}


CHANGES = pytest.mark.parametrize("change", [other_image, other_token])
KINDS = pytest.mark.parametrize("kind", ["claim", "node"])


def new_cluster(kind: str) -> Cluster:
    cluster = on_hub(MI300X) if kind == "claim" else with_disks({**MI300X, "count": 2})
    secret = {"metadata": {"name": "other", "namespace": "chat"}, "data": {"token": "aGY="}}
    cluster.api.put(SECRETS, secret)
    return cluster


def apply(cluster: Cluster, kind: str, change: Change | None = None) -> None:
    spec = cached_spec() if kind == "claim" else prefetching_spec(1)
    if change is not None:
        change(spec)
    cluster.apply("llama", spec)


def cannot_pull(pod: Object) -> Object:
    """The status of a pod whose image does not exist."""
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    container = {"name": "download", "state": {"waiting": waiting}}
    return {"phase": "Pending", "containerStatuses": [container]}


async def begun(kind: str, status: Callable[[Object], Object]) -> tuple[Cluster, Object]:
    """A cluster with a Job whose pods have this status."""
    cluster = new_cluster(kind)
    cluster.behaviours[POD_NAME] = status
    apply(cluster, kind)
    await cluster.settle()
    (job,) = jobs(cluster)
    return cluster, job


def inputs_of(job: Object) -> tuple[str, list[Mapping[str, Any]]]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return container["image"], [one for one in container["env"] if one["name"] == "HF_TOKEN"]


@KINDS
@CHANGES
@pytest.mark.parametrize("status", [cannot_pull, downloading])
async def test_an_unfinished_job_follows_the_spec(
    kind: str, change: Change, status: Callable[[Object], Object]
) -> None:
    cluster, before = await begun(kind, status)
    apply(cluster, kind, change)
    await cluster.settle()
    (after,) = jobs(cluster)
    assert after["metadata"]["name"] == before["metadata"]["name"]
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert inputs_of(after) != inputs_of(before)
    writes = cluster.api.write_count
    await cluster.resync()
    await cluster.wait(300)
    assert cluster.api.write_count == writes


@KINDS
@CHANGES
async def test_a_job_that_has_succeeded_stays(kind: str, change: Change) -> None:
    cluster = new_cluster(kind)
    apply(cluster, kind)
    await cluster.settle()
    (before,) = jobs(cluster)
    apply(cluster, kind, change)
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert [job["metadata"]["uid"] for job in jobs(cluster)] == [before["metadata"]["uid"]]


@KINDS
@CHANGES
async def test_a_job_that_has_failed_keeps_its_pause(kind: str, change: Change) -> None:
    cluster, before = await begun(kind, lambda pod: download_fails("refused", 3))
    apply(cluster, kind, change)
    await cluster.settle()
    assert [job["metadata"]["uid"] for job in jobs(cluster)] == [before["metadata"]["uid"]]
    await cluster.wait(delays.PREFETCH_RETRY + 1)
    (after,) = jobs(cluster)
    assert inputs_of(after) != inputs_of(before)


@KINDS
async def test_the_next_job_waits_for_the_end_of_the_first(kind: str) -> None:
    cluster, job = await begun(kind, cannot_pull)
    job["metadata"]["finalizers"] = ["acme.com/x"]
    cluster.api.put(JOBS, job)
    apply(cluster, kind, other_token)
    await cluster.settle()
    (ending,) = jobs(cluster)
    assert ending["metadata"]["uid"] == job["metadata"]["uid"]
    assert "deletionTimestamp" in ending["metadata"]
    del ending["metadata"]["finalizers"]
    cluster.api.put(JOBS, ending)
    await cluster.settle()
    await cluster.wait(delays.PREFETCH_CHECK)
    (after,) = jobs(cluster)
    assert inputs_of(after) != inputs_of(job)


@KINDS
@pytest.mark.parametrize("text", [None, "", "[]", "{", '{"pool": "other", "engine": "vllm"}'])
async def test_a_job_that_does_not_say_its_inputs_goes_on(kind: str, text: str | None) -> None:
    """As one of an operator that wrote none, or one for a pool that was chosen before."""
    cluster, job = await begun(kind, downloading)
    annotations = job["metadata"]["annotations"]
    annotations.pop(ANNOTATION_JOB_INPUTS)
    if text is not None:
        annotations[ANNOTATION_JOB_INPUTS] = text
    cluster.api.put(JOBS, job)
    apply(cluster, kind, other_token)
    await cluster.settle()
    assert [one["metadata"]["uid"] for one in jobs(cluster)] == [job["metadata"]["uid"]]


@KINDS
async def test_an_image_that_a_webhook_rewrites_is_no_change(kind: str) -> None:
    cluster, job = await begun(kind, downloading)
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror.example.com/vllm"
    cluster.api.put(JOBS, job)
    await cluster.resync()
    await cluster.wait(300)
    assert [one["metadata"]["uid"] for one in jobs(cluster)] == [job["metadata"]["uid"]]


@KINDS
async def test_kueue_does_not_hold_the_pods_of_a_job(kind: str) -> None:
    cluster = new_cluster(kind)
    own = {"team": "chat"}
    kueue = {"kueue.x-k8s.io/queue-name": "gpus", "kueue.x-k8s.io/priority-class": "high"}
    metadata = {"labels": {**own, **kueue}, "annotations": {**own, "kueue.x-k8s.io/x": "y"}}
    spec = cached_spec() if kind == "claim" else prefetching_spec(1)
    cluster.apply("llama", {**spec, "podTemplate": {"metadata": metadata}})
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    (job,) = jobs(cluster)
    pod = job["spec"]["template"]["metadata"]
    assert not kueue.keys() & {*pod["labels"], *job["metadata"]["labels"]}
    assert own.items() <= pod["labels"].items()
    assert pod["annotations"] == own
