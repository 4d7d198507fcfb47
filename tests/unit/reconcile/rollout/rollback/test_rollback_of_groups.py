"""A failed rollout of replicas on several nodes rolls back to the template that served before."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.in_memory.approving import change
from tests.support.in_memory.cluster import H100, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import crashing, ready, without_image
from tests.support.in_memory.serving import SETTLED
from tonnage.api.names import ANNOTATION_PLACEMENT, ANNOTATION_TEMPLATE
from tonnage.kube.kinds import CONTROLLER_REVISIONS, LEADER_WORKER_SETS, PODS, REPLICA_SETS
from tonnage.kube.protocol import ForbiddenError, Object

HOUR = 3600
GOOD, BAD = "registry.local/vllm:1", "registry.local/vllm:2"
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
    " capacity of 79.18 GiB of which 1.00 GiB is free."
)
NODES = {**H100, "resources": {"rdma/ib": "1k"}}


def spec(image: str = GOOD, **fields: Any) -> Object:
    rollout = {"progressDeadline": "30m"}
    engine = {"vllm": {"image": image}}
    return spec_of(model="deepseek-v3", engine=engine, rollout=rollout, **fields)


def behave(pod: Object) -> Object:
    """Pods with the bad image do not start."""
    return without_image(pod) if image_of(pod) == BAD else ready(pod)


def image_of(pod: Object) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def images(cluster: Cluster) -> list[str]:
    """The images of leaders and workers."""
    return [image_of(pod) for pod in cluster.api.objects(PODS)]


def the_set(cluster: Cluster) -> Object:
    (body,) = cluster.api.objects(LEADER_WORKER_SETS)
    return body


async def serving(nodes: int = 4, **fields: Any) -> Cluster:
    """Replicas on two nodes each that serve with the good image, and fail with the bad one."""
    cluster = Cluster({**NODES, "count": nodes})
    cluster.has_leader_worker_set = True
    cluster.behaviours["llama"] = behave
    cluster.apply("llama", spec(**fields))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    cluster.clock.advance(HOUR)
    return cluster


async def failed(**fields: Any) -> Cluster:
    """The cluster some hours after a change to the bad image."""
    cluster = await serving(**fields)
    cluster.apply("llama", spec(BAD, **fields))
    await cluster.settle()
    assert BAD in images(cluster)
    await cluster.wait(HOUR)
    return cluster


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_bad_image_is_rolled_back_after_the_deadline(replicas: int) -> None:
    before = the_set(await serving(replicas=replicas))
    cluster = await failed(replicas=replicas)
    assert images(cluster) == [GOOD] * 2 * replicas
    after = the_set(cluster)
    assert after["spec"] == before["spec"]
    assert after["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    conditions = cluster.conditions()
    assert conditions["Ready"] == ("False", "RolledBack")
    assert conditions["Available"] == ("True", "ReplicasReady")
    (placement,) = cluster.status()["placements"]
    assert (placement["image"], placement["nodesPerReplica"]) == (GOOD, 2)


async def test_what_the_api_server_fills_in_replaces_no_group_of_the_former_template() -> None:
    """The name of the template is that of the rendered one, and not a digest of what came of it."""
    cluster = await serving()
    body = the_set(cluster)
    for role in ("leaderTemplate", "workerTemplate"):
        body["spec"]["leaderWorkerTemplate"][role]["spec"]["dnsPolicy"] = "ClusterFirst"
    cluster.api.put(LEADER_WORKER_SETS, body, manager="webhook")
    await cluster.settle()
    before = the_set(cluster)["spec"]["leaderWorkerTemplate"]
    cluster.apply("llama", spec(BAD))
    await cluster.settle()
    await cluster.wait(HOUR)
    after = the_set(cluster)["spec"]["leaderWorkerTemplate"]
    assert after["leaderTemplate"] == before["leaderTemplate"]
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")


async def test_a_failed_plan_is_not_tried_again() -> None:
    cluster = await failed()
    writes = cluster.api.write_count
    cluster.start_operator()
    await cluster.settle()
    await cluster.wait(24 * HOUR)
    await cluster.resync()
    assert cluster.api.write_count == writes
    assert images(cluster) == [GOOD, GOOD]


async def test_reverting_the_change_replaces_no_pod() -> None:
    cluster = await failed()
    pods = {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)}
    cluster.apply("llama", spec())
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)} == pods


async def test_settings_chosen_for_the_failed_plan_go_with_it() -> None:
    """A ControllerRevision does not keep the annotation about the placement."""
    cluster = await serving(nodes=2)
    before = the_set(cluster)["metadata"]["annotations"][ANNOTATION_PLACEMENT]
    killed = crashing(message=OUT_OF_MEMORY)
    cluster.behaviours["llama"] = lambda pod: killed(pod) if image_of(pod) == BAD else ready(pod)
    cluster.apply("llama", spec(BAD))
    adjusted = False
    for _ in range(60):
        cluster.clock.advance(2)
        await cluster.reconcile("llama")
        cluster.step()
        adjusted |= the_set(cluster)["metadata"]["annotations"][ANNOTATION_PLACEMENT] != before
    assert adjusted
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    assert the_set(cluster)["metadata"]["annotations"][ANNOTATION_PLACEMENT] == before
    assert "adjustments" not in cluster.status()["placements"][0]


NOT_TEMPLATES: dict[str, Callable[[Object], Any]] = {
    "nothing": lambda data: None,
    "a list": lambda data: [],
    "a number as templates": lambda data: {"spec": {"leaderWorkerTemplate": 7}},
    "another size": lambda data: with_templates(data, size=3),
    "no container": lambda data: with_templates(
        data, leaderTemplate={"metadata": {"labels": {}}, "spec": {"containers": []}}
    ),
    "a text as containers": lambda data: with_templates(
        data, workerTemplate={"metadata": {"labels": {}}, "spec": {"containers": "many"}}
    ),
    "another image": lambda data: with_image(data, "registry.local/other:1"),
}


def with_templates(data: Object, **changed: Any) -> Object:
    templates = data["spec"]["leaderWorkerTemplate"]
    return {"spec": {"leaderWorkerTemplate": {**templates, **changed}}}


def with_image(data: Object, image: str) -> Object:
    leader = data["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    containers = [{**leader["spec"]["containers"][0], "image": image}]
    return with_templates(
        data, leaderTemplate={**leader, "spec": {**leader["spec"], "containers": containers}}
    )


@pytest.mark.parametrize("form", NOT_TEMPLATES)
async def test_a_revision_of_another_form_is_not_rolled_back_to(form: str) -> None:
    cluster = await serving()
    cluster.apply("llama", spec(BAD))
    await cluster.settle()
    for revision in cluster.api.objects(CONTROLLER_REVISIONS):
        changed = {**revision, "data": NOT_TEMPLATES[form](revision["data"])}
        cluster.api.put(CONTROLLER_REVISIONS, changed, manager="stranger")
    await cluster.wait(HOUR)
    assert cluster.conditions()["Ready"] == ("False", "ImagePullFailed")
    assert set(images(cluster)) == {BAD}


async def test_a_revision_of_another_set_is_not_rolled_back_to() -> None:
    cluster = await serving()
    cluster.apply("llama", spec(BAD))
    await cluster.settle()
    for revision in cluster.api.objects(CONTROLLER_REVISIONS):
        metadata = revision["metadata"]
        cluster.api.remove(CONTROLLER_REVISIONS, NAMESPACE, metadata["name"])
        (owner,) = metadata["ownerReferences"]
        other = {**metadata, "ownerReferences": [{**owner, "uid": "other"}]}
        cluster.api.put(CONTROLLER_REVISIONS, {**revision, "metadata": other})
    await cluster.wait(HOUR)
    assert cluster.conditions()["Ready"] == ("False", "ImagePullFailed")


async def test_without_the_right_to_list_revisions_there_is_no_rollback() -> None:
    cluster = await serving()
    forbidden = ForbiddenError("controllerrevisions is forbidden")
    cluster.api.fail_next("list", forbidden, kind=CONTROLLER_REVISIONS, times=1000)
    cluster.apply("llama", spec(BAD))
    await cluster.settle()
    await cluster.wait(HOUR)
    assert cluster.conditions()["Ready"] == ("False", "ImagePullFailed")


async def test_revisions_are_listed_only_for_a_rollback() -> None:
    cluster = await serving()
    cluster.apply("llama", spec("registry.local/vllm:3"))
    await cluster.settle()
    kinds = (CONTROLLER_REVISIONS, REPLICA_SETS)
    assert not [call for call in cluster.api.calls if call.kind in kinds]


async def test_a_rollback_outlasts_zero_replicas() -> None:
    """At zero replicas the controller deletes all templates but the present one."""
    cluster = await failed(replicas=2)
    change(cluster, replicas=0)
    await cluster.settle()
    assert images(cluster) == []
    assert cluster.conditions()["Ready"] == ("True", "ScaledToZero")
    await cluster.wait(HOUR)
    change(cluster, replicas=2)
    await cluster.settle()
    assert images(cluster) == [GOOD] * 4
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
