"""InferencePools: with the CRD and the permission, and without either."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.harness.admin import SLOW, WRITES, Admin
from e2e.harness.failure import HarnessError
from e2e.harness.operator_process import ROOT, USER, OperatorProcess
from e2e.harness.rest import Json
from e2e.integrations import inference_pool_crd
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from e2e.rights import granted, roles_of, used

GROUP = "inference.networking.k8s.io"
CRD = f"inferencepools.{GROUP}"
POOLS = f"inferencepools.{GROUP}"
APPLIED = "InferencePoolApplied"
VERBS = ("get", "create", "patch", "delete")
PICKER: Json = {"name": "llama-epp", "port": {"number": 9002}}


@pytest.fixture
def kind(admin: Admin) -> Iterator[None]:
    """The kind is there for one test."""
    with installed_kind(admin):
        yield


@pytest.fixture
def right(installed: Admin, tmp_path: Path) -> Iterator[Json]:
    """The operator's role with the rule that the component adds; afterwards as it is shipped."""
    base, component = (ROOT / "manifests" / each for each in ("base", "components/inference-pool"))
    (with_rule,) = cluster_roles(installed, tmp_path / "with", base, component)
    (shipped,) = cluster_roles(installed, tmp_path / "without", base)
    installed.apply(with_rule)
    await_right(installed, allowed=True)
    yield with_rule
    installed.apply(shipped)
    await_right(installed, allowed=False)


def await_right(admin: Admin, *, allowed: bool) -> None:
    """Wait until the authorizer knows of the change: what the operator is denied, it asks for again
    only a minute later."""
    admin.until(
        f"the right to be {'granted' if allowed else 'gone'}",
        lambda: all(admin.allows(USER, verb, POOLS, "default") == allowed for verb in VERBS),
        timeout=SLOW,
    )


@contextmanager
def installed_kind(admin: Admin) -> Iterator[None]:
    admin.apply(inference_pool_crd())
    admin.resource(POOLS)
    try:
        yield
    finally:
        admin.delete("crd", CRD, timeout=SLOW)


def cluster_roles(admin: Admin, folder: Path, base: Path, *components: Path) -> list[Json]:
    """The operator's ClusterRoles in a kustomization of somebody's own, in a folder of its own."""
    folder.mkdir()
    relative = [os.path.relpath(path, folder) for path in (base, *components)]
    kustomization = {"resources": relative[:1], "components": relative[1:]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    return [role for role in roles_of(admin, folder) if role["kind"] == "ClusterRole"]


def llama(**picker: Any) -> Json:
    gateway = {"inferencePool": {"endpointPickerRef": {**PICKER, **picker}}}
    return inference("llama", "llama-3.1-8b", max_model_len=8192, gateway=gateway)


def plain(name: str = "llama") -> Json:
    return inference(name, "llama-3.1-8b", max_model_len=8192)


def nudge(user: User, manifest: Json, value: str) -> None:
    """Have the operator look at the object again, as the resync does every ten minutes."""
    manifest["metadata"]["labels"] = {"looked-at": value}
    user.apply(manifest)


def asked_of_the_group(admin: Admin, mark: int, *verbs: str) -> list[str]:
    """What the operator asked of the group, discovery among it."""
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in admin.requests(USER, verbs=verbs, since=mark)
        if f"/{GROUP}" in event["requestURI"]
    ]


@pytest.mark.usefixtures("kind")
def test_an_inference_pool_is_created_repaired_and_deleted(
    fleet: UseFleet, user: User, admin: Admin, right: Json
) -> None:
    fleet("tiny")
    mark = admin.audit_mark()
    user.apply(llama())
    user.wait("llama", has(APPLIED, "True", "Applied"), timeout=SLOW)
    status = user.wait_ready("llama", timeout=SLOW)
    assert (
        "endpoint picker is Service llama-epp, port 9002" in condition(status, APPLIED)["message"]
    )
    pool = admin.wait_for(POOLS, "llama", lambda _: True, timeout=SLOW)
    assert pool["spec"]["endpointPickerRef"]["failureMode"] == "FailClose"
    selector = pool["spec"]["selector"]["matchLabels"]
    labels = user.children("pods", "llama")[0]["metadata"]["labels"]
    assert selector.items() <= labels.items()
    (owner,) = pool["metadata"]["ownerReferences"]
    assert owner["uid"] == user.get("llama")["metadata"]["uid"]

    user.apply(llama(failureMode="FailOpen"))
    admin.wait_for(
        POOLS,
        "llama",
        lambda pool: pool["spec"]["endpointPickerRef"]["failureMode"] == "FailOpen",
        timeout=SLOW,
    )
    user.apply(plain())
    admin.wait_gone(POOLS, "llama", timeout=SLOW)
    user.wait(
        "llama",
        lambda status: has("Ready")(status) and not condition(status, APPLIED),
        timeout=SLOW,
    )
    admin.wait_for(
        "services",
        "llama",
        lambda deployment: (
            "tonnage.dev/inference-pool" not in deployment["metadata"]["annotations"]
        ),
        timeout=SLOW,
    )
    of_the_group = {each for each in granted([right]) if each.group == GROUP}
    assert of_the_group == of_the_group & used(admin.requests(USER, since=mark), [right])


@pytest.mark.usefixtures("kind", "right")
def test_the_pool_is_garbage_collected_with_its_owner(
    fleet: UseFleet, user: User, admin: Admin
) -> None:
    fleet("tiny")
    user.apply(llama())
    user.wait("llama", has(APPLIED), timeout=SLOW)
    admin.delete("infd", "llama")
    user.forget("llama")
    admin.wait_gone(POOLS, "llama", timeout=SLOW)


@pytest.mark.usefixtures("kind", "right")
def test_a_converged_pool_is_not_written(
    fleet: UseFleet, user: User, admin: Admin, operator: OperatorProcess
) -> None:
    fleet("tiny")
    user.apply(llama())
    user.wait("llama", has(APPLIED), timeout=SLOW)
    user.wait_ready("llama", timeout=SLOW)
    mark = admin.audit_mark()
    operator.stop()
    operator.start()  # it looks at every object
    admin.until(
        "the operator to look at the pool",
        lambda: asked_of_the_group(admin, mark, "get"),
        timeout=SLOW,
    )
    nudge(user, llama(), "again")
    admin.until(
        "the operator to look at it again",
        lambda: len(asked_of_the_group(admin, mark, "get")) >= 2,
        timeout=SLOW,
    )
    user.await_quiet()  # a write would follow what it read
    assert asked_of_the_group(admin, mark, *WRITES) == []


@pytest.mark.usefixtures("kind", "right")
def test_a_foreign_pool_is_left_alone(fleet: UseFleet, user: User, admin: Admin) -> None:
    fleet("tiny")
    theirs: Json = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "InferencePool",
        "metadata": {"name": "llama"},
        "spec": {
            "selector": {"matchLabels": {"app": "theirs"}},
            "targetPorts": [{"number": 80}],
            "endpointPickerRef": PICKER,
        },
    }
    (before,) = admin.apply(theirs)
    user.apply(llama())
    user.wait("llama", has(APPLIED, "False", "NameConflict"), timeout=SLOW)
    user.wait_ready("llama", timeout=SLOW)
    assert admin.get(POOLS, "llama") == before


@pytest.mark.usefixtures("right")
def test_without_the_crd_the_object_is_ready_and_reports_the_missing_kind(
    fleet: UseFleet, user: User, admin: Admin
) -> None:
    fleet("tiny")
    user.apply(llama())
    status = user.wait("llama", has(APPLIED, "False", "KindMissing"), timeout=SLOW)
    assert "install its CRD" in condition(status, APPLIED)["message"]
    status = user.wait_ready("llama", timeout=SLOW)
    assert condition(status, APPLIED)["status"] == "False"
    with installed_kind(admin):
        nudge(user, llama(), "again")
        user.wait("llama", has(APPLIED), timeout=SLOW)
        assert admin.get(POOLS, "llama") is not None
        user.apply(plain())
        admin.wait_gone(POOLS, "llama", timeout=SLOW)


@pytest.mark.usefixtures("kind")
def test_without_the_permission_the_object_is_ready_and_reports_the_missing_rule(
    fleet: UseFleet, user: User, admin: Admin
) -> None:
    fleet("tiny")
    user.apply(llama())
    status = user.wait("llama", has(APPLIED, "False", "Forbidden"), timeout=SLOW)
    message = condition(status, APPLIED)["message"]
    assert 'resources ["inferencepools"]' in message
    user.wait_ready("llama", timeout=SLOW)
    assert admin.get(POOLS, "llama") is None


@pytest.mark.usefixtures("kind", "right")
def test_an_object_without_a_pool_costs_no_request(
    fleet: UseFleet, user: User, admin: Admin, operator: OperatorProcess
) -> None:
    fleet("tiny")
    operator.stop()
    mark = admin.audit_mark()
    operator.start()
    user.apply(plain())
    user.wait_ready("llama", timeout=SLOW)
    admin.delete("infd", "llama")
    user.forget("llama")
    admin.wait_gone("deployments", "llama-mi300x", timeout=SLOW)
    assert asked_of_the_group(admin, mark) == []


@pytest.mark.parametrize(
    ("picker", "want"),
    [
        ({"port": {"number": 70000}}, "spec.gateway.inferencePool.endpointPickerRef.port.number"),
        ({"failureMode": "Sometimes"}, "spec.gateway.inferencePool.endpointPickerRef.failureMode"),
        ({"name": ""}, "spec.gateway.inferencePool.endpointPickerRef.name"),
    ],
)
def test_an_invalid_pool_reference_is_refused(
    installed: Admin, namespace: str, picker: Json, want: str
) -> None:
    with pytest.raises(HarnessError, match=want):
        installed.apply(llama(**picker))
