"""What lists show to a process that begins to lead spares it the first look at each object."""

import pytest

from tests.support.cluster import MI300X, NAMESPACE, Cluster, spec_of
from tests.support.serving import served
from tonnage.api.names import LABEL_MANAGED_BY, LABEL_OWNER, MANAGED_BY
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, PODS, PRIORITY_CLASSES
from tonnage.reconcile.key import Key
from tonnage.reconcile.listed import Listed, list_all

LLAMA = Key(NAMESPACE, "llama")
A_LOOK = ["get", "list", "list", "list"]


@pytest.fixture
async def cluster() -> Cluster:
    """One object that serves, and an operator that has just begun."""
    found = await served(MI300X, replicas=2)
    found.start_operator()
    return found


async def calls(cluster: Cluster) -> list[str]:
    known = len(cluster.api.calls)
    await cluster.reconciler.reconcile(LLAMA)
    return [call.verb for call in cluster.api.calls[known:] if call.kind != PRIORITY_CLASSES]


async def test_a_new_leader_reads_no_object_by_itself(cluster: Cluster) -> None:
    await cluster.reconciler.prime()
    assert await calls(cluster) == []


async def test_the_lists_show_what_a_look_sees(cluster: Cluster) -> None:
    await cluster.reconciler.prime()
    listed = cluster.looks.recall(LLAMA)
    cluster.looks.forget_all()
    assert await calls(cluster) == A_LOOK
    seen = cluster.looks.recall(LLAMA)
    assert listed is not None
    assert seen is not None
    assert len(seen.belongings[PODS]) == 2
    assert listed == seen


@pytest.mark.parametrize("version", ["4711", None])
async def test_what_was_told_while_lists_were_read_is_looked_at_live(
    cluster: Cluster, version: str | None
) -> None:
    uid = cluster.deployment("llama-mi300x")["metadata"]["uid"]
    cluster.looks.begin_all()
    listed = await list_all(cluster.api)
    cluster.looks.tell(LLAMA, uid, version)
    cluster.looks.end_all(listed.looks())
    assert await calls(cluster) == A_LOOK


async def test_events_of_what_the_lists_showed_are_no_news(cluster: Cluster) -> None:
    cluster.looks.begin_all()
    listed = await list_all(cluster.api)
    for kind in (INFERENCE_DEPLOYMENTS, DEPLOYMENTS, PODS):
        for found in cluster.api.objects(kind):
            metadata = found["metadata"]
            cluster.looks.tell(LLAMA, metadata["uid"], metadata["resourceVersion"])
    cluster.looks.end_all(listed.looks())
    assert await calls(cluster) == []


async def test_lists_that_no_watch_stood_beside_are_forgotten(cluster: Cluster) -> None:
    cluster.looks.begin_all()
    listed = await list_all(cluster.api)
    cluster.looks.forget_all()  # a watch was begun anew meanwhile
    cluster.looks.end_all(listed.looks())
    assert await calls(cluster) == A_LOOK


@pytest.mark.parametrize("is_over", [True, False])
async def test_a_live_look_is_newer_than_the_lists_beside_it(
    cluster: Cluster, is_over: bool
) -> None:
    cluster.looks.begin_all()
    listed = await list_all(cluster.api)
    cluster.looks.begin(LLAMA)
    if is_over:
        cluster.looks.end(LLAMA, None)  # it has deleted something, and no event told of it yet
    cluster.looks.end_all(listed.looks())
    assert cluster.looks.recall(LLAMA) is None


async def test_what_is_to_be_looked_at_live_is_not_taken_from_lists(cluster: Cluster) -> None:
    cluster.looks.begin_all()
    listed = await list_all(cluster.api)
    cluster.looks.forget(LLAMA)  # no event told of a write
    cluster.looks.end_all(listed.looks())
    assert await calls(cluster) == A_LOOK


async def test_an_older_list_of_a_kind_ends_what_is_under_way(cluster: Cluster) -> None:
    cluster.looks.begin_all()
    listed = await list_all(cluster.api)
    cluster.looks.listed(PODS, {})
    cluster.looks.end_all(listed.looks())
    assert await calls(cluster) == A_LOOK


async def test_only_what_is_at_rest_sleeps_through_events_of_what_was_read() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    await cluster.reconcile("llama")  # it has written, and has to look at what came of it
    assert not cluster.looks.is_at_rest(LLAMA)
    await cluster.settle()
    await cluster.reconciler.reconcile(LLAMA)
    assert cluster.looks.is_at_rest(LLAMA)
    cluster.looks.tell(LLAMA, "something", "new")
    assert not cluster.looks.is_at_rest(LLAMA)


async def test_what_belongs_to_nobody_is_left_out() -> None:
    cluster = Cluster(MI300X)
    for name, labels in (("stray", {}), ("orphan", {LABEL_OWNER: "gone"})):
        cluster.api.put(
            PODS,
            {
                "metadata": {
                    "name": name,
                    "namespace": NAMESPACE,
                    "labels": {LABEL_MANAGED_BY: MANAGED_BY, **labels},
                },
                "spec": {"containers": []},
            },
        )
    assert dict((await list_all(cluster.api)).looks()) == {}


def test_items_are_named_as_their_list_is_and_kept_without_their_managers() -> None:
    listed = Listed()
    itself = {"metadata": {"namespace": NAMESPACE, "name": "llama", "uid": "u"}}
    itself["metadata"]["resourceVersion"] = "7"
    managed = {**itself["metadata"], "managedFields": [{"manager": "kubectl"}]}
    listed.note(INFERENCE_DEPLOYMENTS, {"metadata": managed})
    ((key, look),) = listed.looks()
    named = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "InferenceDeployment"}
    assert (key, look.unpack().itself) == (LLAMA, named | itself)
