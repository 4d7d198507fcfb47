"""Whose failure is told while pods of several templates are there."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.cluster import spec_of
from tests.support.observed import observed
from tonnage.api.parse import parse_spec
from tonnage.reconcile.children import ChildPod, ContainerEnd
from tonnage.reconcile.serving import failure_to_serve

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DIED = ContainerEnd(1, "Error", "torch.OutOfMemoryError: CUDA out of memory.")


def pod(name: str, template: str, **fields: Any) -> ChildPod:
    """One that is being started, on the pool of MI300X."""
    starting = ChildPod(name, "mi300x", NOON, "node", False, False, 0, template=template)
    return replace(starting, **fields)


def told(*pods: ChildPod) -> str | None:
    """The pod whose failure is told."""
    found = tuple(sorted(pods, key=lambda one: (one.created, one.name)))
    failure = failure_to_serve(observed(parse_spec(spec_of()), pods=found), None)
    return None if failure is None else failure.subject.removeprefix("pod ")


def test_a_template_that_failed_is_not_told_of_once_another_one_came() -> None:
    later = NOON + timedelta(seconds=1)
    assert told(pod("a", "old", end=DIED), pod("b", "new", created=later)) is None
    assert told(pod("a", "old"), pod("b", "new", created=later, end=DIED)) == "b"


@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("b", "a")])
def test_of_templates_that_came_within_a_second_the_one_that_has_not_failed_counts(
    old: str, new: str
) -> None:
    assert told(pod(old, "old", end=DIED), pod(new, "new")) is None
    assert told(pod(old, "old", end=DIED), pod(new, "new", end=DIED)) in (old, new)


@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("b", "a")])
def test_a_pod_that_waits_is_newer_than_one_of_the_same_second_that_serves_or_died(
    old: str, new: str
) -> None:
    for waiting in ({"unschedulable": "0/1 nodes"}, {"held_back": "gates"}):
        for before in ({"ready": True}, {"end": DIED}):
            assert told(pod(old, "old", **before), pod(new, "new", **waiting)) == new
    assert told(pod(old, "old", end=DIED), pod(new, "new", ready=True)) is None


@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("b", "a")])
def test_a_template_whose_pods_go_hides_no_failure_of_the_other_one(old: str, new: str) -> None:
    assert told(pod(old, "old", deleting=True), pod(new, "new", end=DIED)) == new


def test_each_placement_has_a_newest_template_of_its_own() -> None:
    later = NOON + timedelta(seconds=1)
    there = pod("c", "there", placement="h100", created=later)
    assert told(pod("a", "here", end=DIED), there) == "a"
