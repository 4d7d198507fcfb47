"""The loop against an API in memory: the actions of a user, and the state once it has converged."""

import pytest

from tests.support.in_memory.cluster import (
    H100,
    L40S,
    MI300X,
    NAMESPACE,
    Cluster,
    spec_of,
    write_count,
)
from tests.support.in_memory.end_state import end_state
from tests.support.in_memory.serving import SETTLED, served
from tonnage.api.names import ANNOTATION_PLACEMENT, LABEL_OWNER
from tonnage.kube.kinds import (
    DEPLOYMENTS,
    SERVICES,
)

# The pipeline, and that a converged object causes no write


async def test_an_applied_object_becomes_ready_pods_on_the_cheapest_pool() -> None:
    cluster = await served(MI300X, H100, replicas=2)
    assert cluster.deployments() == ["llama-mi300x"]
    assert [pod["spec"]["nodeName"] for pod in cluster.pods()] == ["mi300x-0", "mi300x-0"]
    assert cluster.status()["readyReplicas"] == 2
    assert cluster.status()["observedGeneration"] == 1


async def test_a_second_reconcile_of_a_settled_object_writes_nothing() -> None:
    cluster = await served(MI300X, H100)
    before = cluster.api.write_count
    assert await cluster.reconcile("llama") is None
    assert cluster.api.write_count == before


async def test_a_restarted_operator_writes_nothing_to_a_settled_object() -> None:
    cluster = await served(MI300X, H100)
    before = cluster.api.write_count
    cluster.start_operator()
    await cluster.settle()
    assert cluster.api.write_count == before


async def test_the_users_object_is_never_written_but_for_its_status() -> None:
    cluster = await served(MI300X)
    body = cluster.inference_deployment()
    assert body["spec"] == spec_of()
    assert body["metadata"]["generation"] == 1
    assert not body["metadata"].keys() & {"annotations", "labels", "finalizers"}


async def test_a_mount_of_one_volume_at_two_paths_causes_no_endless_writes() -> None:
    mounts = [{"name": "data", "mountPath": path, "subPath": path[1:]} for path in ("/a", "/b")]
    template = {"spec": {"volumes": [{"name": "data", "emptyDir": {}}], "volumeMounts": mounts}}
    cluster = await served(MI300X, template=template)
    before = cluster.api.write_count
    await cluster.reconcile("llama")
    assert cluster.api.write_count == before


# Changes of the spec


async def test_a_longer_context_is_placed_again_and_rolled_out() -> None:
    cluster = await served(L40S)
    cluster.join(**MI300X)
    longer = {"maxModelLen": 131072, "concurrency": 12, "inputTokens": 100_000}
    cluster.apply("llama", spec_of(workload=longer))
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.conditions() == SETTLED
    assert cluster.status()["observedGeneration"] == 2


async def test_a_change_that_needs_no_new_pod_rolls_none() -> None:
    cluster = await served(MI300X)
    pods = [pod["metadata"]["uid"] for pod in cluster.pods()]
    cluster.apply("llama", spec_of(workload={"concurrency": 3, "inputTokens": 100}))
    await cluster.settle()
    assert [pod["metadata"]["uid"] for pod in cluster.pods()] == pods
    assert write_count(cluster.api) == 3  # the demand that the pods are recorded for, among them
    assert cluster.status()["observedGeneration"] == 2


async def test_scaling_to_zero_and_back() -> None:
    cluster = await served(MI300X)
    cluster.apply("llama", spec_of(replicas=0))
    await cluster.reconcile("llama")
    assert cluster.conditions()["Progressing"] == ("True", "RollingOut")
    assert cluster.conditions()["Ready"] == ("False", "RollingOut")
    await cluster.settle()
    assert cluster.pods() == []
    assert cluster.conditions()["Placed"] == ("True", "ScaledToZero")
    assert cluster.conditions()["Ready"] == ("True", "ScaledToZero")
    assert cluster.conditions()["Available"] == ("False", "ScaledToZero")
    cluster.apply("llama", spec_of(replicas=2))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert len(cluster.pods()) == 2


async def test_an_invalid_spec_changes_nothing_and_a_valid_one_recovers() -> None:
    cluster = await served(MI300X)
    before, pods = cluster.deployment("llama-mi300x"), cluster.pods()
    cluster.apply("llama", spec_of(workload={"maxModelLen": -1}))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "InvalidSpec")
    assert cluster.conditions()["Ready"] == ("False", "InvalidSpec")
    assert cluster.conditions()["Stalled"] == ("True", "InvalidSpec")
    assert cluster.deployment("llama-mi300x") == before
    assert cluster.pods() == pods
    assert [placement["name"] for placement in cluster.status()["placements"]] == ["mi300x"]
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert cluster.pods() == pods


async def test_a_rule_that_does_not_exist_is_refused_with_the_nearest() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of(placement={"allow": ["Nvfp4OnRocm"]}))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "InvalidSpec")
    message = cluster.message("Accepted")
    assert message.startswith("spec.placement.allow[0]: 'Nvfp4OnRocm' is no compatibility rule; ")
    assert "did you mean: " in message


# Edits of the children


@pytest.mark.parametrize("kind", [DEPLOYMENTS, SERVICES])
async def test_a_deleted_child_is_recreated(kind: object) -> None:
    cluster = await served(MI300X)
    want = end_state(cluster.api)
    name = {DEPLOYMENTS: "llama-mi300x", SERVICES: "llama"}[kind]
    cluster.api.remove(kind, NAMESPACE, name)
    await cluster.settle()
    assert end_state(cluster.api) == want


async def test_children_that_were_edited_by_hand_are_repaired() -> None:
    cluster = await served(MI300X)
    want = end_state(cluster.api)
    body = cluster.deployment("llama-mi300x")
    body["spec"]["replicas"] = 5
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "other:1"
    body["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%"}}
    cluster.api.put(DEPLOYMENTS, body)
    await cluster.settle()
    assert end_state(cluster.api) == want


@pytest.mark.parametrize(
    "annotation",
    ["", "{}", "[1]", '{"pool": 7}', "[" * 100_000, '{"pool":"x","tensorParallelSize":-3}'],
    ids=["empty", "of nothing", "a list", "a number for a name", "nested", "negative"],
)
async def test_an_unreadable_placement_annotation_is_rewritten_and_moves_no_replica(
    annotation: str,
) -> None:
    cluster = await served(MI300X, H100)
    want, pods = end_state(cluster.api), cluster.pods()
    body = cluster.deployment("llama-mi300x")
    body["metadata"]["annotations"][ANNOTATION_PLACEMENT] = annotation
    cluster.api.put(DEPLOYMENTS, body)
    cluster.start_operator()  # the reservations are read from the annotations too
    await cluster.settle()
    assert end_state(cluster.api) == want
    assert cluster.pods() == pods


async def test_a_label_removed_from_a_child_is_restored() -> None:
    cluster = await served(MI300X)
    want = end_state(cluster.api)
    body = cluster.deployment("llama-mi300x")
    del body["metadata"]["labels"][LABEL_OWNER]
    cluster.api.put(DEPLOYMENTS, body)
    await cluster.reconcile("llama")
    await cluster.settle()
    assert end_state(cluster.api) == want
