"""The components together, in the operator's process in virtual time."""

import asyncio
from unittest.mock import patch

import pytest

from tests.support.cluster import MI300X, NAMESPACE, Cluster, spec_of
from tests.support.live_operator import Line, LiveCluster, run_in_virtual_time
from tonnage.api.names import LABEL_MANAGED_BY, LABEL_OWNER, MANAGED_BY
from tonnage.kube.kinds import (
    INFERENCE_DEPLOYMENTS,
    LEADER_WORKER_SETS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
)
from tonnage.kube.protocol import ForbiddenError, Kind, Labels, Object
from tonnage.kube.rights import Right

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

    with patch("tests.support.live_operator.Line", SlowLine):
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
