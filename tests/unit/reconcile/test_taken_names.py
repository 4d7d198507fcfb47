"""Names of foreign objects: an object that cannot serve frees its GPUs, one that served stays."""

import pytest

from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of, write_count
from tests.support.in_memory.controllers import loading
from tests.support.in_memory.serving import SETTLED, served
from tonnage.kube.kinds import DEPLOYMENTS, LEADER_WORKER_SETS, SERVICES
from tonnage.kube.protocol import ConflictError, ForbiddenError, InvalidError, TransientError

FOREIGN = {"metadata": {"name": "llama", "namespace": NAMESPACE}, "spec": {"ports": []}}
APART = {"maxModelLen": 131072, "concurrency": 12, "longContext": {"above": 8192}}


async def test_a_new_object_whose_service_name_is_taken_frees_its_gpus() -> None:
    cluster = Cluster(MI300X)
    cluster.api.put(SERVICES, FOREIGN)
    cluster.start_operator()
    cluster.behaviours["llama"] = loading
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert "Service chat/llama" in cluster.message("Accepted")
    assert write_count(cluster.api, [DEPLOYMENTS]) in (0, 2), "never made, or made and deleted"
    assert cluster.deployments() == []
    assert cluster.fleet.view().snapshot().reservations == ()
    before = cluster.api.write_count
    await cluster.wait(600)
    assert cluster.api.write_count == before, "waiting for a name writes nothing"
    del cluster.behaviours["llama"]
    cluster.api.remove(SERVICES, NAMESPACE, "llama")
    await cluster.wait(30)
    assert cluster.conditions() == SETTLED


async def test_replicas_that_once_served_stay_when_the_service_name_is_taken() -> None:
    cluster = await served(MI300X)
    cluster.behaviours["llama"] = loading
    cluster.api.remove(SERVICES, NAMESPACE, "llama")
    cluster.api.put(SERVICES, FOREIGN)
    await cluster.resync()
    await cluster.wait(60)
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert cluster.deployments() == ["llama-mi300x"]


GROUPED = {**H100, "count": 2, "resources": {"rdma/ib": "1k"}}
LEADER = "llama-h100-sxm-80gb-2nodes"


async def test_a_foreign_service_with_the_name_of_a_group_is_reported_and_left_alone() -> None:
    """The controller would take it for the one by which pods find the leader of their group."""
    cluster = Cluster(GROUPED)
    cluster.has_leader_worker_set = True
    foreign = {**FOREIGN, "metadata": {**FOREIGN["metadata"], "name": LEADER}}
    cluster.api.put(SERVICES, foreign)
    before = cluster.api.object(SERVICES, NAMESPACE, LEADER)
    cluster.start_operator()
    cluster.apply("llama", spec_of(model="deepseek-v3"))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert f"Service chat/{LEADER} exists" in cluster.message("Accepted")
    assert cluster.api.objects(LEADER_WORKER_SETS) == []
    assert cluster.fleet.view().snapshot().reservations == ()
    writes = cluster.api.write_count
    await cluster.wait(600)
    assert cluster.api.write_count == writes
    assert cluster.api.object(SERVICES, NAMESPACE, LEADER) == before
    cluster.api.remove(SERVICES, NAMESPACE, LEADER)
    await cluster.wait(30)
    assert cluster.conditions() == SETTLED


async def test_a_group_takes_the_service_that_a_former_one_has_left() -> None:
    cluster = Cluster(GROUPED)
    cluster.has_leader_worker_set = True
    former = {"kind": "LeaderWorkerSet", "name": LEADER, "uid": "gone", "controller": True}
    metadata = {**FOREIGN["metadata"], "name": LEADER, "ownerReferences": [former]}
    cluster.api.put(SERVICES, {**FOREIGN, "metadata": metadata})
    cluster.start_operator()
    cluster.apply("llama", spec_of(model="deepseek-v3"))
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_a_name_that_the_garbage_collector_is_about_to_free_is_waited_for() -> None:
    cluster = Cluster(MI300X)
    former = {"kind": "InferenceDeployment", "name": "llama", "uid": "gone", "controller": True}
    owned = {**FOREIGN, "metadata": {**FOREIGN["metadata"], "ownerReferences": [former]}}
    cluster.api.put(SERVICES, owned)
    cluster.start_operator()
    cluster.behaviours["llama"] = loading
    cluster.apply("llama", spec_of())
    while not cluster.status():
        await cluster.reconcile("llama")
    assert await cluster.reconcile("llama") == 2.0
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert cluster.deployments() == ["llama-mi300x"]


async def test_an_object_with_its_service_stays_when_another_name_is_taken() -> None:
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = loading
    cluster.apply("llama", spec_of())
    cluster.apply("llama-long", spec_of())
    await cluster.settle()
    cluster.apply("llama", spec_of(workload=APART))
    await cluster.settle()
    await cluster.wait(60)
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert "llama-mi300x" in cluster.deployments()


async def test_a_new_object_whose_endpoint_name_is_taken_frees_its_gpus() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama-long", spec_of())
    await cluster.settle()
    cluster.behaviours["llama"] = loading
    cluster.apply("llama", spec_of(workload=APART))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert cluster.deployments() == ["llama-long-mi300x"]


async def test_a_child_that_was_made_before_a_refusal_holds_its_gpus() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    cluster.api.fail_next("apply", InvalidError("422"), kind=SERVICES)
    await cluster.reconcile("llama")
    assert cluster.conditions()["Ready"] == ("False", "ChildRefused")
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.fleet.view().snapshot().reservations != ()


@pytest.mark.parametrize(
    "error",
    [ConflictError("409"), ForbiddenError("exceeded quota"), InvalidError("422")],
    ids=["taken", "quota", "invalid"],
)
async def test_a_child_that_may_not_be_made_once_is_made_later(error: Exception) -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    cluster.api.fail_next("apply", error, kind=DEPLOYMENTS)
    await cluster.settle()
    await cluster.wait(60)
    await cluster.resync()
    assert cluster.conditions() == SETTLED


@pytest.mark.parametrize("after", [True, False], ids=["answer lost", "not done"])
async def test_a_child_of_unknown_fate_is_made_once(after: bool) -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    cluster.api.fail_next("apply", TransientError("504"), kind=DEPLOYMENTS, after=after)
    with pytest.raises(TransientError):
        await cluster.reconcile("llama")
    await cluster.resync()
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-mi300x"]


async def test_a_recreated_object_gets_children_of_its_own() -> None:
    cluster = await served(MI300X)
    (before,) = cluster.api.objects(DEPLOYMENTS)
    cluster.delete("llama")
    cluster.apply("llama", spec_of())
    await cluster.settle()
    await cluster.wait(60)
    (after,) = cluster.api.objects(DEPLOYMENTS)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert cluster.conditions() == SETTLED
