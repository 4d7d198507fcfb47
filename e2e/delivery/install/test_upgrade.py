"""A newer operator adopts the objects of an older one in a real cluster, and rolls no pod."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.doubles.watch_recorder import WatchRecorder
from e2e.harness.admin import WRITES, Admin
from e2e.harness.operator_process import USER, OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack, down, up
from e2e.journeys.user import User, has
from e2e.recordings.objects import NAMESPACE
from e2e.recordings.record import prepare
from e2e.recordings.recording import FOLDER, Recording
from e2e.recordings.restore import Restorer
from tests.support.faults.recordings import comparable_status

RECORDINGS = sorted(FOLDER.glob("*.json.gz"))
WATCHED = ("deployments", "replicasets", "pods", "services", "infd")


@pytest.fixture(params=RECORDINGS, ids=lambda path: str(path.name).split(".")[0])
def recording(request: pytest.FixtureRequest) -> Recording:
    return Recording.load(request.param)


@pytest.fixture
def fresh_stack(tmp_path: Path) -> Iterator[Stack]:
    """A control plane in which no operator has ever run."""
    root = tmp_path / "stack"
    yield up(root, owner_pid=os.getpid())
    down(root)


@pytest.fixture
def restored(fresh_stack: Stack, recording: Recording) -> Admin:
    """That control plane with the recorded objects in it."""
    admin = Admin(fresh_stack.kubeconfig, fresh_stack.kubectl, audit_log=fresh_stack.audit_log)
    prepare(admin)
    admin.namespace = NAMESPACE
    Restorer(fresh_stack, admin, recording).restore()
    return admin


def uids(admin: Admin, kind: str) -> dict[str, str]:
    return {body["metadata"]["name"]: body["metadata"]["uid"] for body in admin.items(kind)}


def specs(admin: Admin, kind: str) -> dict[str, Json]:
    return {body["metadata"]["name"]: body["spec"] for body in admin.items(kind)}


def is_ready(body: Json) -> bool:
    return bool(has("Ready")(body.get("status") or {}))


def statuses(admin: Admin) -> dict[str, object]:
    return {
        body["metadata"]["name"]: comparable_status(body.get("status") or {})
        for body in admin.items("infd")
    }


def ready_names(admin: Admin) -> set[str]:
    return {body["metadata"]["name"] for body in admin.items("infd") if is_ready(body)}


def written(admin: Admin, mark: int) -> list[tuple[str, str, str]]:
    """Resource, name and subresource of each write of the operator since a mark of the audit log,
    but for its Lease and for events."""
    references = [event["objectRef"] for event in admin.requests(USER, verbs=WRITES, since=mark)]
    return [
        (reference["resource"], reference.get("name", ""), reference.get("subresource", ""))
        for reference in references
        if reference["resource"] not in ("leases", "events")
    ]


def test_an_upgrade_of_a_recorded_cluster_rolls_no_pod(
    restored: Admin, fresh_stack: Stack, tmp_path: Path
) -> None:
    admin = restored
    kept = ("deployments", "pods", "services")
    before = {kind: uids(admin, kind) for kind in kept}
    spec = {kind: specs(admin, kind) for kind in ("deployments", "services")}
    ready = ready_names(admin)
    status = statuses(admin)
    assert len(ready) >= 20
    operator = OperatorProcess(fresh_stack, tmp_path / "operator")
    mark = admin.audit_mark()
    with ExitStack() as watches:
        recorders = {
            kind: watches.enter_context(WatchRecorder(admin, kind, None, NAMESPACE))
            for kind in WATCHED
        }
        watches.callback(operator.close)
        operator.start()
        admin.until("the operator to lead", lambda: operator.leads, timeout=240)
        User(admin, NAMESPACE).await_quiet()
        for body in admin.items("infd"):  # an event for each object: the operator reconciles it
            patch = {"metadata": {"annotations": {"example.com/seen": "true"}}}
            admin.patch("infd", body["metadata"]["name"], patch)
        User(admin, NAMESPACE).await_quiet()

    names = {body["metadata"]["name"] for body in admin.items("infd")}
    assert {body["metadata"]["name"] for body in recorders["infd"].versions} == names
    for kind, recorder in recorders.items():
        events = [(event, body["metadata"]["name"]) for event, body in recorder.events]
        assert [event for event in events if event[0] != "MODIFIED"] == [], kind
    for kind, by_name in spec.items():
        for body in recorders[kind].versions:
            assert body["spec"] == by_name[body["metadata"]["name"]]
    for body in recorders["infd"].versions:
        name = body["metadata"]["name"]
        assert is_ready(body) or name not in ready, f"{name} lost Ready"
    assert {kind: uids(admin, kind) for kind in kept} == before
    assert ready_names(admin) == ready
    assert statuses(admin) == status
    writes = written(admin, mark)
    # The message of a pool without nodes says what to declare, which it did not say before.
    assert {(resource, subresource) for resource, _, subresource in writes} == {
        ("acceleratorpools", "status"),
        ("deployments", ""),  # the record of its template
        ("inferencedeployments", "status"),
        ("poddisruptionbudgets", ""),  # an earlier release had none
    }
    # What a replica does that is starting is known some time after the operator has started.
    again = {name for (_, name, _), count in Counter(writes).items() if count > 1}
    assert again <= {
        body["metadata"]["name"]
        for body in admin.items("infd")
        if (body.get("status") or {}).get("starting")
    }
