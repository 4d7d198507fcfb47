"""Argo CD and the operator do not overwrite each other's fields; every diff is counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from e2e.delivery.gitops.applications import KIND, Delivery
from e2e.doubles.watch_recorder import WatchRecorder
from e2e.harness.admin import WRITES
from e2e.harness.operator_process import USER as OPERATOR
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, has
from e2e.models import inference
from e2e.programs.argo_cd import NAMESPACE

SERVER_SIDE = ("ServerSideApply=true",)
CLIENT_SIDE = ()
REPLACE = ("Replace=true",)
SCALED = {"group": "tonnage.dev", "kind": "InferenceDeployment", "jsonPointers": ["/spec/replicas"]}


@dataclass(frozen=True)
class Peace:
    """What must not happen, counted while both are at work on one object."""

    out_of_sync: int  # versions of the Application that were not Synced
    healed: int  # times that Argo CD began to set something back
    generations: int  # different specs that the object had
    written_by_the_operator: int  # requests of the operator that could change more than status


@contextmanager
def counted(user: User, delivery: Delivery) -> Iterator[list[Peace]]:
    """Count from here to the end of the block; the list has the result afterwards."""
    result: list[Peace] = []
    mark = user.admin.audit_mark()
    application = WatchRecorder(user.admin, KIND, delivery.name, NAMESPACE)
    model = WatchRecorder(user.admin, "infd", "llama", user.namespace)
    with application, model:
        yield result
    syncs = [version["status"]["sync"]["status"] for version in application.versions]
    result.append(
        Peace(
            out_of_sync=sum(status != "Synced" for status in syncs),
            healed=sum(is_own_operation(version) for version in application.versions),
            generations=len({version["metadata"]["generation"] for version in model.versions}),
            written_by_the_operator=len(writes_beyond_status(user, mark)),
        )
    )


def is_own_operation(application: Json) -> bool:
    """Whether the operation is one that Argo CD started by itself."""
    return bool(application.get("operation", {}).get("initiatedBy", {}).get("automated"))


def writes_beyond_status(user: User, mark: int) -> list[Json]:
    """The operator's requests that could have changed more of an object than its status."""
    return [
        event
        for event in user.admin.requests(OPERATOR, verbs=WRITES, since=mark)
        if event["objectRef"]["resource"] == "inferencedeployments"
        and event["objectRef"].get("subresource") != "status"
    ]


def lose_a_pod(user: User) -> None:
    """Give the operator something to report: Ready False, and True again."""
    pods = user.admin.until("a pod to lose", lambda: user.pods("llama"))
    user.admin.delete("pods", min(pods), timeout=None)


def llama(**spec: Any) -> Json:
    return inference("llama", "llama-3.1-8b", **spec)


@pytest.mark.parametrize(
    ("options", "times"),
    [(SERVER_SIDE, 100), (CLIENT_SIDE, 20), (REPLACE, 20)],
    ids=["server-side", "client-side", "replace"],
)
def test_syncs_find_no_drift_by_the_operator(
    fleet: UseFleet, user: User, delivery: Delivery, options: tuple[str, ...], times: int
) -> None:
    fleet("tiny")
    delivery.commit({"llama.yaml": llama()})
    delivery.deploy(options=options)
    delivery.wait("Healthy")
    with counted(user, delivery) as result:
        for number in range(times):
            if number % 10 == 0:  # so that the operator has something to report meanwhile
                lose_a_pod(user)
            state = delivery.sync()
            assert state["phase"] == "Succeeded", state["message"]
        user.wait_ready("llama", timeout=240)
        delivery.wait("Healthy")
    assert result == [Peace(out_of_sync=0, healed=0, generations=1, written_by_the_operator=0)]


def test_self_heal_reverts_a_manual_change(fleet: UseFleet, user: User, delivery: Delivery) -> None:
    fleet("tiny")
    delivery.commit({"llama.yaml": llama()})
    delivery.deploy()
    delivery.wait("Healthy")
    with counted(user, delivery) as result:
        user.admin.patch("infd", "llama", {"spec": {"replicas": 2}})
        wait_reverted(user)
        delivery.wait("Healthy")
    (counts,) = result
    assert counts.out_of_sync > 0
    assert counts.healed > 0
    assert counts.generations > 1
    assert counts.written_by_the_operator == 0


def wait_reverted(user: User) -> None:
    """Wait until Argo CD has set the replicas back to what Git says."""
    user.admin.wait_for("infd", "llama", lambda model: model["spec"]["replicas"] == 1, timeout=240)


def restarted(user: User, at: str) -> Json:
    """Write what `kubectl tonnage restart` writes."""
    return user.admin.patch("infd", "llama", {"spec": {"rollout": {"restartedAt": at}}})


@pytest.mark.parametrize("options", [SERVER_SIDE, CLIENT_SIDE], ids=["server-side", "client-side"])
def test_self_heal_keeps_fields_that_git_does_not_set(
    fleet: UseFleet, user: User, delivery: Delivery, options: tuple[str, ...]
) -> None:
    fleet("tiny")
    delivery.commit({"llama.yaml": llama()})
    delivery.deploy(options=options)
    delivery.wait("Healthy")
    moment = "2026-11-22T05:30:00Z"
    generation = restarted(user, moment)["metadata"]["generation"]
    user.wait_ready("llama", timeout=240)
    delivery.see("llama", generation=generation)
    with counted(user, delivery) as result:
        assert delivery.sync()["phase"] == "Succeeded"
    assert result[0].out_of_sync == result[0].healed == 0
    assert user.get("llama")["spec"]["rollout"]["restartedAt"] == moment


def test_replace_removes_fields_that_git_does_not_set(
    fleet: UseFleet, user: User, delivery: Delivery
) -> None:
    fleet("tiny")
    delivery.commit({"llama.yaml": llama()})
    delivery.deploy(options=REPLACE)
    delivery.wait("Healthy")
    generation = restarted(user, "2026-11-22T05:30:00Z")["metadata"]["generation"]
    delivery.see("llama", generation=generation)
    delivery.sync()
    assert "restartedAt" not in user.get("llama")["spec"].get("rollout", {})


def test_an_autoscaler_needs_ignore_differences_if_git_sets_replicas(
    fleet: UseFleet, user: User, delivery: Delivery
) -> None:
    fleet("tiny")
    delivery.commit({"llama.yaml": llama()})
    delivery.deploy()
    delivery.wait("Healthy")
    scale(user, 2)
    wait_reverted(user)

    respected = (*SERVER_SIDE, "RespectIgnoreDifferences=true")
    delivery.deploy(options=respected, ignoreDifferences=[SCALED])
    delivery.wait("Healthy")
    scale(user, 2)
    user.wait("llama", has("Ready"), timeout=240)
    # A sync writes those replicas of which Argo CD knows.
    delivery.see("llama", generation=user.get("llama")["metadata"]["generation"])
    with counted(user, delivery) as result:
        delivery.sync()
    assert result[0].out_of_sync == result[0].healed == 0
    delivery.commit({"llama.yaml": llama(max_model_len=16384)})
    delivery.wait("Healthy")
    spec = user.get("llama")["spec"]
    assert (spec["replicas"], spec["workload"]["maxModelLen"]) == (2, 16384)


def test_an_autoscaler_needs_no_setting_if_git_does_not_set_replicas(
    fleet: UseFleet, user: User, delivery: Delivery
) -> None:
    fleet("tiny")
    unnamed = llama()
    del unnamed["spec"]["replicas"]
    delivery.commit({"llama.yaml": unnamed})
    delivery.deploy()
    delivery.wait("Healthy")
    scale(user, 2)
    with counted(user, delivery) as result:
        delivery.sync()
        user.wait_ready("llama", timeout=240)
    assert result[0].out_of_sync == result[0].healed == 0
    assert user.get("llama")["spec"]["replicas"] == 2


def scale(user: User, replicas: int) -> None:
    """Write what a HorizontalPodAutoscaler writes, where it writes it."""
    user.admin.patch("infd", "llama", {"spec": {"replicas": replicas}}, subresource="scale")
