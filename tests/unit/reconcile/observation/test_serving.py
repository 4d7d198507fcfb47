"""Which failure is reported while pods of several templates exist."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.in_memory.cluster import spec_of
from tests.support.specs.observed import observed
from tonnage.api.parse import parse_spec
from tonnage.reconcile.observation.child_pods import ChildPod, ContainerEnd
from tonnage.reconcile.observation.serving import failure_to_serve

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DIED = ContainerEnd(1, "Error", "torch.OutOfMemoryError: CUDA out of memory.")


def pod(name: str, template: str, **fields: Any) -> ChildPod:
    """A starting pod, on the pool of MI300X."""
    starting = ChildPod(name, "mi300x", NOON, "node", False, False, 0, template=template)
    return replace(starting, **fields)


def failed_pod(*pods: ChildPod) -> str | None:
    """The pod whose failure is reported."""
    ordered = tuple(sorted(pods, key=lambda each: (each.created, each.name)))
    failure = failure_to_serve(observed(parse_spec(spec_of()), pods=ordered), None)
    return None if failure is None else failure.subject.removeprefix("pod ")


def test_a_failed_template_is_not_reported_once_a_newer_one_exists() -> None:
    later = NOON + timedelta(seconds=1)
    assert failed_pod(pod("a", "old", end=DIED), pod("b", "new", created=later)) is None
    assert failed_pod(pod("a", "old"), pod("b", "new", created=later, end=DIED)) == "b"


@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("b", "a")])
def test_of_templates_of_one_second_the_one_that_has_not_failed_counts(old: str, new: str) -> None:
    assert failed_pod(pod(old, "old", end=DIED), pod(new, "new")) is None
    assert failed_pod(pod(old, "old", end=DIED), pod(new, "new", end=DIED)) in (old, new)


@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("b", "a")])
def test_a_pod_that_waits_is_newer_than_one_of_the_same_second_that_serves_or_died(
    old: str, new: str
) -> None:
    for waiting in ({"unschedulable": "0/1 nodes"}, {"held_back": "gates"}):
        for before in ({"ready": True}, {"end": DIED}):
            assert failed_pod(pod(old, "old", **before), pod(new, "new", **waiting)) == new
    assert failed_pod(pod(old, "old", end=DIED), pod(new, "new", ready=True)) is None


@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("b", "a")])
def test_a_template_whose_pods_are_deleted_hides_no_failure_of_another(old: str, new: str) -> None:
    assert failed_pod(pod(old, "old", deleting=True), pod(new, "new", end=DIED)) == new


def test_each_placement_has_a_newest_template_of_its_own() -> None:
    later = NOON + timedelta(seconds=1)
    there = pod("c", "there", placement="h100", created=later)
    assert failed_pod(pod("a", "here", end=DIED), there) == "a"
