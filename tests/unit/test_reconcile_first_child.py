"""A new object's first child is made from what its watch told, and is never more than made."""

import pytest

from tests.support.cluster import MI300X, NAMESPACE, Cluster, spec_of, write_count
from tests.support.controllers import loading
from tests.support.first_children import find_second_firsts
from tests.support.scenarios import SCENARIOS
from tests.support.serving import SETTLED, served
from tonnage.api.status import UNREPORTED
from tonnage.kube.kinds import DEPLOYMENTS, PRIORITY_CLASSES, SERVICES
from tonnage.kube.protocol import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    Object,
    TransientError,
)
from tonnage.reconcile.actions import Apply
from tonnage.reconcile.first_child import REST_SECONDS, first_children
from tonnage.reconcile.key import Key
from tonnage.reconcile.newborns import Newborns

LLAMA = Key(NAMESPACE, "llama")


async def look(cluster: Cluster) -> float | None:
    """One reconcile, and not the one that it asks for."""
    cluster.tell_versions(LLAMA)
    return (await cluster.reconciler.reconcile(LLAMA)).seconds


async def before() -> Cluster:
    """A cluster in which the PriorityClasses are known by an object that was there before."""
    cluster = Cluster(MI300X)
    cluster.apply("other", spec_of())
    await cluster.settle()
    return cluster


async def test_the_first_child_is_the_first_that_the_api_server_is_asked_for() -> None:
    cluster = await before()
    cluster.api.calls.clear()
    cluster.apply("llama", spec_of())
    assert await look(cluster) == REST_SECONDS
    assert [(call.verb, call.name) for call in cluster.api.calls] == [("apply", "llama-mi300x")]
    assert cluster.fleet.view().snapshot().reservations != ()
    await cluster.settle()
    assert cluster.conditions() == SETTLED


def test_whoever_has_something_already_has_no_first_child() -> None:
    new, there = Apply(DEPLOYMENTS, {}, exists=False), Apply(SERVICES, {}, exists=True)
    assert first_children((new,)) == (new,)
    assert first_children((new, there)) == ()


async def test_what_is_spread_has_a_first_child_in_each_pool() -> None:
    scenario = SCENARIOS["spread over two pools"]
    cluster = await scenario.prepare()
    scenario.change(cluster)
    assert await look(cluster) == REST_SECONDS
    asked = [call.verb for call in cluster.api.calls if call.kind != PRIORITY_CLASSES]
    assert asked == ["apply", "apply"]
    assert len(cluster.deployments()) == 2


@pytest.mark.parametrize(
    "error",
    [ConflictError("409"), ForbiddenError("exceeded quota"), InvalidError("422")],
    ids=["taken", "quota", "invalid"],
)
async def test_a_first_child_that_may_not_be_made_is_looked_into_at_once(error: Exception) -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    cluster.api.fail_next("apply", error, kind=DEPLOYMENTS)
    await look(cluster)
    assert ("list", DEPLOYMENTS) in [(call.verb, call.kind) for call in cluster.api.calls]
    await cluster.settle()
    assert cluster.conditions() == SETTLED


@pytest.mark.parametrize("after", [True, False], ids=["answer lost", "not done"])
async def test_a_first_child_of_unknown_fate_is_looked_for(after: bool) -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    cluster.api.fail_next("apply", TransientError("504"), kind=DEPLOYMENTS, after=after)
    with pytest.raises(TransientError):
        await look(cluster)
    cluster.api.calls.clear()
    await look(cluster)
    assert cluster.api.calls[0].verb != "apply"
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-mi300x"]


async def test_an_object_made_anew_is_looked_at() -> None:
    cluster = await served(MI300X)
    cluster.delete("llama")
    cluster.apply("llama", spec_of(replicas=2))
    cluster.api.calls.clear()
    await look(cluster)
    assert cluster.api.calls[0].verb in ("get", "list")


async def test_what_was_there_before_this_process_led_is_looked_at() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    cluster.start_operator()
    await look(cluster)
    assert cluster.api.calls[0].verb in ("get", "list")


def test_no_second_first_child_is_made_where_the_pool_of_the_first_is_closed() -> None:
    assert find_second_firsts() == []


THEIRS = {"metadata": {"name": "llama", "namespace": NAMESPACE}, "spec": {"ports": []}}


async def test_a_first_child_whose_service_has_no_name_gives_its_gpus_back() -> None:
    cluster = Cluster(MI300X)
    cluster.api.put(SERVICES, THEIRS)
    cluster.start_operator()
    cluster.behaviours["llama"] = loading
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert "Service chat/llama" in cluster.message("Accepted")
    assert write_count(cluster.api, [DEPLOYMENTS]) == 2, "made and deleted"
    assert cluster.deployments() == []
    assert cluster.fleet.view().snapshot().reservations == ()
    before = cluster.api.write_count
    await cluster.wait(600)
    assert cluster.api.write_count == before, "waiting for a name writes nothing"
    del cluster.behaviours["llama"]
    cluster.api.remove(SERVICES, NAMESPACE, "llama")
    await cluster.wait(30)
    assert cluster.conditions() == SETTLED


async def test_what_served_once_stays_when_somebody_takes_the_name_of_its_service() -> None:
    cluster = await served(MI300X)
    cluster.behaviours["llama"] = loading
    cluster.api.remove(SERVICES, NAMESPACE, "llama")
    cluster.api.put(SERVICES, THEIRS)
    await cluster.resync()
    await cluster.wait(60)
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert cluster.deployments() == ["llama-mi300x"]


async def test_a_name_that_the_garbage_collector_is_about_to_free_is_waited_for() -> None:
    cluster = Cluster(MI300X)
    former = {"kind": "InferenceDeployment", "name": "llama", "uid": "gone", "controller": True}
    owned = {**THEIRS, "metadata": {**THEIRS["metadata"], "ownerReferences": [former]}}
    cluster.api.put(SERVICES, owned)
    cluster.start_operator()
    cluster.behaviours["llama"] = loading
    cluster.apply("llama", spec_of())
    while not cluster.status():
        await cluster.reconcile("llama")
    assert await cluster.reconcile("llama") == 2.0
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert cluster.deployments() == ["llama-mi300x"]


APART = {"maxModelLen": 131072, "concurrency": 12, "longContext": {"above": 8192}}


async def test_what_has_its_service_stays_when_another_name_is_taken() -> None:
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


async def test_what_is_new_gives_its_gpus_back_when_its_endpoint_has_no_name() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama-long", spec_of())
    await cluster.settle()
    cluster.behaviours["llama"] = loading
    cluster.apply("llama", spec_of(workload=APART))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert cluster.deployments() == ["llama-long-mi300x"]


async def test_what_was_made_before_a_refusal_is_reserved() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    cluster.start_operator()  # so that it is looked at
    cluster.api.fail_next("apply", InvalidError("422"), kind=SERVICES)
    await look(cluster)
    assert cluster.conditions()["Ready"] == ("False", "ChildRefused")
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.fleet.view().snapshot().reservations != ()


# Who is a newborn


def body(version: str = "7", uid: str = "u", **more: object) -> Object:
    return {"metadata": {"uid": uid, "resourceVersion": version, **more}}


def leading(*known: Key) -> Newborns:
    newborns = Newborns()
    newborns.prime(known)
    return newborns


@pytest.mark.parametrize("status", [{}, {"status": UNREPORTED}], ids=["bare", "as the CRD has it"])
def test_an_object_that_was_just_added_is_one_once(status: Object) -> None:
    newborns = leading()
    newborns.tell(LLAMA, "ADDED", body() | status)
    found = newborns.take(LLAMA)
    assert found is not None
    assert found.itself == body() | status
    newborns.tell(LLAMA, "ADDED", body())  # a watch may tell it twice
    assert newborns.take(LLAMA) is None


def test_a_change_before_anything_is_made_is_what_counts() -> None:
    newborns = leading()
    newborns.tell(LLAMA, "ADDED", body("7"))
    newborns.tell(LLAMA, "MODIFIED", body("8"))
    found = newborns.take(LLAMA)
    assert found is not None
    assert found.itself == body("8")


@pytest.mark.parametrize(
    ("event_type", "told"),
    [
        (None, body()),
        ("MODIFIED", body()),
        ("DELETED", body()),
        ("ADDED", {**body(), "status": {"observedGeneration": 1}}),
        ("ADDED", body(deletionTimestamp="2026-01-01T00:00:00Z")),
    ],
    ids=["listed", "changed", "deleted", "with a status", "about to go"],
)
def test_what_has_a_history_is_none(event_type: str | None, told: Object) -> None:
    newborns = leading()
    newborns.tell(LLAMA, event_type, told)
    assert newborns.take(LLAMA) is None


@pytest.mark.parametrize("end", ["DELETED", "MODIFIED"])
def test_one_that_is_gone_or_made_anew_is_none_any_more(end: str) -> None:
    newborns = leading()
    newborns.tell(LLAMA, "ADDED", body())
    newborns.tell(LLAMA, end, body(uid="u" if end == "DELETED" else "another"))
    assert newborns.take(LLAMA) is None


def test_one_that_was_there_or_that_a_child_tells_of_is_none() -> None:
    newborns = leading(LLAMA)
    newborns.tell(LLAMA, "ADDED", body())
    assert newborns.take(LLAMA) is None
    newborns = leading()
    newborns.outgrow(LLAMA)
    newborns.tell(LLAMA, "ADDED", body())
    assert newborns.take(LLAMA) is None


def test_nobody_is_while_another_process_leads_or_events_are_missed() -> None:
    newborns = Newborns()
    newborns.tell(LLAMA, "ADDED", body())
    newborns.prime(())
    assert newborns.take(LLAMA) is None
    newborns = leading()
    newborns.tell(LLAMA, "ADDED", body())
    newborns.forget_all()
    assert newborns.take(LLAMA) is None


def test_a_name_that_a_look_found_free_is_new_again() -> None:
    newborns = leading(LLAMA)
    newborns.forget(LLAMA)
    newborns.tell(LLAMA, "ADDED", body())
    assert newborns.take(LLAMA) is not None
