"""An InferencePool on request: made and taken away, and never in the way of the replicas."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import MI300X, NAMESPACE, Cluster, spec_of
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_POOLS, SERVICES
from tonnage.kube.protocol import (
    ApiError,
    ForbiddenError,
    InvalidError,
    KindMissingError,
    NotFoundError,
    Object,
    TransientError,
)
from tonnage.kube.rights import Right

PICKER = {"name": "llama-epp", "port": {"number": 9002}}
PATCH = Right("patch", INFERENCE_POOLS.group, INFERENCE_POOLS.plural, None)


def gateway(**picker: Any) -> Object:
    return {"inferencePool": {"endpointPickerRef": {**PICKER, **picker}}}


def asking(**picker: Any) -> Object:
    return spec_of(gateway=gateway(**picker))


async def cluster_with(spec: Object) -> Cluster:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec)
    await cluster.settle()
    return cluster


def pool(cluster: Cluster) -> Object:
    return cluster.api.object(INFERENCE_POOLS, NAMESPACE, "llama")


def pools(cluster: Cluster) -> list[str]:
    return [body["metadata"]["name"] for body in cluster.api.objects(INFERENCE_POOLS)]


def applied(cluster: Cluster) -> tuple[str, str] | None:
    return cluster.conditions().get("InferencePoolApplied")


def count_pool_calls(cluster: Cluster) -> int:
    return sum(call.kind == INFERENCE_POOLS for call in cluster.api.calls)


async def test_a_pool_requested_during_a_pause_is_deleted_with_the_request() -> None:
    cluster = await cluster_with(spec_of())
    paused = {"rollout": {"paused": True}}
    cluster.apply("llama", spec_of(gateway=gateway(), **paused))
    await cluster.settle()
    assert pools(cluster) == ["llama"]
    cluster.apply("llama", spec_of(**paused))
    await cluster.settle()
    assert pools(cluster) == []


async def test_the_pool_has_the_pods_and_the_requested_picker() -> None:
    cluster = await cluster_with(asking())
    live = pool(cluster)
    assert live["spec"] == {
        "selector": {"matchLabels": {"tonnage.dev/inferencedeployment": "llama"}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {
            "kind": "Service",
            "name": "llama-epp",
            "port": {"number": 9002},
            "failureMode": "FailClose",
        },
    }
    uid = cluster.inference_deployment()["metadata"]["uid"]
    assert [owner["uid"] for owner in live["metadata"]["ownerReferences"]] == [uid]
    assert applied(cluster) == ("True", "Applied")
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


async def test_an_object_without_a_pool_costs_no_request_and_has_no_condition() -> None:
    cluster = await cluster_with(spec_of())
    await cluster.resync()
    assert count_pool_calls(cluster) == 0
    assert applied(cluster) is None
    service = cluster.api.object(SERVICES, NAMESPACE, "llama")
    assert "tonnage.dev/inference-pool" not in service["metadata"]["annotations"]


async def test_a_converged_pool_is_not_written() -> None:
    cluster = await cluster_with(asking())
    before = len(cluster.api.effective_writes()), cluster.api.write_count
    await cluster.resync()
    assert (len(cluster.api.effective_writes()), cluster.api.write_count) == before


async def test_another_picker_and_a_foreign_edit_are_corrected() -> None:
    cluster = await cluster_with(asking())
    cluster.apply("llama", asking(failureMode="FailOpen"))
    await cluster.settle()
    assert pool(cluster)["spec"]["endpointPickerRef"]["failureMode"] == "FailOpen"
    body = pool(cluster)
    body["spec"]["targetPorts"] = [{"number": 9}]
    cluster.api.put(INFERENCE_POOLS, body)
    await cluster.resync()
    assert pool(cluster)["spec"]["targetPorts"] == [{"number": 8000}]


async def test_a_withdrawn_request_leaves_nothing_behind() -> None:
    cluster = await cluster_with(asking())
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert pools(cluster) == []
    assert applied(cluster) is None
    before = count_pool_calls(cluster)
    await cluster.resync()
    assert count_pool_calls(cluster) == before


async def test_a_request_can_be_withdrawn_also_without_capacity() -> None:
    cluster = await cluster_with(asking())
    cluster.apply("llama", spec_of("llama-3.1-405b-fp8", placement={"accelerators": ["l40s"]}))
    await cluster.settle()
    assert cluster.conditions()["Placed"][0] == "False"
    assert pools(cluster) == []


async def test_a_foreign_pool_is_left_alone() -> None:
    cluster = Cluster(MI300X)
    foreign = {"metadata": {"name": "llama", "namespace": NAMESPACE}, "spec": {"foreign": True}}
    cluster.api.put(INFERENCE_POOLS, foreign)
    cluster.apply("llama", asking())
    await cluster.settle()
    assert pool(cluster)["spec"] == {"foreign": True}
    assert applied(cluster) == ("False", "NameConflict")
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert pools(cluster) == ["llama"]
    assert applied(cluster) is None


async def test_a_recreated_object_waits_for_the_end_of_the_old_ones_pool() -> None:
    cluster = await cluster_with(asking())
    old = pool(cluster)["metadata"]["uid"]
    cluster.delete("llama")
    cluster.apply("llama", asking())
    leftover = pool(cluster)
    await cluster.settle()
    cluster.api.put(INFERENCE_POOLS, leftover)  # as if the garbage collector came late
    cluster.look_at_all()
    await cluster.reconcile("llama")
    assert applied(cluster) == ("Unknown", "NameConflict")
    cluster.api.collect_garbage()
    await cluster.wait(30)
    assert applied(cluster) == ("True", "Applied")
    assert pool(cluster)["metadata"]["uid"] != old


MISSING = KindMissingError("404 page not found")
DENIED = ForbiddenError("403", PATCH)


@pytest.mark.parametrize(
    ("verb", "error", "want"),
    [
        ("get", MISSING, ("False", "KindMissing")),
        ("apply", MISSING, ("False", "KindMissing")),
        ("get", DENIED, ("False", "Forbidden")),
        ("apply", DENIED, ("False", "Forbidden")),
        ("apply", ForbiddenError("exceeded quota"), ("False", "Forbidden")),
        ("apply", InvalidError("422"), ("False", "ChildRefused")),
        ("get", TransientError("500"), ("Unknown", "Unreachable")),
        ("apply", TransientError("500"), ("Unknown", "Unreachable")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ApiError) else None,
)
async def test_the_replicas_serve_whatever_error_the_pool_has(
    verb: Any, error: ApiError, want: tuple[str, str]
) -> None:
    cluster = Cluster(MI300X)
    cluster.api.fail_next(verb, error, kind=INFERENCE_POOLS, times=1000)
    cluster.apply("llama", asking())
    await cluster.settle()
    assert applied(cluster) == want
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    assert not cluster.errors
    cluster.api.clear_faults()
    await cluster.resync()
    assert applied(cluster) == ("True", "Applied")
    assert pools(cluster) == ["llama"]


async def test_a_passing_error_is_retried_soon() -> None:
    cluster = Cluster(MI300X)
    cluster.api.fail_next("apply", TransientError("500"), kind=INFERENCE_POOLS, times=1000)
    cluster.apply("llama", asking())
    await cluster.settle()
    cluster.api.clear_faults()
    await cluster.wait(30)
    assert applied(cluster) == ("True", "Applied")


async def test_a_lasting_error_is_reported_with_its_remedy() -> None:
    cluster = Cluster(MI300X)
    cluster.api.fail_next("get", MISSING, kind=INFERENCE_POOLS, times=1000)
    cluster.apply("llama", asking())
    await cluster.settle()
    message = cluster.message("InferencePoolApplied")
    assert "no inferencepools.inference.networking.k8s.io of version v1" in message
    assert "install its CRD" in message
    assert ("InferencePoolApplied", "KindMissing") in cluster.recorder.events


async def test_a_pool_that_may_not_be_deleted_is_remembered() -> None:
    cluster = await cluster_with(asking())
    cluster.api.fail_next("delete", DENIED, kind=INFERENCE_POOLS, times=1000)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert applied(cluster) == ("False", "Forbidden")
    cluster.api.clear_faults()
    await cluster.resync()
    assert pools(cluster) == []


async def test_an_invalid_spec_clears_no_status() -> None:
    cluster = await cluster_with(asking())
    cluster.apply("llama", spec_of(workload={"maxModelLen": -1}, gateway=gateway()))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "InvalidSpec")
    assert applied(cluster) == ("True", "Applied")
    assert pools(cluster) == ["llama"]


async def test_a_right_that_is_missing_elsewhere_clears_no_status() -> None:
    cluster = await cluster_with(asking())
    right = Right("patch", "apps", "deployments", None)
    cluster.api.fail_next("apply", ForbiddenError("403", right), kind=DEPLOYMENTS)
    cluster.apply("llama", spec_of(replicas=2, gateway=gateway()))
    await cluster.reconcile("llama")
    assert cluster.conditions()["Ready"] == ("False", "Forbidden")
    assert applied(cluster) == ("True", "Applied")


async def test_a_missing_object_is_no_missing_kind() -> None:
    assert not issubclass(NotFoundError, KindMissingError)
    cluster = await cluster_with(asking())
    cluster.api.remove(INFERENCE_POOLS, NAMESPACE, "llama")
    await cluster.resync()
    assert pools(cluster) == ["llama"]
    assert cluster.api.objects(DEPLOYMENTS)
