"""Which change in the stores wakes which key, when, and at which priority."""

from typing import Any

import pytest

from tests.support.fleet_objects import node, pod, pool
from tonnage import delays
from tonnage.api.names import (
    API_VERSION,
    INFERENCE_DEPLOYMENT,
    LABEL_MANAGED_BY,
    LABEL_OWNER,
    LABEL_SHARD,
    MANAGED_BY,
)
from tonnage.catalog.load import load_catalog
from tonnage.fleet.model import Reservation
from tonnage.informers.stores import Stores
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
)
from tonnage.kube.protocol import Kind, KindMissingError, NotLeadingError, Object, TransientError
from tonnage.reconcile.key import Key
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.priority import Priority
from tonnage.watch.start_up import until_it_works
from tonnage.watch.triggers import Triggers

CATALOG = load_catalog()
LLAMA, GEMMA, LONG = Key("chat", "llama"), Key("chat", "gemma"), Key("chat", "llama-long")


class Bench:
    """Stores with their triggers, the fleet behind them, and the keys that they wake."""

    def __init__(self) -> None:
        self.now: list[tuple[Key, Priority]] = []
        self.later: list[tuple[Key, float]] = []
        self.fleet = FleetState(CATALOG, lambda: None, lambda: None, lambda _: None)
        triggers = Triggers(self, self.fleet, lambda: sorted(self.fleet.known_keys()))
        self.stores = Stores(triggers.on_change)
        self._version = 0

    def add(self, key: Key, priority: Priority = Priority.EVENT) -> None:
        self.now.append((key, priority))

    def add_after(self, key: Key, seconds: float) -> None:
        self.later.append((key, seconds))

    def versioned(self, body: Object) -> Object:
        """The object in a version that is newer than all before."""
        self._version += 1
        identity = {"uid": body["metadata"]["name"], "resourceVersion": str(self._version)}
        return {**body, "metadata": {**identity, **body["metadata"]}}

    def event(self, kind: Kind, event_type: str | None, body: Object) -> Object:
        """A watch brings this event of the object; the object."""
        found = self.versioned(body)
        self.stores.of(kind).observe(event_type, found)
        return found

    def write(self, kind: Kind, body: Object) -> Object:
        """The operator writes the object, and is answered."""
        found = self.versioned(body)
        self.stores.put_written(kind, found)
        return found

    def delete(self, kind: Kind, body: Object) -> None:
        """The operator deletes the object."""
        name = body["metadata"]["name"]
        self.stores.remove_deleted(kind, "chat", name, body["metadata"].get("uid", name))

    def woken(self) -> tuple[list[tuple[Key, Priority]], list[Key]]:
        """Which keys were woken since the last question: at once, and after delays.BATCH."""
        now, later = self.now.copy(), self.later.copy()
        self.now.clear()
        self.later.clear()
        assert all(seconds == delays.BATCH for _, seconds in later)
        return now, [key for key, _ in later]


NOBODY: tuple[list[tuple[Key, Priority]], list[Key]] = ([], [])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def infd(
    name: str = "llama", generation: int = 1, observed: int | None = 1, **metadata: Any
) -> Object:
    """An InferenceDeployment whose status tells of this generation."""
    status = {} if observed is None else {"status": {"observedGeneration": observed}}
    named = {"name": name, "namespace": "chat", "generation": generation}
    return {"metadata": named | metadata, "spec": {}, **status}


def child(name: str = "llama", owner: str = "llama", **metadata: Any) -> Object:
    """A Deployment or Service that the operator has made."""
    reference = {"apiVersion": API_VERSION, "kind": INFERENCE_DEPLOYMENT, "name": owner, "uid": "u"}
    labels = {LABEL_OWNER: owner, LABEL_MANAGED_BY: MANAGED_BY}
    named = {"name": name, "namespace": "chat", "labels": labels}
    owners = {"ownerReferences": [reference | {"controller": True}]}
    return {"metadata": named | owners | metadata, "spec": {}}


def replica(uid: str = "p1", **labels: str) -> Object:
    body = pod(uid)
    return {**body, "metadata": {**body["metadata"], "labels": {LABEL_OWNER: "llama"} | labels}}


# InferenceDeployments


@pytest.mark.parametrize("event_type", [None, "ADDED", "MODIFIED"])
def test_a_change_of_an_inferencedeployment_wakes_it_at_once(
    bench: Bench, event_type: str | None
) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, event_type, infd())
    assert bench.woken() == ([(LLAMA, Priority.EVENT)], [])


def test_its_end_wakes_it_so_that_nothing_stays_reserved(bench: Bench) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd())
    bench.woken()
    bench.event(INFERENCE_DEPLOYMENTS, "DELETED", infd())
    assert bench.woken() == ([(LLAMA, Priority.EVENT)], [])


def test_an_event_that_brings_nothing_new_wakes_nobody(bench: Bench) -> None:
    known = bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd())
    bench.woken()
    for event_type in (None, "ADDED", "MODIFIED"):
        bench.stores.inference_deployments.observe(event_type, known)
    bench.event(INFERENCE_DEPLOYMENTS, "DELETED", infd("never-there"))
    assert bench.woken() == NOBODY


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({}, Priority.NEW_GENERATION),
        ({"status": {}}, Priority.NEW_GENERATION),
        ({"status": {"observedGeneration": 0}}, Priority.NEW_GENERATION),
        ({"status": {"observedGeneration": 2}}, Priority.NEW_GENERATION),
        ({"status": {"observedGeneration": 3}}, Priority.EVENT),
        ({"status": "hostile"}, Priority.NEW_GENERATION),
    ],
)
def test_a_generation_that_no_status_tells_of_comes_before_all_else(
    bench: Bench, status: Object, want: Priority
) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "MODIFIED", infd(generation=3, observed=None) | status)
    assert bench.woken() == ([(LLAMA, want)], [])


def test_a_status_that_the_operator_has_written_wakes_nobody(bench: Bench) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd(observed=None))
    bench.woken()
    answer = bench.write(INFERENCE_DEPLOYMENTS, infd())
    assert bench.woken() == NOBODY
    bench.stores.inference_deployments.observe("MODIFIED", answer)
    assert bench.woken() == NOBODY, "the event of the own write"


def test_a_status_that_the_watch_tells_of_before_the_answer_wakes_nobody(bench: Bench) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd(observed=None))
    bench.woken()
    with bench.stores.write_in_flight(INFERENCE_DEPLOYMENTS, "chat", "llama"):
        answer = bench.event(INFERENCE_DEPLOYMENTS, "MODIFIED", infd())
        bench.stores.put_written(INFERENCE_DEPLOYMENTS, answer)
    assert bench.woken() == NOBODY


def test_a_new_spec_that_comes_while_the_status_is_written_wakes_its_object(bench: Bench) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd())
    bench.woken()
    with bench.stores.write_in_flight(INFERENCE_DEPLOYMENTS, "chat", "llama"):
        bench.event(INFERENCE_DEPLOYMENTS, "MODIFIED", infd(generation=2))
    assert bench.woken() == ([(LLAMA, Priority.NEW_GENERATION)], [])


def test_a_status_that_somebody_else_has_written_wakes_its_object(bench: Bench) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd())
    bench.woken()
    bench.event(INFERENCE_DEPLOYMENTS, "MODIFIED", infd())
    assert bench.woken() == ([(LLAMA, Priority.EVENT)], [])


def test_a_new_spec_that_the_answer_to_an_own_write_shows_first_is_not_lost(bench: Bench) -> None:
    """The answer has what the user changed meanwhile; its event is then no change any more."""
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd())
    bench.woken()
    bench.write(INFERENCE_DEPLOYMENTS, infd(generation=2))
    assert bench.woken() == ([(LLAMA, Priority.NEW_GENERATION)], [])


def test_an_endpoint_that_the_operator_makes_wakes_itself_and_its_owner(bench: Bench) -> None:
    endpoint = child("llama-long")
    endpoint["metadata"]["generation"] = 1
    bench.write(INFERENCE_DEPLOYMENTS, endpoint)
    assert bench.woken() == ([(LONG, Priority.NEW_GENERATION)], [LLAMA])


def test_an_endpoint_that_the_operator_deletes_wakes_itself_and_its_owner(bench: Bench) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", child("llama-long"))
    bench.woken()
    bench.delete(INFERENCE_DEPLOYMENTS, child("llama-long"))
    assert bench.woken() == ([(LONG, Priority.EVENT)], [LLAMA])


def test_an_endpoint_that_a_finalizer_keeps_is_reconciled_as_one_that_is_gone(
    bench: Bench,
) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd("llama-long"))
    bench.woken()
    ending = infd("llama-long", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a/b"])
    bench.write(INFERENCE_DEPLOYMENTS, ending)
    assert bench.woken() == ([(LONG, Priority.EVENT)], [])


# Children


@pytest.mark.parametrize("kind", [DEPLOYMENTS, SERVICES])
def test_a_change_of_a_child_wakes_its_owner_when_others_have_come(
    bench: Bench, kind: Kind
) -> None:
    bench.event(kind, "ADDED", child())
    assert bench.woken() == ([], [LLAMA])
    bench.event(kind, "MODIFIED", child())
    assert bench.woken() == ([], [LLAMA])
    bench.event(kind, "DELETED", child())
    assert bench.woken() == ([], [LLAMA])


def test_an_own_write_of_a_child_wakes_its_owner_so_that_what_follows_is_seen(
    bench: Bench,
) -> None:
    answer = bench.write(DEPLOYMENTS, child())
    assert bench.woken() == ([], [LLAMA])
    bench.stores.deployments.observe("ADDED", answer)
    assert bench.woken() == NOBODY
    bench.delete(DEPLOYMENTS, child())
    assert bench.woken() == ([], [LLAMA])
    bench.event(DEPLOYMENTS, "DELETED", child())
    assert bench.woken() == NOBODY


def test_a_child_that_changes_hands_wakes_both_owners(bench: Bench) -> None:
    bench.event(SERVICES, "ADDED", child())
    bench.woken()
    bench.event(SERVICES, "MODIFIED", child(owner="gemma"))
    assert bench.woken() == ([], [LLAMA, GEMMA])
    bench.event(SERVICES, "MODIFIED", child(owner="gemma"))
    assert bench.woken() == ([], [GEMMA])


def test_a_child_of_nobody_wakes_nobody(bench: Bench) -> None:
    bench.event(DEPLOYMENTS, "ADDED", child(labels={}, ownerReferences=[]))
    assert bench.woken() == NOBODY


# Pods


def test_a_pod_wakes_its_owner_when_others_have_come_and_holds_its_gpus(bench: Bench) -> None:
    bench.event(PODS, "ADDED", replica())
    assert bench.woken() == ([], [LLAMA])
    assert len(bench.fleet.view().snapshot().pods) == 1
    bench.event(PODS, "DELETED", replica())
    assert bench.woken() == ([], [LLAMA])
    assert bench.fleet.view().snapshot().pods == ()


def test_a_pod_that_lost_its_label_wakes_whose_it_was(bench: Bench) -> None:
    bench.event(PODS, "ADDED", replica())
    bench.woken()
    bench.event(PODS, "MODIFIED", pod("p1"))
    assert bench.woken() == ([], [LLAMA])
    assert len(bench.fleet.view().snapshot().pods) == 1


def test_a_pod_of_another_shard_takes_gpus_and_wakes_nobody(bench: Bench) -> None:
    bench.event(PODS, "ADDED", replica(**{LABEL_SHARD: "east"}))
    assert bench.woken() == NOBODY
    assert len(bench.fleet.view().snapshot().pods) == 1


def test_a_pod_of_somebody_else_wakes_nobody(bench: Bench) -> None:
    bench.event(PODS, "ADDED", pod())
    assert bench.woken() == NOBODY
    assert len(bench.fleet.view().snapshot().pods) == 1


def test_a_pod_made_anew_under_its_name_holds_gpus_once(bench: Bench) -> None:
    again = replica()
    bench.event(PODS, "ADDED", replica())
    again["metadata"]["uid"] = "p2"
    bench.event(PODS, "ADDED", again)
    assert [each.uid for each in bench.fleet.view().snapshot().pods] == ["p2"]


# The fleet


def test_the_fleet_follows_the_stores(bench: Bench) -> None:
    bench.event(NODES, "ADDED", node())
    bench.event(ACCELERATOR_POOLS, "ADDED", pool())
    snapshot = bench.fleet.view().snapshot()
    assert [each.name for each in snapshot.nodes] == ["gpu-1"]
    assert [each.name for each in snapshot.declared_pools] == ["amd"]
    bench.event(NODES, "DELETED", node())
    bench.event(ACCELERATOR_POOLS, "DELETED", pool())
    snapshot = bench.fleet.view().snapshot()
    assert (snapshot.nodes, snapshot.declared_pools) == ((), ())
    assert bench.woken() == NOBODY


@pytest.mark.parametrize(
    ("event_type", "after", "is_woken"),
    [
        pytest.param("MODIFIED", pool(), False, id="as it was"),
        pytest.param("MODIFIED", pool(cost="3"), True, id="changed"),
        pytest.param("DELETED", pool(), True, id="deleted"),
    ],
)
def test_a_pool_that_is_declared_otherwise_wakes_whoever_has_gpus(
    bench: Bench, event_type: str, after: Object, is_woken: bool
) -> None:
    bench.fleet.reserve(LLAMA, [Reservation(("chat", "llama"), "amd", "amd", 1, 1)])
    bench.event(ACCELERATOR_POOLS, "ADDED", pool())
    bench.woken()
    bench.event(ACCELERATOR_POOLS, event_type, after)
    assert bench.woken() == ([(LLAMA, Priority.EVENT)] if is_woken else [], [])


def test_a_node_wakes_no_key_by_itself(bench: Bench) -> None:
    bench.fleet.reserve(LLAMA, [Reservation(("chat", "llama"), "amd", "amd", 1, 1)])
    bench.event(NODES, "ADDED", node())
    bench.event(NODES, "MODIFIED", node(gpus=4))
    assert bench.woken() == NOBODY


# Waiting at the start


async def test_start_waits_for_what_it_needs_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.delays.START_UP_RETRY", 0.001)
    outcomes: list[Exception | None] = [TransientError("a"), TransientError("b"), None]

    async def job() -> None:
        outcome = outcomes.pop(0)
        if outcome:
            raise outcome

    reasons: list[tuple[str, str]] = []
    await until_it_works("the kinds", job, lambda *reason: reasons.append(reason))
    assert outcomes == []
    assert reasons == [("the kinds", "a"), ("the kinds", "b")]


@pytest.mark.parametrize(
    "error", [KeyError("spec"), NotLeadingError("lost"), KindMissingError("404")], ids=type
)
async def test_start_waits_for_nothing_that_cannot_come(error: Exception) -> None:
    async def job() -> None:
        raise error

    with pytest.raises(type(error)):
        await until_it_works("the kinds", job, lambda *_: None)
