"""An old placement shrinks replica by replica as the new one becomes ready."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.controllers import loading, ready
from tests.support.in_memory.serving import served
from tonnage.fit.model import Parallelism
from tonnage.reconcile.actions import Delete, Scale
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.children import Child, ChildDeployment
from tonnage.reconcile.rollout.drain import shift_replicas

KEY = Key("chat", "llama")


def deployment(name: str, *, wanted: int, ready: int, settled: bool = True) -> ChildDeployment:
    return ChildDeployment(
        child=Child(name, "u", "1", {"metadata": {"name": name}}),
        created=datetime(2026, 1, 1, tzinfo=UTC),
        pool=name,
        parallelism=Parallelism(1, 1),
        placement_digest="",
        template="t",
        wanted=wanted,
        existing=wanted,
        ready=ready,
        settled=settled,
    )


@pytest.mark.parametrize(
    ("old", "new", "wanted", "want"),
    [
        pytest.param((2, 2), None, 2, 2, id="nothing leaves before the new one is written"),
        pytest.param((2, 2), (2, 0, True), 2, 2, id="nor before any of it serves"),
        pytest.param((2, 2), (2, 1, True), 2, 1, id="one leaves for each that serves"),
        pytest.param((2, 2), (2, 2, True), 2, 0, id="the last leaves for the last"),
        pytest.param((2, 2), (2, 1, False), 2, 2, id="an old template counts for nothing"),
        pytest.param(
            (3, 3), (1, 1, True), 3, 2, id="without capacity for all the old one has the rest"
        ),
        pytest.param((2, 2), (4, 1, True), 4, 2, id="smaller new ones: more of them are needed"),
        pytest.param((2, 2), (4, 3, True), 4, 1, id="and the old ones leave in the end"),
        pytest.param((4, 4), (2, 1, True), 2, 4, id="larger new ones: the old ones wait for all"),
        pytest.param((4, 4), (2, 2, True), 2, 0, id="and leave together"),
        pytest.param((2, 0), None, 2, 0, id="a placement that does not serve leaves at once"),
        pytest.param((2, 1), (2, 1, True), 2, 1, id="one that fails is the first to leave"),
    ],
)
def test_replicas_that_an_old_placement_keeps(
    old: tuple[int, int], new: tuple[int, int, bool] | None, wanted: int, want: int
) -> None:
    before = deployment("old", wanted=old[0], ready=old[1])
    after = (
        deployment("new", wanted=new[0], ready=new[1], settled=new[2]) if new is not None else None
    )
    shift = shift_replicas(KEY, [before], after, wanted)
    if want == 0:
        assert [type(action) for action in shift.actions] == [Delete]
    elif want < old[0]:
        (action,) = shift.actions
        assert isinstance(action, Scale)
        assert action.replicas == want
        assert [held.replicas for held in shift.reservations] == [want]
    else:
        assert shift.actions == ()
        assert [held.replicas for held in shift.reservations] == [want]


async def moving(accelerator: str, *groups: dict[str, Any], replicas: int) -> Cluster:
    """A cluster whose replicas migrate to another pool, where they load."""
    cluster = await served(
        *groups, replicas=replicas, placement={"accelerators": ["h100-sxm-80gb"]}
    )
    cluster.behaviours["llama"] = lambda pod: (
        loading(pod) if accelerator in pod["metadata"]["name"] else ready(pod)
    )
    cluster.apply("llama", spec_of(replicas=replicas, placement={"accelerators": [accelerator]}))
    await cluster.settle()
    return cluster


async def test_replicas_migrate_one_by_one_without_losing_ready_ones() -> None:
    cluster = await moving("mi300x", MI300X, H100, replicas=3)
    deployments = [cluster.deployment(name) for name in cluster.deployments()]
    assert [body["spec"]["replicas"] for body in deployments] == [3, 3]
    loaded: set[str] = set()
    cluster.behaviours["llama"] = lambda pod: (
        ready(pod)
        if "mi300x" not in pod["metadata"]["name"] or pod["metadata"]["name"] in loaded
        else loading(pod)
    )
    for count in (1, 2):
        name = next(
            pod["metadata"]["name"]
            for pod in cluster.pods()
            if "mi300x" in pod["metadata"]["name"] and pod["metadata"]["name"] not in loaded
        )
        loaded.add(name)
        await cluster.settle()
        assert cluster.deployment("llama-h100-sxm-80gb")["spec"]["replicas"] == 3 - count
        assert cluster.status()["readyReplicas"] == 3
    del cluster.behaviours["llama"]
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.status()["readyReplicas"] == 3


async def test_where_the_new_pool_has_capacity_for_some_the_old_one_carries_the_rest() -> None:
    cluster = await moving("mi300x", {**MI300X, "gpusPerNode": 1}, H100, replicas=3)
    del cluster.behaviours["llama"]
    await cluster.settle()
    assert cluster.deployment("llama-mi300x")["spec"]["replicas"] == 1
    assert cluster.deployment("llama-h100-sxm-80gb")["spec"]["replicas"] == 2
    assert cluster.status()["readyReplicas"] == 3
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    cluster.join(**{**MI300X, "name": "mi300x-more"})
    await cluster.resync()
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.status()["readyReplicas"] == 3
