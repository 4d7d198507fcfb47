"""A bound volume keeps replicas in its zone: volumes by the real binder, pods by the real
scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from e2e.harness.admin import Admin
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from e2e.volumes import MOUNTED, ZONE, bind_volume
from tests.support.in_memory.cluster import H100, MI300X

FLEET: Final[Json] = {
    "groups": [{**H100, "labels": {ZONE: "a"}}, {**MI300X, "labels": {ZONE: "b"}}]
}


@pytest.fixture
def disk(admin: Admin, user: User) -> Iterator[str]:
    """The name of a volume for the claim `weights`, which is deleted afterwards."""
    name = f"disk-{user.namespace}"
    yield name
    admin.delete("persistentvolumes", name, timeout=None)  # gone after the claim


def test_replicas_are_placed_where_their_volume_is(
    fleet: UseFleet, user: User, admin: Admin, disk: str
) -> None:
    fleet(FLEET)
    bind_volume(admin, user.namespace, disk, zone="a")
    user.apply(inference("llama", "llama-3.1-8b", replicas=1, podTemplate=MOUNTED))
    status = user.wait_ready("llama")
    assert [each["accelerator"] for each in status["placements"]] == [H100["accelerator"]]

    only = {"accelerators": ["mi300x"]}
    user.apply(inference("second", "llama-3.1-8b", podTemplate=MOUNTED, placement=only))
    status = user.wait("second", has("Placed", "False", "NoMatchingNodes"))
    message = condition(status, "Placed")["message"]
    assert f"does not match PersistentVolumeClaim weights: {ZONE} In (a)" in message
    assert user.children("deployments", "second") == []
