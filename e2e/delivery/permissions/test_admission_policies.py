"""What the API server refuses the operator's own ServiceAccount, whatever process has its token. It
refuses nothing that the operator does: all other tests of e2e run with the same policies.

The threat model in SECURITY.md names these tests.
"""

from __future__ import annotations

import pytest
import yaml

from e2e.delivery.permissions.operators_token import (
    API_VERSION,
    BUDGET,
    CHILDREN,
    OTHER_UID,
    POLICIES,
    SERVICE,
    UID,
    TokenHolder,
    a_model,
    changed,
    event,
    owned_by,
)
from e2e.harness.admin import Admin
from e2e.harness.operator_process import CORRECTIONS, NAMESPACE, USER, OperatorProcess
from e2e.harness.rest import ApiError, Json, Rest
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from e2e.rights import refused_by_policies


@pytest.mark.parametrize("kind", CHILDREN)
def test_what_no_inference_deployment_controls_is_neither_made_nor_changed_nor_deleted(
    as_operator: TokenHolder, installed: Admin, kind: str
) -> None:
    strange = {
        "none": None,
        "an owner that is no controller": owned_by(UID, controller=None),
        "another kind": owned_by(UID, apiVersion="apps/v1", kind="ReplicaSet"),
        "another group": owned_by(UID, apiVersion="example.com/v1"),
    }
    for references in strange.values():
        body = changed(CHILDREN[kind], {"metadata": {"ownerReferences": references}})
        with pytest.raises(ApiError, match="whose controller is an InferenceDeployment"):
            as_operator.create(body)
    body = changed(CHILDREN[kind], {"metadata": {"ownerReferences": None}})
    installed.apply(body)  # by somebody else, as users make theirs
    with pytest.raises(ApiError, match="whose controller was an InferenceDeployment before"):
        as_operator.update(body, metadata={"ownerReferences": owned_by(UID)})
    with pytest.raises(ApiError, match="whose controller was an InferenceDeployment before"):
        as_operator.delete(body)


@pytest.mark.parametrize("kind", CHILDREN)
def test_no_model_runs_in_a_namespace_of_the_system(as_operator: TokenHolder, kind: str) -> None:
    for place in ("kube-system", "kube-public", NAMESPACE):
        with pytest.raises(ApiError, match=f"in namespace {place}: models run neither"):
            as_operator.create(CHILDREN[kind], place)


@pytest.mark.parametrize("kind", CHILDREN)
def test_a_child_of_an_inference_deployment_is_made_and_keeps_its_owner(
    as_operator: TokenHolder, installed: Admin, kind: str
) -> None:
    body, owner = changed(CHILDREN[kind], {}), a_model(installed)
    as_operator.create(body)
    body["metadata"]["ownerReferences"] = owned_by(owner, name="owner")
    installed.apply(body)
    as_operator.update(body, metadata={"labels": {"a": "b"}})
    with pytest.raises(ApiError, match="must not give a child to another"):
        as_operator.update(body, metadata={"ownerReferences": owned_by(OTHER_UID)})
    with pytest.raises(ApiError, match="whose controller is an InferenceDeployment"):
        as_operator.update(body, metadata={"ownerReferences": None})
    as_operator.delete(body)


SERVICES: dict[str, tuple[Json, str]] = {
    "a balancer of the cloud": ({"type": "LoadBalancer"}, "spec.type: must be ClusterIP"),
    "a port of each node": ({"type": "NodePort"}, "spec.type: must be ClusterIP"),
    "another name": (
        {"type": "ExternalName", "externalName": "example.com", "ports": None},
        "spec.type: must be ClusterIP",
    ),
    "addresses of others": ({"externalIPs": ["192.0.2.1"]}, "externalIPs: the operator must not"),
    "endpoints of others": ({"selector": None}, "must have the label tonnage.dev"),
    "pods of others": (
        {"selector": {"tonnage.dev/inferencedeployment": None, "app": "x"}},
        "must have the label tonnage.dev",
    ),
}


@pytest.mark.parametrize("case", SERVICES)
def test_a_service_that_is_not_for_models_in_the_cluster_is_refused(
    as_operator: TokenHolder, case: str
) -> None:
    spec, want = SERVICES[case]
    with pytest.raises(ApiError, match=want):
        as_operator.create(changed(SERVICE, {"spec": spec}))


BUDGET_SELECTORS: dict[str, Json] = {
    "all pods": {"matchLabels": None},
    "pods of others": {"matchLabels": {"tonnage.dev/inferencedeployment": None, "app": "x"}},
}


@pytest.mark.parametrize("case", BUDGET_SELECTORS)
def test_a_budget_that_selects_pods_of_others_is_refused(
    as_operator: TokenHolder, case: str
) -> None:
    with pytest.raises(ApiError, match="must have the label"):
        as_operator.create(changed(BUDGET, {"spec": {"selector": BUDGET_SELECTORS[case]}}))


def pool(name: str, labels: Json | None) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "AcceleratorPool",
        "metadata": {"name": name, **({"labels": labels} if labels else {})},
        "spec": {"nodeSelector": {"a": "b"}},
    }


def test_declared_pools_are_the_platform_teams(as_operator: TokenHolder, installed: Admin) -> None:
    discovered = {"tonnage.dev/discovered": "true"}
    as_operator.create(pool("discovered", discovered))
    want = "only AcceleratorPools with tonnage.dev/discovered=true"
    with pytest.raises(ApiError, match=want):
        as_operator.create(pool("declared", None))
    installed.apply([pool("declared", {"team": "a"}), pool("discovered", discovered)])
    try:
        as_operator.update(pool("discovered", None), spec={"nodeSelector": {"a": "c"}})
        as_operator.delete(pool("discovered", None))
        declared = pool("declared", None)
        with pytest.raises(ApiError, match=want):
            as_operator.update(declared, metadata={"labels": discovered})
        with pytest.raises(ApiError, match=want):
            as_operator.delete(declared)
        with pytest.raises(ApiError, match=want):
            as_operator.update(pool("discovered", None), metadata={"labels": None})
    finally:
        for name in ("declared", "discovered"):
            installed.delete("apool", name)


def record(kind: str, name: str) -> Json:
    version = "coordination.k8s.io/v1" if kind == "Lease" else "v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


@pytest.mark.parametrize(("kind", "own"), [("Lease", "tonnage-east"), ("ConfigMap", CORRECTIONS)])
def test_leases_and_config_maps_are_the_operators_own(
    as_operator: TokenHolder, installed: Admin, kind: str, own: str
) -> None:
    installed.delete(kind.lower(), own, NAMESPACE)
    as_operator.create(record(kind, own), NAMESPACE)
    with pytest.raises(ApiError, match=r"only the (leases|configmaps) tonnage and tonnage-"):
        as_operator.create(record(kind, "kube-root-ca.crt-of-others"), NAMESPACE)


def test_events_are_in_the_operators_own_name_and_of_its_kinds(
    as_operator: TokenHolder, operator_rest: Rest, namespace: str
) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events?dryRun=All"
    operator_rest.request("POST", path, event(regarding={"namespace": namespace}))
    for body, want in (
        (event(reportingController="kubelet"), "must be tonnage.dev/operator"),
        (event(regarding={"apiVersion": "v1", "kind": "Pod"}), "objects of tonnage.dev only"),
    ):
        body["regarding"]["namespace"] = namespace
        with pytest.raises(ApiError, match=want):
            operator_rest.request("POST", path, body)


def test_expressions_are_right_for_the_kinds_that_they_are_about(
    as_operator: TokenHolder, installed: Admin
) -> None:
    """The API server checks each expression against the schemas, and warns in the status."""
    for policy in yaml.safe_load_all(POLICIES.read_text("utf-8")):
        if policy["kind"] == "ValidatingAdmissionPolicy":
            stored = installed.get("validatingadmissionpolicy", policy["metadata"]["name"])
            assert stored is not None
            assert stored["status"].get("typeChecking", {}).get("expressionWarnings", []) == []


def test_the_status_of_a_model_in_the_operators_namespace_says_where_models_run(
    fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    fleet("tiny")
    mark = user.admin.audit_mark()
    body = inference("misplaced", "llama-3.1-8b")
    body["metadata"]["namespace"] = NAMESPACE
    user.admin.apply(body)
    try:
        stored = user.admin.wait_for("infd", "misplaced", is_refused, NAMESPACE)
        message = condition(stored["status"], "Accepted")["message"]
        assert f"in namespace {NAMESPACE}: models run neither in kube-*" in message
        assert refused_by_policies(user.admin.requests(USER, since=mark))
    finally:
        user.admin.delete("infd", "misplaced", NAMESPACE)


def is_refused(stored: Json) -> bool:
    return bool(has("Accepted", "False", "ChildRefused")(stored.get("status") or {}))
