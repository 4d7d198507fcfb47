"""What was read before spares a look until an event tells of more, and never leads to a write."""

from datetime import timedelta

import pytest

from tests.support.cluster import MI300X, NAMESPACE, Cluster, spec_of
from tests.support.serving import served
from tests.support.told_apart import LONG, served_apart
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    PRIORITY_CLASSES,
)
from tonnage.kube.protocol import TransientError
from tonnage.reconcile.key import Key
from tonnage.reconcile.looks import GOOD_FOR

LLAMA = Key(NAMESPACE, "llama")
A_LOOK = ["get", "list", "list", "list"]


@pytest.fixture
async def cluster() -> Cluster:
    """One object that serves, and that was looked at since it does."""
    found = await served(MI300X, replicas=1)
    await found.reconcile("llama")
    return found


async def calls(cluster: Cluster) -> list[str]:
    """What the next reconcile asks for, when no event comes before it.

    Left out are the priorities, which are read for all objects together.
    """
    known = len(cluster.api.calls)
    await cluster.reconciler.reconcile(LLAMA)
    return [call.verb for call in cluster.api.calls[known:] if call.kind != PRIORITY_CLASSES]


async def test_an_object_that_nothing_was_told_of_is_not_read_again(cluster: Cluster) -> None:
    assert await calls(cluster) == []
    assert await calls(cluster) == []


async def test_what_the_operator_wrote_itself_is_no_news() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    await cluster.reconcile("llama")
    assert cluster.status()["conditions"]
    known = len(cluster.api.calls)
    await cluster.reconcile("llama")  # its watches tell of two children and a status
    assert cluster.api.calls[known:] == []


@pytest.mark.parametrize("version", ["4711", None])
async def test_a_version_that_was_not_read_is_news(cluster: Cluster, version: str | None) -> None:
    uid = cluster.deployment("llama-mi300x")["metadata"]["uid"]
    cluster.looks.tell(LLAMA, uid, version)
    assert await calls(cluster) == A_LOOK
    assert await calls(cluster) == []


async def test_news_that_comes_during_a_look_counts_unless_the_look_saw_it(
    cluster: Cluster,
) -> None:
    seen = cluster.deployment("llama-mi300x")["metadata"]
    look = cluster.looks.recall(LLAMA)
    cluster.looks.begin(LLAMA)
    cluster.looks.tell(LLAMA, seen["uid"], seen["resourceVersion"])
    cluster.looks.end(LLAMA, look)
    assert await calls(cluster) == []
    cluster.looks.begin(LLAMA)
    cluster.looks.tell(LLAMA, seen["uid"], "4711")
    cluster.looks.end(LLAMA, look)
    assert await calls(cluster) == A_LOOK


async def test_whatever_is_to_be_done_is_looked_at_live_first(cluster: Cluster) -> None:
    pause = spec_of(replicas=1, rollout={"paused": True})
    cluster.apply("llama", pause)  # and no event tells of it
    before = cluster.deployment("llama-mi300x")["spec"]["template"]
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": "mi300x-0"},
        "env": [{"name": "A", "value": "b"}],
    }
    pool = {"metadata": {"name": "team", "uid": "team"}, "spec": spec}
    cluster.api.put(ACCELERATOR_POOLS, pool)
    cluster.watch()
    assert (await calls(cluster))[:4] == A_LOOK
    assert cluster.deployment("llama-mi300x")["spec"]["template"] == before
    assert cluster.conditions()["Progressing"] == ("False", "RolloutPaused")


async def test_an_object_that_is_gone_is_not_planned_for(cluster: Cluster) -> None:
    uid = cluster.inference_deployment()["metadata"]["uid"]
    cluster.delete("llama")
    cluster.looks.tell(LLAMA, uid, None)
    await calls(cluster)
    assert cluster.fleet.view().reserved((NAMESPACE, "llama")) == ()


async def test_an_object_that_is_looked_at_just_now_is_known_and_after_a_failure_is_not(
    cluster: Cluster,
) -> None:
    assert cluster.looks.knows(LLAMA)
    cluster.looks.begin(LLAMA)
    assert cluster.looks.knows(LLAMA)
    cluster.looks.end(LLAMA, None)
    assert not cluster.looks.knows(LLAMA)


async def test_a_look_that_failed_is_not_kept(cluster: Cluster) -> None:
    cluster.looks.forget_all()
    cluster.api.fail_next("list", TransientError("outage"), kind=DEPLOYMENTS)
    with pytest.raises(TransientError):
        await calls(cluster)
    assert await calls(cluster) == A_LOOK


async def test_after_a_while_it_is_read_again_also_where_no_event_came(cluster: Cluster) -> None:
    cluster.clock.advance((GOOD_FOR - timedelta(seconds=1)).total_seconds())
    assert await calls(cluster) == []
    cluster.clock.advance(1)
    assert await calls(cluster) == A_LOOK


async def test_the_endpoint_for_long_requests_is_read_live_and_never_taken_for_its_owner() -> None:
    cluster = await served_apart()
    cluster.looks.forget_all()
    await cluster.reconcile("llama")  # a live look that leaves nothing to write
    known = len(cluster.api.calls)
    await cluster.reconciler.reconcile(LLAMA)
    assert [(call.verb, call.name) for call in cluster.api.calls[known:]] == [("get", LONG)]


async def test_nothing_is_kept_of_a_status_that_is_not_the_operators(cluster: Cluster) -> None:
    cluster.api.set_status(INFERENCE_DEPLOYMENTS, NAMESPACE, "llama", {})
    known = len(cluster.api.calls)
    await cluster.reconcile("llama")
    assert [call.verb for call in cluster.api.calls[known:]] == [*A_LOOK, "apply_status"]
