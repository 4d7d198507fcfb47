"""The components together, in the operator's process in virtual time."""

import asyncio
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.api_server.fake_api import FakeApi
from tests.support.faults.live_operator import Line, LiveCluster
from tests.support.faults.virtual_time import run_in_virtual_time
from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tonnage.api.names import LABEL_MANAGED_BY, LABEL_OWNER, MANAGED_BY
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    LEADER_WORKER_SETS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
)
from tonnage.kube.protocol import ForbiddenError, Kind, Labels, Object, TransientError
from tonnage.kube.rights import Right
from tonnage.manager.scope import WATCHED

NAMES = tuple(f"llama-{number}" for number in range(6))


async def converged_cluster() -> Cluster:
    cluster = Cluster(MI300X)
    for name in NAMES:
        cluster.apply(name, spec_of())
    await cluster.settle()
    return cluster


async def deny_list_of_pods() -> dict[str, tuple[str, str]]:
    """Condition Ready of each object a few seconds after the list of the pods was denied."""
    start = await converged_cluster()
    async with LiveCluster.led(start.api.copy(), start.behaviours) as live:
        informers = live.replicas[0]._operator._components.informers
        (pods,) = (
            reflector for reflector in informers.by_watch if reflector.selection.kind == PODS
        )
        denied = ForbiddenError("403", Right("list", "", "pods", NAMESPACE))
        live.api.fail_next("list", denied, kind=PODS)
        with pytest.raises(ForbiddenError):
            await pods.list()
        await live.wait(5)
        return {name: live.conditions(name)["Ready"] for name in NAMES}


def test_every_object_becomes_unknown_when_the_list_of_pods_is_denied() -> None:
    ready = run_in_virtual_time(deny_list_of_pods)
    assert ready == dict.fromkeys(NAMES, ("Unknown", "Forbidden"))


async def deny_list_of_leader_worker_sets() -> dict[str, tuple[str, str]]:
    """Condition Ready of each object a few seconds after the list of LeaderWorkerSets was denied;
    the first object has one."""
    start = await converged_cluster()
    async with LiveCluster.led(start.api.copy(), start.behaviours) as live:
        informers = live.replicas[0]._operator._components.informers
        (reflector,) = (
            one for one in informers.by_watch if one.selection.kind == LEADER_WORKER_SETS
        )
        labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_OWNER: NAMES[0]}
        metadata = {"name": "group", "namespace": NAMESPACE, "labels": labels}
        live.api.put(LEADER_WORKER_SETS, {"metadata": metadata, "spec": {}})
        await live.wait(5)
        denied = ForbiddenError("403", Right("list", *_NAME_OF_KIND, NAMESPACE))
        live.api.fail_next("list", denied, kind=LEADER_WORKER_SETS)
        with pytest.raises(ForbiddenError):
            await reflector.list()
        await live.wait(5)
        return {name: live.conditions(name)["Ready"] for name in NAMES}


_NAME_OF_KIND = LEADER_WORKER_SETS.group, LEADER_WORKER_SETS.plural


def test_only_objects_with_a_leader_worker_set_become_unknown_when_their_list_is_denied() -> None:
    ready = run_in_virtual_time(deny_list_of_leader_worker_sets)
    others = dict.fromkeys(NAMES[1:], ("True", "ReplicasReady"))
    assert ready == {NAMES[0]: ("Unknown", "Forbidden")} | others


async def start_without_the_right_to_list_leader_worker_sets() -> list[object]:
    """Condition Ready of an object with a group and of one without, and the workloads: with an
    operator that starts without the right, and after that."""
    start = Cluster({**H100, "count": 3, "resources": {"rdma/ib": "1k"}})
    start.has_leader_worker_set = True
    several_nodes = {"multiNode": {"maxNodes": 2}, "policy": "HighestThroughput"}
    start.apply("group", spec_of("llama-3.3-70b", placement=several_nodes))
    start.apply("single", spec_of())
    await start.settle()
    api, seen = start.api.copy(), []
    api.fail_next(
        "list",
        ForbiddenError("403", Right("list", *_NAME_OF_KIND, None)),
        kind=LEADER_WORKER_SETS,
        times=1000,
    )
    async with LiveCluster.led(api, start.behaviours) as live:
        for _ in range(2):
            await live.wait(5)
            ready = {name: live.conditions(name)["Ready"] for name in ("group", "single")}
            kinds = (DEPLOYMENTS, LEADER_WORKER_SETS)
            names = [body["metadata"]["name"] for kind in kinds for body in api.objects(kind)]
            seen.append((ready, names))
            api.clear_faults()
            informers = live.replicas[0]._operator._components.informers
            for reflector in informers.by_watch:
                if reflector.selection.kind == LEADER_WORKER_SETS:
                    await reflector.list()
    return seen


def test_a_group_stays_the_only_one_where_the_operator_starts_without_the_right() -> None:
    names = ["single-h100-sxm-80gb", "group-h100-sxm-80gb-2nodes"]
    ready = ("True", "ReplicasReady")
    assert run_in_virtual_time(start_without_the_right_to_list_leader_worker_sets) == [
        ({"group": ("Unknown", "Forbidden"), "single": ready}, names),
        ({"group": ready, "single": ready}, names),
    ]


async def lead_while_an_object_is_created() -> dict[str, tuple[str, str]]:
    """Condition Ready of each object; one is created while a new leader lists PriorityClasses."""
    start = await converged_cluster()
    api = start.api.copy()
    new_object = {"metadata": {"name": "new", "namespace": NAMESPACE}, "spec": spec_of()}

    class SlowLine(Line):
        async def list(
            self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
        ) -> list[Object]:
            bodies = await super().list(kind, namespace, labels)
            if kind == PRIORITY_CLASSES and len(api.objects(INFERENCE_DEPLOYMENTS)) == len(NAMES):
                api.put(INFERENCE_DEPLOYMENTS, new_object)
                await asyncio.sleep(5)
            return bodies

    with patch("tests.support.faults.live_operator.Line", SlowLine):
        async with LiveCluster.led(api, start.behaviours) as live:
            return {name: live.conditions(name)["Ready"] for name in (*NAMES, "new")}


def test_an_object_created_while_a_leader_starts_is_reconciled() -> None:
    ready = run_in_virtual_time(lead_while_an_object_is_created)
    assert ready == dict.fromkeys((*NAMES, "new"), ("True", "ReplicasReady"))


async def run_without_the_right_to_list_budgets() -> list[tuple[tuple[str, str], int]]:
    """Condition Ready of an object of two replicas, and the number of budgets: while the operator
    may not list PodDisruptionBudgets, and after that."""
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of(replicas=2))
    denied = ForbiddenError("403", Right("list", "policy", "poddisruptionbudgets", None))
    cluster.api.fail_next("list", denied, kind=POD_DISRUPTION_BUDGETS, times=1000)
    async with LiveCluster.led(cluster.api, {}) as live:
        denied_state = live.conditions("llama")["Ready"], len(budgets_in(live))
        live.api.clear_faults()
        informers = live.replicas[0]._operator._components.informers
        (reflector,) = (
            one for one in informers.by_watch if one.selection.kind == POD_DISRUPTION_BUDGETS
        )
        await reflector.list()
        await live.wait(5)
        return [denied_state, (live.conditions("llama")["Ready"], len(budgets_in(live)))]


def budgets_in(live: LiveCluster) -> list[Object]:
    return live.api.objects(POD_DISRUPTION_BUDGETS)


def test_the_operator_runs_without_the_right_to_list_budgets() -> None:
    states = run_in_virtual_time(run_without_the_right_to_list_budgets)
    assert states == [(("True", "ReplicasReady"), 0), (("True", "ReplicasReady"), 1)]


def lists_of(live: LiveCluster) -> Counter[Kind]:
    """How often each kind was listed that the operator watches; it reads all AcceleratorPools live
    before it reports on them."""
    kinds = set(WATCHED) - {ACCELERATOR_POOLS}
    calls = live.api.calls
    return Counter(call.kind for call in calls if call.verb == "list" and call.kind in kinds)


async def edit_while_kopf_misses_events() -> tuple[list[str], Counter[Kind]]:
    """The stored InferenceDeployments some seconds after kopf has restarted its watch, which missed
    a new one and a deletion; and the lists that this took."""
    start = await converged_cluster()
    async with LiveCluster.led(start.api.copy(), start.behaviours) as live:
        before = lists_of(live)
        live.replicas[0].watch.miss_until_gone(INFERENCE_DEPLOYMENTS, seconds=1)
        live.apply("new", spec_of())
        live.delete(NAMES[0])
        await live.wait(5)
        stores = live.replicas[0]._operator._components.informers.stores
        names = [name for _, name in stores.inference_deployments.object_keys()]
        return names, lists_of(live) - before


def test_a_list_follows_each_restart_of_a_watch_of_kopf() -> None:
    names, listed = run_in_virtual_time(edit_while_kopf_misses_events)
    assert names == [*NAMES[1:], "new"]
    assert listed == {INFERENCE_DEPLOYMENTS: 1}


async def start_with_objects(failing: Kind | None = None) -> tuple[Counter[Kind], int]:
    """The lists of a minute from a start on, and the most at one time. The first list of one kind
    fails."""
    start, running, most = await converged_cluster(), 0, 0
    list_pages = FakeApi.list_pages

    async def list_slowly(*arguments: Any) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.1)
        try:
            return await list_pages(*arguments)
        finally:
            running -= 1

    api = start.api.copy()
    if failing is not None:
        api.fail_next("list", TransientError("503"), kind=failing)
    with patch.object(FakeApi, "list_pages", list_slowly):
        async with LiveCluster.led(api, start.behaviours) as live:
            await live.wait(60)
            return lists_of(live), most


def test_a_start_lists_each_kind_once_and_two_at_a_time() -> None:
    listed, most = run_in_virtual_time(start_with_objects)
    assert len(listed) > 10
    assert set(listed.values()) == {1}
    assert most == 2


def test_after_an_error_a_start_lists_what_is_not_listed_yet() -> None:
    whole, _ = run_in_virtual_time(start_with_objects)
    listed, _ = run_in_virtual_time(lambda: start_with_objects(failing=DEPLOYMENTS))
    assert listed == whole
