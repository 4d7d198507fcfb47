"""How the cluster benchmark pairs events of children with those of their parents."""

import asyncio

import pytest

from benchmarks.cluster.api_client import WatchEvent
from benchmarks.cluster.latency_probe import (
    CHANGE_ANNOTATION,
    ChangeProbe,
    LatencyProbe,
    Stage,
    change_of,
    controller_of,
    has_status,
)
from e2e.harness.failure import HarnessError


def parent(name, at, *, has_status=False, generation=1):
    fields = [{"manager": "client", "operation": "Update"}]
    if has_status:
        fields.append({"manager": "operator", "operation": "Apply", "subresource": "status"})
    metadata = {"name": name, "generation": generation, "managedFields": fields}
    return WatchEvent("MODIFIED", {"metadata": metadata}, at)


def child(owner, at, *, value=None, controller=True):
    metadata = {"name": "any", "ownerReferences": [{"name": owner, "controller": controller}]}
    body = {"metadata": metadata}
    if value is not None:
        template = {"metadata": {"annotations": {CHANGE_ANNOTATION: value}}}
        body["spec"] = {"template": template}
    return WatchEvent("ADDED", body, at)


def test_a_stage_is_timed_by_its_first_event_from_the_parents_first_event():
    probe = LatencyProbe()
    probe.handle_parent(parent("a", 10.0))
    probe.handle_child(child("a", 10.5))
    probe.handle_child(child("a", 11.0))
    probe.handle_parent(parent("a", 12.0))
    probe.handle_service(child("a", 12.5))
    probe.handle_parent(parent("a", 13.0, has_status=True))
    probe.handle_parent(parent("a", 14.0, has_status=True))
    delays = {stage: probe.delays(["a"], stage, 99.0) for stage in Stage}
    assert delays == {Stage.CHILD: [0.5], Stage.SERVICE: [2.5], Stage.STATUS: [3.0]}
    assert not probe.missing(["a"], list(Stage))


def test_a_child_may_be_watched_before_its_parent():
    probe = LatencyProbe()
    probe.handle_child(child("a", 10.0))
    probe.handle_parent(parent("a", 10.25))
    assert probe.delays(["a"], Stage.CHILD, 99.0) == [-0.25]


def test_an_object_that_another_one_owns_without_controlling_it_is_no_child():
    probe = LatencyProbe()
    probe.handle_parent(parent("a", 10.0))
    probe.handle_child(child("a", 10.5, controller=False))
    assert probe.missing(["a"], [Stage.CHILD]) == {"a"}


def test_a_late_stage_counts_with_the_time_that_was_waited():
    probe = LatencyProbe()
    probe.handle_parent(parent("a", 10.0))
    assert probe.delays(["a"], Stage.STATUS, 70.0) == [60.0]


async def test_waiting_ends_as_soon_as_all_stages_are_reached():
    probe = LatencyProbe()
    probe.handle_parent(parent("a", 10.0, has_status=True))
    waiting = asyncio.create_task(probe.wait(["a"], [Stage.CHILD, Stage.STATUS], 60.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    probe.handle_child(child("a", 10.5))
    assert await waiting


async def test_waiting_says_that_stages_are_late_and_refuses_a_watch_that_shows_no_parent():
    probe = LatencyProbe()
    probe.handle_parent(parent("a", 10.0))
    assert not await probe.wait(["a"], [Stage.CHILD], 0.01)
    with pytest.raises(HarnessError, match=r"1 of 2 objects were created but never watched.*'b'"):
        await probe.wait(["a", "b"], [Stage.CHILD], 0.01)


def test_a_change_is_timed_from_the_new_generation_to_the_child_that_carries_it():
    probe = ChangeProbe({"a": 3}, "1")
    probe.handle_parent(parent("a", 10.0, generation=3))  # a status, or the end of a create
    probe.handle_child(child("a", 10.5, value="0"))
    probe.handle_parent(parent("a", 11.0, generation=4))
    probe.handle_child(child("a", 11.25))
    assert probe.missing(["a"]) == {"a"}
    assert probe.delays(["a"], 71.0) == [60.0]
    probe.handle_child(child("a", 11.5, value="1"))
    probe.handle_parent(parent("a", 12.0, generation=4))
    probe.handle_child(child("a", 13.0, value="1"))
    assert probe.delays(["a"], 71.0) == [0.5]
    assert not probe.missing(["a"])


async def test_waiting_for_changes_refuses_one_that_made_no_new_generation():
    probe = ChangeProbe({"a": 1, "b": 1}, "1")
    probe.handle_parent(parent("a", 11.0, generation=2))
    with pytest.raises(HarnessError, match="1 of 2 changes made no new generation"):
        await probe.wait(["a", "b"], 0.01)
    assert not await probe.wait(["a"], 0.01)
    probe.handle_child(child("a", 11.5, value="1"))
    assert await probe.wait(["a"], 0.01)


def test_a_missing_stage_has_no_time():
    assert controller_of({"name": "a"}) is None
    assert controller_of({"ownerReferences": [{"name": "x"}]}) is None
    assert not has_status({"name": "a"})
    assert change_of({"metadata": {}}) is None
    assert change_of({"spec": {"template": {"metadata": {"annotations": None}}}}) is None
