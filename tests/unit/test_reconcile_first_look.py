"""The look that follows a first child reads what was told of, and changes nothing that is there."""

from collections.abc import Callable

import pytest

from tests.support.cluster import MI300X, NAMESPACE, Cluster, spec_of
from tests.support.serving import SETTLED
from tonnage.api.names import LABEL_OWNER
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, PODS, SERVICES
from tonnage.kube.protocol import ConflictError, Kind
from tonnage.reconcile.key import Key

LLAMA = Key(NAMESPACE, "llama")
WHOLE_LOOK = {
    ("get", INFERENCE_DEPLOYMENTS),
    ("list", SERVICES),
    ("list", PODS),
    ("list", DEPLOYMENTS),
}


async def with_a_first_child() -> Cluster:
    """The PriorityClasses are known by an object that was there before."""
    cluster = Cluster(MI300X)
    cluster.apply("other", spec_of())
    await cluster.settle()
    cluster.apply("llama", spec_of())
    await look(cluster)
    assert cluster.deployments() == ["llama-mi300x", "other-mi300x"]
    cluster.api.calls.clear()
    return cluster


async def look(cluster: Cluster) -> None:
    cluster.tell_versions(LLAMA)
    await cluster.reconciler.reconcile(LLAMA)


def asked(cluster: Cluster) -> list[tuple[str, Kind]]:
    return [(call.verb, call.kind) for call in cluster.api.calls]


async def test_it_reads_the_deployments_alone() -> None:
    cluster = await with_a_first_child()
    await look(cluster)
    assert asked(cluster) == [
        ("list", DEPLOYMENTS),
        ("apply", SERVICES),
        ("apply_status", INFERENCE_DEPLOYMENTS),
    ]
    assert cluster.conditions()["Placed"] == ("True", "PoolChosen")
    await cluster.settle()
    assert cluster.conditions() == SETTLED


def pod_of(cluster: Cluster) -> None:
    labels = {LABEL_OWNER: "llama"}
    metadata = {"name": "llama-1", "namespace": NAMESPACE, "labels": labels}
    cluster.api.put(PODS, {"metadata": metadata, "spec": {"containers": []}})


def another_spec(cluster: Cluster) -> None:
    cluster.apply("llama", spec_of(replicas=2))


def watch_begun_anew(cluster: Cluster) -> None:
    cluster.looks.forget_all()
    cluster.newborns.forget_all()


CHANGES: dict[str, tuple[Callable[[Cluster], None], set[tuple[str, Kind]]]] = {
    "a pod": (pod_of, {("list", PODS), ("list", DEPLOYMENTS)}),
    "another spec": (another_spec, WHOLE_LOOK),
    "a watch begun anew": (watch_begun_anew, WHOLE_LOOK),
}


@pytest.mark.parametrize(("change", "want"), CHANGES.values(), ids=CHANGES)
async def test_it_reads_what_was_told_of_meanwhile(
    change: Callable[[Cluster], None], want: set[tuple[str, Kind]]
) -> None:
    cluster = await with_a_first_child()
    change(cluster)
    await look(cluster)
    assert {call for call in asked(cluster) if call[0] in ("get", "list")} == want


async def test_what_the_watch_has_not_told_yet_is_seen_by_the_next_look() -> None:
    cluster = await with_a_first_child()
    pod_of(cluster)
    await cluster.reconciler.reconcile(LLAMA)  # before any event
    assert ("list", PODS) not in asked(cluster)
    cluster.api.calls.clear()
    await look(cluster)
    assert set(asked(cluster)) >= WHOLE_LOOK


async def test_a_status_of_another_object_than_the_one_that_is_there_is_not_taken() -> None:
    cluster = await with_a_first_child()
    another_spec(cluster)
    with pytest.raises(ConflictError):
        await cluster.reconciler.reconcile(LLAMA)  # before any event
    assert not cluster.status()
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_it_changes_no_child() -> None:
    cluster = await with_a_first_child()
    (child,) = (
        found
        for found in cluster.api.objects(DEPLOYMENTS)
        if found["metadata"]["name"] == "llama-mi300x"
    )
    cluster.api.put(DEPLOYMENTS, {**child, "spec": {**child["spec"], "replicas": 7}})
    with pytest.raises(ConflictError, match="not all of the object was read"):
        await look(cluster)
    assert [verb for verb, _ in asked(cluster)] == ["list"]
    await cluster.settle()
    assert cluster.conditions() == SETTLED
