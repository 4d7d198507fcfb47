"""A store keeps the newest version of each object, in whatever order versions arrive."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.support.faults.fake_clock import FakeClock
from tests.support.fleets.objects import node, pod
from tonnage import delays
from tonnage.api.names import LABEL_OWNER
from tonnage.informers.expectations import Expectations
from tonnage.informers.store import Change, ObjectKey, Store, parse_version
from tonnage.informers.stores import Stores, pack, unpack
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    COMPUTE_DOMAINS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    INFERENCE_DEPLOYMENTS,
    JOBS,
    LEADER_WORKER_SETS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    SERVICES,
)
from tonnage.kube.protocol import Kind, Object

TEAM = "team"


def obj(
    version: int, uid: str = "u", name: str = "a", namespace: str = "chat", **labels: str
) -> Object:
    metadata = {"name": name, "namespace": namespace, "uid": uid, "labels": labels}
    return {"metadata": {**metadata, "resourceVersion": str(version)}}


def teams(body: Object) -> Iterable[str]:
    label = body["metadata"]["labels"].get(TEAM)
    return label.split(".") if label else ()


class ObservedStore:
    """A store of `uid@version` of each object, and the changes that it reported."""

    def __init__(self) -> None:
        self.changes: list[Change[str]] = []
        self.clock = FakeClock()
        self.store: Store[str] = Store(
            lambda body: f"{body['metadata']['uid']}@{body['metadata']['resourceVersion']}",
            find_owners=teams,
            on_change=self.changes.append,
            expectations=Expectations(lambda: self.clock.seconds),
        )

    def take_list(self, version: int, *objects: Object, namespace: str | None = None) -> int:
        listing = self.store.begin_list(namespace)
        for each in objects:
            listing.take(each)
        return listing.end(str(version))

    @property
    def values(self) -> list[str]:
        return sorted(self.store.values())

    def index(self) -> dict[Any, list[str]]:
        keys = self.store.owners()
        return {key: self.store.owned_by(key) for key in keys}


@pytest.fixture
def observed() -> ObservedStore:
    return ObservedStore()


Step = Callable[[ObservedStore], object]


def event(event_type: str | None, version: int, uid: str = "u", **more: str) -> Step:
    return lambda observed: observed.store.observe(event_type, obj(version, uid, **more))


def written(version: int, uid: str = "u", **more: str) -> Step:
    return lambda observed: observed.store.put_written(obj(version, uid, **more))


def deleted(uid: str = "u", name: str = "a") -> Step:
    return lambda observed: observed.store.remove_deleted("chat", name, uid)


def listed(version: int, *objects: Object, namespace: str | None = None) -> Step:
    return lambda observed: observed.take_list(version, *objects, namespace=namespace)


def passed(seconds: float) -> Step:
    return lambda observed: observed.clock.advance(seconds)


def during_a_write(*steps: Step) -> Step:
    def take(observed: ObservedStore) -> None:
        with observed.store.write_in_flight("chat", "a"):
            for step in steps:
                step(observed)

    return take


HISTORIES: dict[str, tuple[list[Step], list[str]]] = {
    # Writes in flight
    "an event that arrives during a write is stored after it": (
        [event("ADDED", 5), during_a_write(event("MODIFIED", 6))],
        ["u@6"],
    ),
    "waiting events keep their order": (
        [during_a_write(event("ADDED", 5), event("DELETED", 6), event("ADDED", 7, "v"))],
        ["v@7"],
    ),
    "a deletion that arrives during a write counts": (
        [event("ADDED", 5), during_a_write(event("DELETED", 7), written(6))],
        [],
    ),
    "events of other objects do not wait": (
        [during_a_write(event("ADDED", 5, "v", name="b"), deleted("v", "b"))],
        [],
    ),
    # Versions
    "a newer event replaces an older one": (
        [event("ADDED", 5), event("MODIFIED", 6)],
        ["u@6"],
    ),
    "an older event replaces nothing": ([event("ADDED", 6), event("MODIFIED", 5)], ["u@6"]),
    "versions are compared as numbers": ([event("ADDED", 9), event("MODIFIED", 10)], ["u@10"]),
    "versions are not compared as text": (
        [event("ADDED", 10), event("MODIFIED", 9)],
        ["u@10"],
    ),
    "an object that kopf has listed counts as an event": (
        [event(None, 5), event(None, 4)],
        ["u@5"],
    ),
    # Own writes
    "the answer to an own write is stored": ([event("ADDED", 5), written(6)], ["u@6"]),
    "the answer to a create is stored": ([written(6)], ["u@6"]),
    "an event from before an own write changes nothing": (
        [event("ADDED", 5), written(7), event("MODIFIED", 6)],
        ["u@7"],
    ),
    "an answer that arrives after a newer event changes nothing": (
        [event("ADDED", 5), event("MODIFIED", 8), written(7)],
        ["u@8"],
    ),
    "answers to own writes may arrive in any order": ([written(7), written(6)], ["u@7"]),
    # Deletions
    "a deleted object is gone": ([event("ADDED", 5), event("DELETED", 6)], []),
    "an object that the operator has deleted is gone before its event": (
        [event("ADDED", 5), deleted()],
        [],
    ),
    "a late event does not bring back an object that the operator has deleted": (
        [event("ADDED", 5), deleted(), event("MODIFIED", 6)],
        [],
    ),
    "a late answer to a write does not bring back an object whose deletion has arrived": (
        [event("ADDED", 5), event("DELETED", 7), written(6)],
        [],
    ),
    "a late list does not bring back an object that the operator has deleted": (
        [event("ADDED", 5), deleted(), listed(6, obj(5))],
        [],
    ),
    "an event older than the deletion of an unknown object adds nothing": (
        [event("DELETED", 7), event("ADDED", 5)],
        [],
    ),
    "an event that says DELETED for an older version is outdated": (
        [written(9), event("DELETED", 7)],
        ["u@9"],
    ),
    # The same name again
    "an object of the same name takes the place of the old one": (
        [event("ADDED", 5), event("ADDED", 8, "new")],
        ["new@8"],
    ),
    "a late deletion of the old object does not touch the new one": (
        [event("ADDED", 5), event("ADDED", 8, "new"), event("DELETED", 7)],
        ["new@8"],
    ),
    "the operator's deletion of the old object does not touch the new one": (
        [event("ADDED", 8, "new"), deleted("u")],
        ["new@8"],
    ),
    "a deletion of a new object without an earlier event removes the old one": (
        [event("ADDED", 5), event("DELETED", 8, "new"), written(6)],
        [],
    ),
    "a late event of the old object does not touch the new one": (
        [event("ADDED", 8, "new"), event("MODIFIED", 6)],
        ["new@8"],
    ),
    "a new object comes after the operator has deleted the old one": (
        [event("ADDED", 5), deleted(), event("ADDED", 8, "new")],
        ["new@8"],
    ),
    "the old object does not come back when the new one is gone": (
        [event("ADDED", 5), event("ADDED", 8, "new"), deleted("new"), written(6)],
        [],
    ),
    # Selections
    "an object that is selected again comes back": (
        [event("ADDED", 5), event("DELETED", 6), event("ADDED", 7)],
        ["u@7"],
    ),
    "an object that a list shows again comes back": (
        [listed(6, obj(5)), listed(8), listed(10, obj(9))],
        ["u@9"],
    ),
    "a list from before a deletion is outdated": (
        [event("ADDED", 5), event("DELETED", 6), listed(6, obj(5))],
        [],
    ),
    # Lists
    "an object that a list does not show is gone": (
        [event("ADDED", 5), event("ADDED", 6, "v", name="b"), listed(7, obj(5))],
        ["u@5"],
    ),
    "an object newer than the list stays": (
        [event("ADDED", 5), event("ADDED", 8, "v", name="b"), listed(7, obj(5))],
        ["u@5", "v@8"],
    ),
    "an own write that is newer than the list stays": ([written(8), listed(7)], ["u@8"]),
    "a list does not make an object older": ([event("ADDED", 8), listed(9, obj(5))], ["u@8"]),
    "a list adds an object without an event": ([listed(7, obj(5))], ["u@5"]),
    "an older event does not bring back an object that a list removed": (
        [event("ADDED", 5), listed(7), event("MODIFIED", 6)],
        [],
    ),
    "a list of a namespace does not remove objects of others": (
        [
            event("ADDED", 5),
            event("ADDED", 6, "v", namespace="search"),
            listed(7, namespace="search"),
        ],
        ["u@5"],
    ),
    "a list of all namespaces removes objects of each": (
        [event("ADDED", 5), event("ADDED", 6, "v", namespace="search"), listed(7)],
        [],
    ),
    "objects of the same name in two namespaces are two": (
        [event("ADDED", 5), event("ADDED", 6, "v", namespace="search")],
        ["u@5", "v@6"],
    ),
    # Time
    "a deletion is not remembered for ever": (
        [event("ADDED", 5), deleted(), passed(delays.EXPECTATION), event("ADDED", 6)],
        ["u@6"],
    ),
}


@pytest.mark.parametrize(("steps", "want"), HISTORIES.values(), ids=HISTORIES)
def test_the_store_keeps_the_newest_version(
    observed: ObservedStore, steps: list[Step], want: list[str]
) -> None:
    for step in steps:
        step(observed)
    assert observed.values == want


@pytest.mark.parametrize(("steps", "want"), HISTORIES.values(), ids=HISTORIES)
def test_the_changes_replay_to_the_stored_objects(
    observed: ObservedStore, steps: list[Step], want: list[str]
) -> None:
    for step in steps:
        step(observed)
    replayed: dict[ObjectKey, str] = {}
    for change in observed.changes:
        assert replayed.get(change.place) == change.before
        assert change.before != change.after, "no change is reported twice"
        assert (change.obj is None) == (change.after is None)
        if change.after is None:
            del replayed[change.place]
        else:
            replayed[change.place] = change.after
    assert sorted(replayed.values()) == want


def test_an_event_answer_or_list_without_a_newer_version_is_no_change(
    observed: ObservedStore,
) -> None:
    for step in (event("ADDED", 5), event("MODIFIED", 5), written(5), listed(6, obj(5))):
        step(observed)
    deleted("never-there")(observed)
    event("DELETED", 4, "never-there")(observed)
    assert len(observed.changes) == 1


OWN: dict[str, tuple[list[Step], list[bool]]] = {
    "an event": ([event("ADDED", 5)], [False]),
    "an own write, and its event": ([written(5), event("ADDED", 5)], [True]),
    "the event of an own write before its answer": ([event("ADDED", 5), written(5)], [False]),
    "the event of a write in flight before its answer": (
        [during_a_write(event("ADDED", 5), written(5))],
        [True],
    ),
    "another writer's change while a write is in flight": (
        [during_a_write(event("MODIFIED", 6), written(5))],
        [True, False],
    ),
    "the event of another writer, where the operator's write is refused": (
        [during_a_write(event("ADDED", 5))],
        [False],
    ),
    "another writer's change after an own write": (
        [written(5), event("MODIFIED", 6)],
        [True, False],
    ),
    "an own deletion, and its event": (
        [event("ADDED", 5), deleted(), event("DELETED", 6)],
        [False, True],
    ),
    "another writer's deletion": ([written(5), event("DELETED", 6)], [True, False]),
    "an object in a list, and its removal by one": (
        [listed(6, obj(5)), listed(7)],
        [False, False],
    ),
}


@pytest.mark.parametrize(("steps", "want"), OWN.values(), ids=OWN)
def test_a_change_says_whether_the_operator_made_it(
    observed: ObservedStore, steps: list[Step], want: list[bool]
) -> None:
    for step in steps:
        step(observed)
    assert [change.is_own for change in observed.changes] == want


# Indexes


def test_an_index_finds_objects_by_each_of_their_keys_in_order(observed: ObservedStore) -> None:
    event("ADDED", 5, "u", name="b", team="x")(observed)
    event("ADDED", 6, "v", name="a", team="x.y")(observed)
    event("ADDED", 7, "w", name="c")(observed)
    assert observed.index() == {"x": ["v@6", "u@5"], "y": ["v@6"]}
    assert observed.store.owned_by("z") == []


RELABELLINGS: dict[str, list[Step]] = {
    "by an event": [event("MODIFIED", 6, team="y")],
    "by an own write": [written(6, team="y")],
    "by a list": [listed(7, obj(6, team="y"))],
    "by another object of its name": [event("ADDED", 6, "u", team="z"), written(7, team="y")],
}


@pytest.mark.parametrize("steps", RELABELLINGS.values(), ids=RELABELLINGS)
def test_an_object_whose_label_changes_is_found_by_the_new_one_only(
    observed: ObservedStore, steps: list[Step]
) -> None:
    event("ADDED", 5, team="x")(observed)
    for step in steps:
        step(observed)
    assert list(observed.index()) == ["y"]
    assert observed.index()["y"] == observed.values


REMOVALS: dict[str, Step] = {
    "by an event": event("DELETED", 6, team="x"),
    "by the operator": deleted(),
    "by a list": listed(7),
    "by losing its label": event("MODIFIED", 6),
}


@pytest.mark.parametrize("end", REMOVALS.values(), ids=REMOVALS)
def test_an_index_forgets_a_removed_object_and_its_key(observed: ObservedStore, end: Step) -> None:
    event("ADDED", 5, team="x")(observed)
    end(observed)
    assert observed.index() == {}


def test_a_change_has_the_index_keys_before_and_after(observed: ObservedStore) -> None:
    event("ADDED", 5, team="x")(observed)
    event("MODIFIED", 6, team="y.x")(observed)
    event("MODIFIED", 7)(observed)
    event("DELETED", 8)(observed)
    keys = [set(change.owners) for change in observed.changes]
    assert keys == [{"x"}, {"x", "y"}, {"x", "y"}, set()]


# Lists of metadata


def test_a_list_of_metadata_finds_objects_that_the_store_lacks(observed: ObservedStore) -> None:
    event("ADDED", 5)(observed)
    event("ADDED", 6, "v", name="b")(observed)
    event("ADDED", 7, "w", name="c")(observed)
    event("DELETED", 8, "w", name="c")(observed)
    listing = observed.store.begin_list()
    shown = {
        "same version": obj(5),
        "older version": obj(4, "v", name="b"),
        "deleted since": obj(7, "w", name="c"),
        "newer version": obj(9),
        "unknown": obj(9, "x", name="d"),
    }
    confirmed = {name: listing.confirm(each) for name, each in shown.items()}
    assert confirmed == {
        "same version": True,
        "older version": True,
        "deleted since": True,
        "newer version": False,
        "unknown": False,
    }
    assert observed.values == ["u@5", "v@6"], "metadata alone changes nothing"


def test_a_list_returns_how_many_objects_it_removed(observed: ObservedStore) -> None:
    for number in range(4):
        event("ADDED", 5 + number, f"u{number}", name=f"n{number}")(observed)
    listing = observed.store.begin_list()
    listing.confirm(obj(5, "u0", name="n0"))
    assert not listing.is_exact("7")
    assert listing.end("7") == 2  # the fourth is newer than the list
    assert observed.values == ["u0@5", "u3@8"]
    assert listing.is_exact("7")


def test_a_version_that_is_no_number_is_older_than_all_others() -> None:
    versions = ["", "abc", "-1", "1.5", "0", "1", "42"]
    assert [parse_version(version) for version in versions] == [0, 0, 0, 0, 0, 1, 42]


# The stores of all kinds


def test_a_packed_object_is_the_same_without_its_managed_fields() -> None:
    body: Object = {
        "metadata": {"name": "a", "labels": {"ä": "×"}},
        "spec": {"b": [1, 2.5, None, True]},
    }
    managed = {**body, "metadata": {**body["metadata"], "managedFields": [{"manager": "kubectl"}]}}
    assert unpack(pack(managed)) == body
    assert "managedFields" in managed["metadata"], "the packed object is not touched"


def test_no_caller_can_change_a_stored_object() -> None:
    stores, body = Stores(), obj(5)
    stores.store_for(DEPLOYMENTS).observe("ADDED", body)
    body["metadata"]["labels"]["changed"] = "yes"
    deployment = stores.lookup(DEPLOYMENTS, "chat", "a")
    assert deployment is not None
    deployment["metadata"]["labels"]["changed"] = "yes"
    assert stores.lookup(DEPLOYMENTS, "chat", "a") == obj(5)


def test_objects_are_found_by_their_owner() -> None:
    stores = Stores()
    for kind in (DEPLOYMENTS, SERVICES, PODS):
        stores.store_for(kind).observe("ADDED", obj(5, **{LABEL_OWNER: "llama"}))
        stores.store_for(kind).observe("ADDED", obj(6, "v", name="b", **{LABEL_OWNER: "gemma"}))
        assert [each["metadata"]["uid"] for each in stores.owned(kind, ("chat", "llama"))] == ["u"]
        assert stores.owned(kind, ("search", "llama")) == []


def test_the_store_keeps_only_the_gpus_of_a_foreign_pod() -> None:
    stores, foreign = Stores(), pod(gpus=2)
    foreign["metadata"]["resourceVersion"] = "5"
    stores.pods.observe("ADDED", foreign)
    (entry,) = stores.pods.values()
    assert entry.packed is None
    assert entry.gpus is not None
    assert entry.gpus.uid == "p1"


def test_owners_lists_each_object_and_each_owner_of_one() -> None:
    stores = Stores()
    stores.inference_deployments.observe("ADDED", obj(5, name="llama"))
    stores.store_for(DEPLOYMENTS).observe("ADDED", obj(6, **{LABEL_OWNER: "gone"}))
    stores.services.observe("ADDED", obj(7, **{LABEL_OWNER: "llama"}))
    assert stores.owners() == [("chat", "gone"), ("chat", "llama")]


def test_workloads_come_by_owner_and_no_owner_twice() -> None:
    stores = Stores()
    for kind, version, name, owner in (
        (LEADER_WORKER_SETS, 5, "two-nodes", "llama"),
        (DEPLOYMENTS, 6, "one-node", "llama"),
        (DEPLOYMENTS, 7, "other", "gemma"),
    ):
        body = obj(version, f"u{version}", name=name, **{LABEL_OWNER: owner})
        stores.store_for(kind).observe("ADDED", body)
    stores.services.observe("ADDED", obj(8, "u8", name="service", **{LABEL_OWNER: "bert"}))
    names = {
        owner: [body["metadata"]["name"] for body in bodies]
        for owner, bodies in stores.workloads_by_owner()
    }
    assert names == {("chat", "gemma"): ["other"], ("chat", "llama"): ["one-node", "two-nodes"]}


def test_objects_does_not_see_later_changes() -> None:
    stores = Stores()
    stores.inference_deployments.observe("ADDED", obj(5, name="a"))
    objects = stores.objects(INFERENCE_DEPLOYMENTS)
    stores.inference_deployments.observe("ADDED", obj(6, uid="v", name="b"))
    assert [each["metadata"]["name"] for each in objects] == ["a"]


def test_a_cluster_scoped_object_has_no_namespace() -> None:
    stores, body = Stores(), node("gpu-1")
    body["metadata"]["resourceVersion"] = "5"
    stores.nodes.observe("ADDED", body)
    assert stores.nodes.object_keys() == [("", "gpu-1")]
    stored = stores.nodes.get(None, "gpu-1")
    assert stored is not None
    assert stored.name == "gpu-1"


def test_own_writes_of_kinds_without_a_store_change_nothing() -> None:
    changes: list[tuple[Kind, Change[Any]]] = []
    stores = Stores(lambda *change: changes.append(change))
    for kind in (CONFIG_MAPS, NODES, PODS):
        stores.put_written(kind, obj(5))
        stores.remove_deleted(kind, "chat", "a", "u")
    assert changes == []
    stores.put_written(SERVICES, obj(5))
    stores.remove_deleted(SERVICES, "chat", "a", "u")
    assert [(kind, change.is_own) for kind, change in changes] == [(SERVICES, True)] * 2


def test_each_change_names_its_kind() -> None:
    kinds: list[Kind] = []
    stores = Stores(lambda kind, _: kinds.append(kind))
    expected = (
        *(INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS, DEPLOYMENTS, SERVICES, PODS, NODES),
        POD_DISRUPTION_BUDGETS,
        RESOURCE_QUOTAS,
        LIMIT_RANGES,
        NAMESPACES,
        LEADER_WORKER_SETS,
        *(RESOURCE_SLICES, RESOURCE_CLAIMS, DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES),
        JOBS,
        COMPUTE_DOMAINS,
    )
    assert set(stores.kinds) == set(expected)
    for kind in expected:
        body = pod("p") if kind == PODS else node()
        body["metadata"]["resourceVersion"] = "5"
        stores.store_for(kind).observe("ADDED", body)
    assert kinds == list(expected)


def test_the_index_of_owners_has_the_controller_too() -> None:
    stores, body = Stores(), obj(5)
    owner = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "InferenceDeployment", "name": "llama"}
    body["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    stores.services.observe("ADDED", body)
    assert stores.services.owners() == {("chat", "llama")}
