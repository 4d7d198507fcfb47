"""Names that are taken, children and models that are refused: reported, and nothing harmed."""

import pytest

from tests.support.in_memory.cluster import (
    MI300X,
    NAMESPACE,
    Cluster,
    spec_of,
)
from tests.support.in_memory.controllers import crashing
from tests.support.in_memory.serving import SETTLED, served
from tonnage.checkpoint.lookup import ModelPending
from tonnage.kube.kinds import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    SECRETS,
    SERVICES,
)
from tonnage.kube.protocol import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    Kind,
    TransientError,
)
from tonnage.kube.rights import Right

# Names that are taken


async def test_a_foreign_deployment_of_the_same_name_is_left_alone_and_reported() -> None:
    cluster = Cluster(MI300X)
    foreign = {
        "metadata": {"name": "llama-mi300x", "namespace": NAMESPACE},
        "spec": {
            "replicas": 0,
            "template": {"metadata": {"labels": {}}, "spec": {"containers": []}},
            "strategy": {"type": "Recreate"},
        },
    }
    cluster.api.put(DEPLOYMENTS, foreign)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    left = cluster.deployment("llama-mi300x")
    assert left["spec"] == foreign["spec"]
    assert "labels" not in left["metadata"]
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert "Deployment chat/llama-mi300x" in cluster.message("Accepted")
    assert cluster.fleet.view().snapshot().reservations == ()
    cluster.api.remove(DEPLOYMENTS, NAMESPACE, "llama-mi300x")
    await cluster.wait(30)
    assert cluster.conditions() == SETTLED


async def test_a_recreated_object_waits_until_the_old_ones_children_are_gone() -> None:
    cluster = await served(MI300X)
    old = cluster.deployment("llama-mi300x")
    cluster.delete("llama")
    cluster.apply("llama", spec_of(replicas=2))
    assert await cluster.reconcile("llama") == 2.0
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert cluster.deployment("llama-mi300x") == old
    await cluster.settle()
    new = cluster.deployment("llama-mi300x")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert cluster.conditions() == SETTLED
    assert len(cluster.pods()) == 2


@pytest.mark.parametrize("recreated", [True, False], ids=["recreated", "edited"])
async def test_no_status_is_written_on_an_object_that_is_not_the_one_observed(
    recreated: bool,
) -> None:
    cluster = Cluster(MI300X)
    spec = spec_of() | {"model": {"source": {"huggingFace": {"repo": "org/model"}}}}
    cluster.apply("llama", spec)
    cluster.start_operator()  # so that it is reconciled exactly once

    def change_meanwhile(*question: object) -> ModelPending:
        if recreated:
            cluster.delete("llama")
        cluster.apply("llama", spec | {"replicas": 7})
        return ModelPending("reading the model's files")

    cluster.hub.lookup = change_meanwhile
    with pytest.raises(ConflictError):
        await cluster.reconcile("llama")
    assert cluster.status() == {}


async def test_deleting_the_object_leaves_nothing_and_frees_its_gpus() -> None:
    cluster = await served(MI300X)
    cluster.delete("llama")
    await cluster.settle()
    assert cluster.deployments() == []
    assert cluster.pods() == []
    assert cluster.fleet.known_keys() == set()


# What the API server refuses


@pytest.mark.parametrize(
    ("error", "want_requeue"),
    [
        (InvalidError("Deployment is invalid: spec.template: too long"), None),
        (ForbiddenError("exceeded quota: gpus, requested 8, limited to 4"), 60.0),
    ],
    ids=["422", "403 of a quota"],
)
async def test_a_child_that_the_api_server_rejects_is_reported_in_status(
    error: Exception, want_requeue: float | None
) -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    cluster.api.fail_next("apply", error, kind=DEPLOYMENTS)
    assert await cluster.reconcile("llama") == want_requeue
    assert cluster.conditions()["Ready"] == ("False", "ChildRefused")
    assert str(error) in cluster.message("Ready")
    assert cluster.fleet.view().snapshot().reservations == ()
    if want_requeue is not None:
        await cluster.wait(want_requeue)
        assert cluster.conditions() == SETTLED


@pytest.mark.parametrize("error", [ConflictError("409"), TransientError("503")])
async def test_a_passing_error_is_raised_and_not_reported(error: Exception) -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    cluster.api.fail_next("apply", error, kind=DEPLOYMENTS, times=2)
    with pytest.raises(type(error)):
        await cluster.reconcile("llama")
    assert cluster.status() == {}


async def test_a_model_that_the_operator_may_not_read_is_reported_in_status() -> None:
    cluster = Cluster(MI300X)
    source = {"configMap": {"name": "facts"}}
    forbidden = ForbiddenError("configmaps is forbidden")
    cluster.api.fail_next("get", forbidden, kind=CONFIG_MAPS, times=2)
    cluster.apply("llama", spec_of() | {"model": {"source": source}})
    assert await cluster.reconcile("llama") == 15.0
    assert cluster.conditions()["Accepted"] == ("False", "ModelAccessDenied")
    assert "ConfigMap chat/facts may not be read" in cluster.message("Accepted")


async def test_a_token_that_the_operator_may_not_read_is_reported_in_status() -> None:
    cluster = Cluster(MI300X)
    source = {"huggingFace": {"repo": "org/model", "tokenSecretRef": {"name": "hf"}}}
    cluster.api.fail_next("get", ForbiddenError("secrets is forbidden"), kind=SECRETS)
    cluster.apply("llama", spec_of() | {"model": {"source": source}})
    await cluster.reconcile("llama")
    assert cluster.conditions()["Accepted"] == ("False", "ModelAccessDenied")
    want = "Secret chat/hf may not be read by the operator; a Role in this namespace can allow"
    assert want in cluster.message("Accepted")


async def test_a_model_on_its_way_is_no_failure() -> None:
    cluster = Cluster(MI300X)
    source = {"huggingFace": {"repo": "org/model"}}
    cluster.apply("llama", spec_of() | {"model": {"source": source}})
    await cluster.settle()
    assert cluster.conditions() == {
        "Accepted": ("Unknown", "ResolvingModel"),
        "Placed": ("Unknown", "NotAccepted"),
        "Progressing": ("True", "ResolvingModel"),
        "Available": ("False", "NotPlaced"),
        "Ready": ("False", "ResolvingModel"),
        "Reconciling": ("True", "ResolvingModel"),
    }


async def test_an_unreadable_log_is_ignored() -> None:
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = crashing(1, message="ValueError: too few heads")
    cluster.apply("llama", spec_of())
    await cluster.settle()
    cluster.api.fail_next("pod_log", TransientError("504"), times=3)
    await cluster.reconcile("llama")
    assert cluster.conditions()["Ready"] == ("False", "CrashLooping")
    assert "ValueError: too few heads" in cluster.message("Ready")


# What the operator lacks a right for

PATCH = Right("patch", "apps", "deployments", NAMESPACE)
DENIED = ForbiddenError("403", PATCH)


async def test_a_missing_right_is_reported_and_what_is_known_stays() -> None:
    cluster = await served(MI300X)
    cluster.apply("llama", spec_of(workload={"maxModelLen": 16384}))
    cluster.api.fail_next("apply", DENIED, kind=DEPLOYMENTS)
    assert await cluster.reconcile("llama") == 60.0
    assert cluster.conditions() == SETTLED | {
        "Progressing": ("False", "Waiting"),
        "Ready": ("False", "Forbidden"),
        "Stalled": ("True", "Forbidden"),
    }
    assert cluster.message("Ready") == (
        "the operator may not patch deployments.apps in namespace chat;"
        ' add to its role: apiGroups ["apps"], resources ["deployments"], verbs ["patch"]'
    )
    assert cluster.status()["candidates"]
    assert ("Ready", "Forbidden") in cluster.recorder.events
    await cluster.wait(60)
    assert cluster.conditions() == SETTLED


async def test_an_object_that_needs_nothing_is_not_concerned() -> None:
    cluster = await served(MI300X)
    before = cluster.status()
    cluster.api.fail_next("apply", DENIED, kind=DEPLOYMENTS)
    await cluster.reconcile("llama")
    assert cluster.status() == before


async def test_gpus_that_nothing_can_be_started_on_are_left_to_others() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    cluster.api.fail_next("apply", DENIED, kind=DEPLOYMENTS)
    assert await cluster.reconcile("llama") == 60.0
    assert cluster.conditions()["Placed"] == ("True", "PoolChosen")
    assert cluster.conditions()["Ready"] == ("False", "Forbidden")
    assert cluster.fleet.view().snapshot().reservations == ()
    await cluster.wait(60)
    assert cluster.conditions() == SETTLED


@pytest.mark.parametrize("kind", [DEPLOYMENTS, SERVICES, PODS], ids=lambda kind: kind.plural)
async def test_an_object_that_cannot_be_observed_is_neither_ready_nor_unready(kind: Kind) -> None:
    cluster = await served(MI300X)
    before = cluster.status()
    cluster.missing_right = Right("list", kind.group, kind.plural, NAMESPACE)
    with pytest.raises(ForbiddenError):
        await cluster.reconcile("llama")
    assert cluster.conditions() == SETTLED | {
        "Progressing": ("False", "Waiting"),
        "Ready": ("Unknown", "Forbidden"),
        "Stalled": ("True", "Forbidden"),
    }
    assert cluster.message("Ready").startswith(
        f"replica state is unknown: the operator may not list {kind.plural}"
    )
    assert cluster.status()["placements"] == before["placements"]
    cluster.missing_right = None
    await cluster.reconcile("llama")
    assert cluster.conditions() == SETTLED


async def test_conditions_of_an_earlier_generation_are_dropped_without_an_observation() -> None:
    cluster = await served(MI300X)
    cluster.apply("llama", spec_of(replicas=2))
    cluster.missing_right = Right("list", "", "pods", NAMESPACE)
    with pytest.raises(ForbiddenError):
        await cluster.reconcile("llama")
    assert set(cluster.conditions()) == {"Progressing", "Ready", "Stalled"}
    assert cluster.status()["observedGeneration"] == 2
