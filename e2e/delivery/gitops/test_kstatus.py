"""`kstatus`, which Flux uses, and `kubectl wait` are right about every version of a status."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from e2e.doubles.watch_recorder import WatchRecorder
from e2e.harness.admin import Admin
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.kstatus import Verdict, judge
from e2e.models import inference

NAME = "llama"


def llama(**spec: Any) -> Json:
    return inference(NAME, "llama-3.1-8b", **spec)


def verdicts(versions: list[Json]) -> list[str]:
    """What kstatus said in turn, without repetitions."""
    return [str(verdict) for verdict, _ in groupby(judge(version) for version in versions)]


def serves_all(version: Json) -> bool:
    status = version.get("status") or {}
    return bool(
        status.get("observedGeneration") == version["metadata"]["generation"]
        and condition(status, "Ready").get("status") == "True"
        and status.get("readyReplicas", 0) == status.get("desiredReplicas", 0)
    )


def test_kstatus_is_current_exactly_while_all_replicas_of_this_spec_are_ready(
    fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    with WatchRecorder(user.admin, "infd", NAME, user.namespace) as recorder:
        user.apply(llama())
        user.wait_ready(NAME, timeout=240)
        user.apply(llama(behaviour="out-of-memory"))
        failed = has("Stalled", "True", "RolledBack")
        user.wait(NAME, failed, timeout=300, why="no plan to be left but the one before")
        user.apply(llama(max_model_len=16384))
        user.wait_ready(NAME, timeout=240)
        user.admin.delete("infd", NAME)
        user.forget(NAME)
    seen = recorder.versions
    wrong = [
        version for version in seen if (judge(version) is Verdict.CURRENT) != serves_all(version)
    ]
    assert wrong == []
    statuses = verdicts(seen)
    assert statuses[0] == Verdict.IN_PROGRESS
    assert Verdict.FAILED in statuses
    assert statuses[-1] in (Verdict.CURRENT, Verdict.TERMINATING)


def test_an_unobserved_object_is_not_current(installed: Admin, namespace: str) -> None:
    """With the operator down, as at the moment between the creation and the first report."""
    (stored,) = installed.apply(llama())
    assert judge(stored) is Verdict.IN_PROGRESS
    (pool,) = installed.apply(
        {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "AcceleratorPool",
            "metadata": {"name": "unseen"},
            "spec": {"nodeSelector": {"pool": "unseen"}},
        }
    )
    installed.delete("apool", "unseen")
    assert judge(pool) is Verdict.IN_PROGRESS


def test_kubectl_wait_returns_when_it_is_ready_and_not_before(fleet: UseFleet, user: User) -> None:
    fleet("tiny")
    user.apply(llama(behaviour="slow-start"))
    user.admin.kubectl(
        *("wait", "--namespace", user.namespace, "--for=condition=Ready", f"infd/{NAME}"),
        "--timeout=110s",
    )
    assert serves_all(user.get(NAME))
    stalls = llama(behaviour="out-of-memory")
    user.apply(stalls)
    user.admin.kubectl(
        *("wait", "--namespace", user.namespace, "--for=condition=Stalled", f"infd/{NAME}"),
        "--timeout=110s",
    )
    assert condition(user.status(NAME), "Ready")["reason"] == "RolledBack"
