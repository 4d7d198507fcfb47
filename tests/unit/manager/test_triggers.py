"""Which change in the stores enqueues which key, when, and at which priority."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.fleets.objects import node, pod, pool
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
from tonnage.controller.queueing.priority import Priority
from tonnage.fit.model import Footprint
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Reservation
from tonnage.informers.stores import Stores
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
)
from tonnage.kube.protocol import Kind, KindMissingError, NotLeadingError, Object, TransientError
from tonnage.manager.start_up import retry_until_success
from tonnage.manager.triggers import Triggers
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.priority import Precedence

CATALOG = load_catalog()
LLAMA, GEMMA, LONG = Key("chat", "llama"), Key("chat", "gemma"), Key("chat", "llama-long")


class Bench:
    """Stores with their triggers, the fleet state, and the keys that they enqueue."""

    def __init__(self) -> None:
        self.now: list[tuple[Key, Priority]] = []
        self.later: list[tuple[Key, float]] = []
        self.fleet = FleetState(Fleet(CATALOG))
        triggers = Triggers(self, self.fleet)
        self.stores = Stores(triggers.on_change)
        self._version = 0

    def add(self, key: Key, priority: Priority = Priority.EVENT) -> None:
        self.now.append((key, priority))

    def add_after(self, key: Key, seconds: float) -> None:
        self.later.append((key, seconds))

    def versioned(self, body: Object) -> Object:
        """The object with a newer resourceVersion than all before."""
        self._version += 1
        identity = {"uid": body["metadata"]["name"], "resourceVersion": str(self._version)}
        return {**body, "metadata": {**identity, **body["metadata"]}}

    def event(self, kind: Kind, event_type: str | None, body: Object) -> Object:
        """Deliver this event of the object; return the object with its version."""
        versioned = self.versioned(body)
        self.stores.store_for(kind).observe(event_type, versioned)
        return versioned

    def write(self, kind: Kind, body: Object) -> Object:
        """Write the object as the operator; return the response."""
        response = self.versioned(body)
        self.stores.put_written(kind, response)
        return response

    def delete(self, kind: Kind, body: Object) -> None:
        """Delete the object as the operator."""
        name = body["metadata"]["name"]
        self.stores.remove_deleted(kind, "chat", name, body["metadata"].get("uid", name))

    def take_enqueued(self) -> tuple[list[tuple[Key, Priority]], list[Key]]:
        """The keys enqueued since the last call: at once, and after delays.BATCH."""
        now, later = self.now.copy(), self.later.copy()
        self.now.clear()
        self.later.clear()
        assert all(seconds == delays.BATCH for _, seconds in later)
        return now, [key for key, _ in later]


NO_KEYS: tuple[list[tuple[Key, Priority]], list[Key]] = ([], [])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def infd(
    name: str = "llama", generation: int = 1, observed: int | None = 1, **metadata: Any
) -> Object:
    """An InferenceDeployment whose status has observed this generation."""
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
def test_a_change_of_an_inferencedeployment_enqueues_it_at_once(
    bench: Bench, event_type: str | None
) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, event_type, infd())
    assert bench.take_enqueued() == ([(LLAMA, Priority.EVENT)], [])


def test_its_deletion_enqueues_it_so_that_its_reservations_are_released(bench: Bench) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd())
    bench.take_enqueued()
    bench.event(INFERENCE_DEPLOYMENTS, "DELETED", infd())
    assert bench.take_enqueued() == ([(LLAMA, Priority.EVENT)], [])


def test_an_event_without_news_enqueues_nothing(bench: Bench) -> None:
    body = bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd())
    bench.take_enqueued()
    for event_type in (None, "ADDED", "MODIFIED"):
        bench.stores.inference_deployments.observe(event_type, body)
    bench.event(INFERENCE_DEPLOYMENTS, "DELETED", infd("never-there"))
    assert bench.take_enqueued() == NO_KEYS


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
def test_an_unobserved_generation_has_the_highest_priority(
    bench: Bench, status: Object, want: Priority
) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "MODIFIED", infd(generation=3, observed=None) | status)
    assert bench.take_enqueued() == ([(LLAMA, want)], [])


def test_the_operators_own_status_write_enqueues_nothing(bench: Bench) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd(observed=None))
    bench.take_enqueued()
    answer = bench.write(INFERENCE_DEPLOYMENTS, infd())
    assert bench.take_enqueued() == NO_KEYS
    bench.stores.inference_deployments.observe("MODIFIED", answer)
    assert bench.take_enqueued() == NO_KEYS, "the event of the own write"


def test_an_own_status_write_whose_event_precedes_the_response_enqueues_nothing(
    bench: Bench,
) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd(observed=None))
    bench.take_enqueued()
    with bench.stores.write_in_flight(INFERENCE_DEPLOYMENTS, "chat", "llama"):
        answer = bench.event(INFERENCE_DEPLOYMENTS, "MODIFIED", infd())
        bench.stores.put_written(INFERENCE_DEPLOYMENTS, answer)
    assert bench.take_enqueued() == NO_KEYS


def test_a_new_spec_while_the_status_is_written_enqueues_the_object(bench: Bench) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd())
    bench.take_enqueued()
    with bench.stores.write_in_flight(INFERENCE_DEPLOYMENTS, "chat", "llama"):
        bench.event(INFERENCE_DEPLOYMENTS, "MODIFIED", infd(generation=2))
    assert bench.take_enqueued() == ([(LLAMA, Priority.NEW_GENERATION)], [])


def test_a_status_written_by_another_client_enqueues_the_object(bench: Bench) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd())
    bench.take_enqueued()
    bench.event(INFERENCE_DEPLOYMENTS, "MODIFIED", infd())
    assert bench.take_enqueued() == ([(LLAMA, Priority.EVENT)], [])


def test_a_new_spec_first_seen_in_the_response_to_an_own_write_is_not_lost(bench: Bench) -> None:
    """The response has the user's change already, so the later event is no change."""
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd())
    bench.take_enqueued()
    bench.write(INFERENCE_DEPLOYMENTS, infd(generation=2))
    assert bench.take_enqueued() == ([(LLAMA, Priority.NEW_GENERATION)], [])


def test_creating_an_endpoint_enqueues_it_and_its_owner(bench: Bench) -> None:
    endpoint = child("llama-long")
    endpoint["metadata"]["generation"] = 1
    bench.write(INFERENCE_DEPLOYMENTS, endpoint)
    assert bench.take_enqueued() == ([(LONG, Priority.NEW_GENERATION)], [LLAMA])


def test_deleting_an_endpoint_enqueues_it_and_its_owner(bench: Bench) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", child("llama-long"))
    bench.take_enqueued()
    bench.delete(INFERENCE_DEPLOYMENTS, child("llama-long"))
    assert bench.take_enqueued() == ([(LONG, Priority.EVENT)], [LLAMA])


def test_an_endpoint_that_a_finalizer_keeps_is_reconciled_like_a_deleted_one(
    bench: Bench,
) -> None:
    bench.event(INFERENCE_DEPLOYMENTS, "ADDED", infd("llama-long"))
    bench.take_enqueued()
    ending = infd("llama-long", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a/b"])
    bench.write(INFERENCE_DEPLOYMENTS, ending)
    assert bench.take_enqueued() == ([(LONG, Priority.EVENT)], [])


# Children


@pytest.mark.parametrize("kind", [DEPLOYMENTS, SERVICES])
def test_a_change_of_a_child_enqueues_its_owner_after_a_batch(bench: Bench, kind: Kind) -> None:
    bench.event(kind, "ADDED", child())
    assert bench.take_enqueued() == ([], [LLAMA])
    bench.event(kind, "MODIFIED", child())
    assert bench.take_enqueued() == ([], [LLAMA])
    bench.event(kind, "DELETED", child())
    assert bench.take_enqueued() == ([], [LLAMA])


def test_an_own_write_of_a_child_enqueues_its_owner_once(
    bench: Bench,
) -> None:
    answer = bench.write(DEPLOYMENTS, child())
    assert bench.take_enqueued() == ([], [LLAMA])
    bench.stores.store_for(DEPLOYMENTS).observe("ADDED", answer)
    assert bench.take_enqueued() == NO_KEYS
    bench.delete(DEPLOYMENTS, child())
    assert bench.take_enqueued() == ([], [LLAMA])
    bench.event(DEPLOYMENTS, "DELETED", child())
    assert bench.take_enqueued() == NO_KEYS


def test_a_child_with_a_new_owner_enqueues_both_owners(bench: Bench) -> None:
    bench.event(SERVICES, "ADDED", child())
    bench.take_enqueued()
    bench.event(SERVICES, "MODIFIED", child(owner="gemma"))
    assert bench.take_enqueued() == ([], [LLAMA, GEMMA])
    bench.event(SERVICES, "MODIFIED", child(owner="gemma"))
    assert bench.take_enqueued() == ([], [GEMMA])


def test_a_child_without_owner_enqueues_nothing(bench: Bench) -> None:
    bench.event(DEPLOYMENTS, "ADDED", child(labels={}, ownerReferences=[]))
    assert bench.take_enqueued() == NO_KEYS


# Pods


def test_a_pod_enqueues_its_owner_after_a_batch_and_holds_its_gpus(bench: Bench) -> None:
    bench.event(PODS, "ADDED", replica())
    assert bench.take_enqueued() == ([], [LLAMA])
    assert len(bench.fleet.view().snapshot().pods) == 1
    bench.event(PODS, "DELETED", replica())
    assert bench.take_enqueued() == ([], [LLAMA])
    assert bench.fleet.view().snapshot().pods == ()


def test_a_pod_that_lost_its_label_enqueues_its_former_owner(bench: Bench) -> None:
    bench.event(PODS, "ADDED", replica())
    bench.take_enqueued()
    bench.event(PODS, "MODIFIED", pod("p1"))
    assert bench.take_enqueued() == ([], [LLAMA])
    assert len(bench.fleet.view().snapshot().pods) == 1


def test_a_pod_of_another_shard_takes_gpus_and_enqueues_nothing(bench: Bench) -> None:
    bench.event(PODS, "ADDED", replica(**{LABEL_SHARD: "east"}))
    assert bench.take_enqueued() == NO_KEYS
    assert len(bench.fleet.view().snapshot().pods) == 1


def test_a_foreign_pod_takes_gpus_and_enqueues_nothing(bench: Bench) -> None:
    bench.event(PODS, "ADDED", pod())
    assert bench.take_enqueued() == NO_KEYS
    assert len(bench.fleet.view().snapshot().pods) == 1


def test_a_recreated_pod_holds_gpus_once(bench: Bench) -> None:
    recreated = replica()
    bench.event(PODS, "ADDED", replica())
    recreated["metadata"]["uid"] = "p2"
    bench.event(PODS, "ADDED", recreated)
    assert [gpu_pod.uid for gpu_pod in bench.fleet.view().snapshot().pods] == ["p2"]


# The fleet


def test_the_fleet_follows_the_stores(bench: Bench) -> None:
    bench.event(NODES, "ADDED", node())
    bench.event(ACCELERATOR_POOLS, "ADDED", pool())
    snapshot = bench.fleet.view().snapshot()
    assert [known.name for known in snapshot.nodes] == ["gpu-1"]
    assert [declared.name for declared in snapshot.declared_pools] == ["amd"]
    bench.event(NODES, "DELETED", node())
    bench.event(ACCELERATOR_POOLS, "DELETED", pool())
    snapshot = bench.fleet.view().snapshot()
    assert (snapshot.nodes, snapshot.declared_pools) == ((), ())
    assert bench.take_enqueued() == NO_KEYS


@pytest.mark.parametrize(
    ("event_type", "after", "is_enqueued"),
    [
        pytest.param("MODIFIED", pool(), False, id="as it was"),
        pytest.param("MODIFIED", pool(cost="3"), True, id="changed"),
        pytest.param("DELETED", pool(), True, id="deleted"),
    ],
)
def test_a_changed_pool_declaration_enqueues_objects_with_gpus(
    bench: Bench, event_type: str, after: Object, is_enqueued: bool
) -> None:
    bench.fleet.reserve(LLAMA, [Reservation(("chat", "llama"), "amd", "amd", Footprint(1), 1)])
    bench.event(ACCELERATOR_POOLS, "ADDED", pool())
    bench.take_enqueued()
    bench.event(ACCELERATOR_POOLS, event_type, after)
    assert bench.take_enqueued() == ([(LLAMA, Priority.EVENT)] if is_enqueued else [], [])


def test_a_node_enqueues_no_key(bench: Bench) -> None:
    bench.fleet.reserve(LLAMA, [Reservation(("chat", "llama"), "amd", "amd", Footprint(1), 1)])
    bench.event(NODES, "ADDED", node())
    bench.event(NODES, "MODIFIED", node(gpus=4))
    assert bench.take_enqueued() == NO_KEYS


# Waiting at the start


async def test_start_retries_and_reports_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.delays.START_UP_RETRY", 0.001)
    outcomes: list[Exception | None] = [TransientError("a"), TransientError("b"), None]

    async def job() -> None:
        outcome = outcomes.pop(0)
        if outcome:
            raise outcome

    reasons: list[tuple[str, str]] = []
    await retry_until_success("the kinds", job, lambda *reason: reasons.append(reason))
    assert outcomes == []
    assert reasons == [("the kinds", "a"), ("the kinds", "b")]


@pytest.mark.parametrize(
    "error", [KeyError("spec"), NotLeadingError("lost"), KindMissingError("404")], ids=type
)
async def test_start_does_not_retry_a_permanent_error(error: Exception) -> None:
    async def job() -> None:
        raise error

    with pytest.raises(type(error)):
        await retry_until_success("the kinds", job, lambda *_: None)


def budget(name: str, spec: Object, labels: dict[str, str] | None = None, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": "chat", "uid": name, "labels": labels or {}}
    return {"metadata": metadata, "spec": spec, **fields}


def test_a_budget_of_a_user_wakes_the_objects_of_its_namespace() -> None:
    bench = Bench()
    for key in (LLAMA, GEMMA, Key("search", "other")):
        bench.fleet.reserve(key, [Reservation(key, "mi300x", "amd", Footprint(1), 1)])
    bench.take_enqueued()
    spec = {"minAvailable": 1, "selector": {}}
    bench.event(POD_DISRUPTION_BUDGETS, "ADDED", budget("mine", spec))
    assert bench.take_enqueued() == ([], [GEMMA, LLAMA])
    bench.event(POD_DISRUPTION_BUDGETS, "MODIFIED", budget("mine", spec, status={"a": 1}))
    assert bench.take_enqueued() == ([], [])
    bench.event(POD_DISRUPTION_BUDGETS, "DELETED", budget("mine", spec))
    assert bench.take_enqueued() == ([], [GEMMA, LLAMA])


@pytest.mark.parametrize("kind", [RESOURCE_QUOTAS, LIMIT_RANGES, NAMESPACES])
def test_what_limits_a_namespace_wakes_the_objects_that_wait(kind: Kind) -> None:
    bench = Bench()
    for key in (LLAMA, Key("search", "other")):
        bench.fleet.wait_for_capacity(Precedence(0, datetime(2026, 1, 1, tzinfo=UTC), key))
    bench.fleet.reserve(GEMMA, [Reservation(GEMMA, "mi300x", "amd", Footprint(1), 1)])
    bench.take_enqueued()
    place = {"namespace": "chat"} if kind.namespaced else {}
    metadata = {"name": "chat", **place, "uid": "limits"}
    bench.event(kind, "ADDED", {"metadata": metadata, "status": {"used": {}}})
    assert bench.take_enqueued() == ([], [LLAMA])
    bench.event(kind, "DELETED", {"metadata": metadata})
    assert bench.take_enqueued() == ([], [LLAMA])


def test_a_budget_of_the_operator_wakes_its_owner() -> None:
    bench = Bench()
    spec, labels = {"minAvailable": 1}, {LABEL_OWNER: "llama"}
    bench.event(POD_DISRUPTION_BUDGETS, "ADDED", budget("llama", spec, labels))
    assert bench.take_enqueued() == ([], [LLAMA])
    bench.event(POD_DISRUPTION_BUDGETS, "MODIFIED", budget("llama", spec, labels, status={"a": 1}))
    assert bench.take_enqueued() == ([], [])
    bench.event(POD_DISRUPTION_BUDGETS, "DELETED", budget("llama", spec, labels))
    assert bench.take_enqueued() == ([], [LLAMA])
