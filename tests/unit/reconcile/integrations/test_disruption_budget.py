"""The PodDisruptionBudget of a model: for two replicas and more, and never next to another."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import crashing
from tonnage.kube.kinds import DEPLOYMENTS, POD_DISRUPTION_BUDGETS
from tonnage.kube.protocol import (
    ApiError,
    ForbiddenError,
    InvalidError,
    Object,
    TransientError,
)
from tonnage.kube.rights import Right

CREATE = Right("create", POD_DISRUPTION_BUDGETS.group, POD_DISRUPTION_BUDGETS.plural, NAMESPACE)
OWNER = "tonnage.dev/inferencedeployment"

_FEW_WRITES = 20


async def cluster_with(replicas: int, **spec: Any) -> Cluster:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of(replicas=replicas, **spec))
    await cluster.settle()
    return cluster


def budgets(cluster: Cluster) -> list[str]:
    return [body["metadata"]["name"] for body in cluster.api.objects(POD_DISRUPTION_BUDGETS)]


def protected(cluster: Cluster) -> list[int]:
    """The replicas that each budget keeps."""
    return [one["spec"]["minAvailable"] for one in cluster.api.objects(POD_DISRUPTION_BUDGETS)]


def requests(cluster: Cluster) -> int:
    return sum(call.kind == POD_DISRUPTION_BUDGETS for call in cluster.api.calls)


def user_budget(selector: Object | None, name: str = "mine", **metadata: Any) -> Object:
    spec = {"minAvailable": 1} if selector is None else {"minAvailable": 1, "selector": selector}
    return {"metadata": {"name": name, "namespace": NAMESPACE, **metadata}, "spec": spec}


async def test_two_replicas_have_a_budget_that_keeps_one() -> None:
    cluster = await cluster_with(2)
    live = cluster.api.object(POD_DISRUPTION_BUDGETS, NAMESPACE, "llama")
    assert live["spec"] == {
        "minAvailable": 1,
        "selector": {"matchLabels": {OWNER: "llama"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    uid = cluster.inference_deployment()["metadata"]["uid"]
    (owner,) = live["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (uid, True)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


@pytest.mark.parametrize("replicas", [0, 1])
async def test_fewer_replicas_cost_no_request(replicas: int) -> None:
    cluster = await cluster_with(replicas)
    await cluster.resync()
    assert (budgets(cluster), requests(cluster)) == ([], 0)


async def test_the_budget_follows_the_number_of_replicas() -> None:
    cluster = await cluster_with(1)
    for replicas, want in ((2, [1]), (4, [3]), (3, [2]), (1, []), (3, [2]), (0, [])):
        cluster.apply("llama", spec_of(replicas=replicas))
        await cluster.settle()
        assert protected(cluster) == want, replicas


async def test_an_unchanged_object_costs_no_request() -> None:
    cluster = await cluster_with(2)
    await cluster.resync()
    cluster.start_operator()
    await cluster.settle()
    assert requests(cluster) == 1, "the create"


@pytest.mark.parametrize(("free", "want"), [(8, 7), (3, 2), (1, 1)])
async def test_replicas_without_capacity_do_not_count(free: int, want: int) -> None:
    """Except for the last one, a drain waits for no replica that cannot come."""
    cluster = Cluster(MI300X)
    if free < 8:
        cluster.occupy("mi300x-0", 8 - free)
    cluster.apply("llama", spec_of(replicas=12))
    await cluster.settle()
    assert protected(cluster) == [want]


async def test_a_refused_spec_never_protects_more_replicas_than_there_are() -> None:
    cluster = await cluster_with(4)
    refused = {"workload": {"maxModelLen": -1}}
    for replicas, want in ((4, [3]), (2, [1]), (6, [1]), (1, [])):
        cluster.apply("llama", spec_of(replicas=replicas, **refused))
        await cluster.settle()
        assert cluster.conditions()["Accepted"] == ("False", "InvalidSpec")
        assert protected(cluster) == want, replicas


async def test_a_deleted_or_changed_budget_is_restored() -> None:
    cluster = await cluster_with(2)
    live = cluster.api.object(POD_DISRUPTION_BUDGETS, NAMESPACE, "llama")
    cluster.api.put(POD_DISRUPTION_BUDGETS, {**live, "spec": {**live["spec"], "minAvailable": 9}})
    await cluster.settle()
    restored = cluster.api.object(POD_DISRUPTION_BUDGETS, NAMESPACE, "llama")
    assert restored["spec"] == live["spec"]
    cluster.api.remove(POD_DISRUPTION_BUDGETS, NAMESPACE, "llama")
    await cluster.settle()
    assert budgets(cluster) == ["llama"]


async def test_the_status_of_a_budget_needs_no_reconcile() -> None:
    cluster = await cluster_with(2)
    cluster.reconciled.clear()
    cluster.api.set_status(POD_DISRUPTION_BUDGETS, NAMESPACE, "llama", {"currentHealthy": 1})
    await cluster.settle()
    assert cluster.reconciled == []


SELECTING: dict[str, Object] = {
    "the label of status.selector": {"matchLabels": {OWNER: "llama"}},
    "a label of the user": {"matchLabels": {"app": "chat"}},
    "all pods": {},
    "an expression": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["chat"]}]},
    "a label that is absent": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
}
OTHERS: dict[str, Object | None] = {
    "no pod": None,
    "another object": {"matchLabels": {OWNER: "mistral"}},
    "another value": {
        "matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["chat"]}]
    },
    "a label and another": {"matchLabels": {"app": "chat", "tier": "web"}},
}
LABELLED = {"template": {"metadata": {"labels": {"app": "chat"}}}}


@pytest.mark.parametrize("selector", SELECTING.values(), ids=SELECTING)
async def test_a_budget_of_the_user_takes_the_place_of_the_operators(selector: Object) -> None:
    cluster = await cluster_with(2, **LABELLED)
    cluster.api.put(POD_DISRUPTION_BUDGETS, user_budget(selector))
    await cluster.settle()
    assert budgets(cluster) == ["mine"]
    cluster.api.remove(POD_DISRUPTION_BUDGETS, NAMESPACE, "mine")
    await cluster.settle()
    assert budgets(cluster) == ["llama"]


@pytest.mark.parametrize("selector", OTHERS.values(), ids=OTHERS)
async def test_a_budget_of_other_pods_changes_nothing(selector: Object | None) -> None:
    cluster = await cluster_with(2, **LABELLED)
    cluster.api.put(POD_DISRUPTION_BUDGETS, user_budget(selector))
    await cluster.settle()
    assert budgets(cluster) == ["llama", "mine"]


async def test_a_budget_of_the_same_name_and_other_pods_is_left_alone() -> None:
    cluster = Cluster(MI300X)
    theirs = user_budget({"matchLabels": {"app": "web"}}, name="llama", labels={OWNER: "llama"})
    cluster.api.put(POD_DISRUPTION_BUDGETS, theirs)
    cluster.apply("llama", spec_of(replicas=2))
    await cluster.settle()
    await cluster.resync()
    live = cluster.api.object(POD_DISRUPTION_BUDGETS, NAMESPACE, "llama")
    assert (live["spec"], requests(cluster), cluster.errors) == (theirs["spec"], 0, [])
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


ERRORS: dict[str, ApiError] = {
    "no permission": ForbiddenError("forbidden", CREATE),
    "a policy or a quota": ForbiddenError("denied by quota"),
    "refused": InvalidError("invalid"),
    "outage": TransientError("503"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
async def test_an_error_leaves_the_replicas_ready(
    error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(MI300X)
    cluster.api.fail_next("apply", error, kind=POD_DISRUPTION_BUDGETS, times=100)
    cluster.apply("llama", spec_of(replicas=2))
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    assert budgets(cluster) == []
    assert "PodDisruptionBudget of chat/llama not written" in caplog.text
    assert cluster.api.write_count < _FEW_WRITES, "it is not tried again and again"
    cluster.api.clear_faults()
    await cluster.resync()
    assert budgets(cluster) == ["llama"]


async def test_unknown_budgets_stay_as_they_are() -> None:
    cluster = await cluster_with(2)
    cluster.has_budgets = False
    cluster.apply("llama", spec_of(replicas=1))
    cluster.apply("mistral", spec_of(replicas=2))
    await cluster.settle()
    assert budgets(cluster) == ["llama"]


async def test_a_pause_keeps_the_budget() -> None:
    cluster = await cluster_with(2)
    cluster.apply("llama", spec_of(replicas=2, rollout={"paused": True}))
    await cluster.settle()
    assert budgets(cluster) == ["llama"]


async def test_a_rollback_keeps_the_budget() -> None:
    cluster = await cluster_with(2)
    cluster.behaviours["llama"] = crashing()
    engine = {"vllm": {"extraArgs": ["--seed=7"]}}
    cluster.apply("llama", spec_of(replicas=2, engine=engine))
    await cluster.settle()
    assert budgets(cluster) == ["llama"]


async def test_an_object_that_fits_nowhere_has_no_budget() -> None:
    cluster = Cluster()
    cluster.apply("llama", spec_of(replicas=2))
    await cluster.settle()
    assert cluster.api.objects(DEPLOYMENTS) == []
    assert requests(cluster) == 0


async def test_the_budget_goes_with_its_owner() -> None:
    cluster = await cluster_with(2)
    cluster.delete("llama")
    await cluster.settle()
    assert budgets(cluster) == []
