"""Somebody with the token of the operator's ServiceAccount, and children as the operator makes."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import yaml

from e2e.harness.admin import Admin
from e2e.harness.operator_process import NAMESPACE, ROOT, SERVICE_ACCOUNT
from e2e.harness.rest import Access, ApiError, Json, Rest
from e2e.harness.stack import Stack, service_account_kubeconfig
from e2e.integrations import inference_pool_crd
from e2e.models import inference

GOLDEN = ROOT / "tests" / "golden" / "render"
POLICIES = ROOT / "manifests" / "base" / "admission-policies.yaml"
API_VERSION = "tonnage.dev/v1alpha1"
UID, OTHER_UID = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def owned_by(uid: str, **fields: Any) -> list[Json]:
    """References as the operator's children have them, with these fields changed."""
    reference = {"apiVersion": API_VERSION, "kind": "InferenceDeployment", "name": "llama"}
    return [{**reference, "uid": uid, "controller": True, **fields}]


def rendered(kind: str, case: str = "users-template") -> Json:
    """A child as the operator renders it, for an owner of the tests."""
    text = (GOLDEN / f"{case}.output.yaml").read_text("utf-8")
    body: Json = next(one for one in yaml.safe_load_all(text) if one["kind"] == kind)
    body["metadata"]["ownerReferences"] = owned_by(UID)
    del body["metadata"]["namespace"]
    return body


DEPLOYMENT, SERVICE = rendered("Deployment"), rendered("Service")
JOB = rendered("Job", "cached")
MODEL = inference("llama-long", "llama-3.1-8b")
MODEL["metadata"]["ownerReferences"] = owned_by(UID)
INFERENCE_POOL: Json = {
    "apiVersion": "inference.networking.k8s.io/v1",
    "kind": "InferencePool",
    "metadata": {"name": "llama", "ownerReferences": owned_by(UID)},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"kind": "Service", "name": "p", "port": {"number": 9002}},
    },
}
BUDGET: Json = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "llama", "ownerReferences": owned_by(UID)},
    "spec": {
        "minAvailable": 1,
        "selector": {"matchLabels": {"tonnage.dev/inferencedeployment": "llama"}},
    },
}
CHILDREN = {
    body["kind"]: body for body in (DEPLOYMENT, SERVICE, BUDGET, MODEL, INFERENCE_POOL, JOB)
}


def event(**changes: Any) -> Json:
    """An Event as the operator records it, with these fields changed."""
    regarding = {"apiVersion": API_VERSION, "kind": "InferenceDeployment", "name": "llama"}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "llama.1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Normal",
        "reason": "Placed",
        "action": "Placed",
        "note": "placed",
        "reportingController": "tonnage.dev/operator",
        "reportingInstance": "a",
        "regarding": regarding | changes.pop("regarding", {}),
        **changes,
    }


class TokenHolder:
    """Somebody with the token of the operator's ServiceAccount. Nothing is stored."""

    def __init__(self, rest: Rest, admin: Admin) -> None:
        self._rest = rest
        self._admin = admin

    def create(self, body: Json, namespace: str | None = None) -> None:
        """Raises ApiError where the API server refuses it."""
        self._send("POST", body, namespace)

    def update(self, body: Json, **changes: Any) -> None:
        """Merge the changes into the stored object. Raises ApiError."""
        self._send("PATCH", body, None, body["metadata"]["name"], changes)

    def delete(self, body: Json) -> None:
        """Raises ApiError where the API server refuses it."""
        # The query's dryRun counts only where there is no body.
        self._send("DELETE", body, None, body["metadata"]["name"], {"dryRun": ["All"]})

    def _send(
        self,
        method: str,
        body: Json,
        namespace: str | None,
        name: str = "",
        sent: Json | None = None,
    ) -> None:
        resource = self._admin.resource(body["kind"], body["apiVersion"])
        path = resource.path(namespace or self._admin.namespace, name)
        self._rest.request(
            method,
            f"{path}?dryRun=All",
            body if sent is None else sent,
            content_type=f"application/{'merge-patch+' if method == 'PATCH' else ''}json",
        )


@pytest.fixture(scope="module")
def operator_rest(
    control_plane: Stack, installed: Admin, tmp_path_factory: pytest.TempPathFactory
) -> Rest:
    """The API server for whom has the operator's token, with all that its roles may ever grant."""
    path = tmp_path_factory.mktemp("operator") / "kubeconfig"
    service_account_kubeconfig(control_plane, NAMESPACE, SERVICE_ACCOUNT, path)
    return Rest(Access.load(path))


@pytest.fixture(scope="module")
def inference_pools(installed: Admin) -> Iterator[None]:
    """The kind InferencePool, and the rights on it that a component grants."""
    rule = {
        "apiGroups": ["inference.networking.k8s.io"],
        "resources": ["inferencepools"],
        "verbs": ["get", "create", "patch", "delete"],
    }
    common = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "pools-of-tests"}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    subject = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE}
    installed.apply(inference_pool_crd())
    installed.apply(
        [
            {**common, "kind": "ClusterRole", "rules": [rule]},
            {
                **common,
                "kind": "ClusterRoleBinding",
                "roleRef": {**reference, "name": "pools-of-tests"},
                "subjects": [subject],
            },
        ]
    )
    yield
    for kind in ("clusterrolebinding", "clusterrole"):
        installed.delete(kind, "pools-of-tests")
    installed.delete("crd", "inferencepools.inference.networking.k8s.io")


@pytest.fixture
def as_operator(
    operator_rest: Rest, installed: Admin, inference_pools: None, namespace: str
) -> TokenHolder:
    """With the token, once the policies hold, which takes the API server a moment."""
    operator = TokenHolder(operator_rest, installed)
    for policy in yaml.safe_load_all(POLICIES.read_text("utf-8")):
        if policy["kind"] == "ValidatingAdmissionPolicy":
            installed.wait_for("validatingadmissionpolicy", policy["metadata"]["name"], observed)
    for policy, body, where in refused_objects(namespace):
        installed.until(
            f"{policy} to hold for {body['kind']}",
            partial(refuses, operator, policy, body, where),
        )
    return operator


def refused_objects(namespace: str) -> Iterator[tuple[str, Json, str]]:
    """Objects that each of the policies refuses: its name, the object, and the namespace."""
    for body in CHILDREN.values():
        yield "tonnage-children", changed(body, {"metadata": {"ownerReferences": None}}), namespace
    on_the_node: Json = {"spec": {"template": {"spec": {"hostNetwork": True}}}}
    yield "tonnage-pods", changed(DEPLOYMENT, on_the_node), namespace
    yield "tonnage-services", changed(SERVICE, {"spec": {"type": "NodePort"}}), namespace
    all_pods: Json = {"spec": {"selector": {"matchLabels": None}}}
    yield "tonnage-budgets", changed(BUDGET, all_pods), namespace
    undiscovered = {"metadata": {"name": "declared"}, "spec": {"nodeSelector": {"a": "b"}}}
    pool = {"apiVersion": API_VERSION, "kind": "AcceleratorPool", **undiscovered}
    yield "tonnage-pools", pool, namespace
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "others"}}
    yield "tonnage-own", foreign, NAMESPACE
    of_a_kubelet = event(reportingController="kubelet", regarding={"namespace": namespace})
    yield "tonnage-events", of_a_kubelet, namespace


def observed(policy: Json) -> bool:
    """Whether the API server has checked the policy's expressions."""
    return bool(policy.get("status", {}).get("observedGeneration"))


def refuses(operator: TokenHolder, policy: str, body: Json, namespace: str) -> bool:
    """Whether the policy refuses the object."""
    try:
        operator.create(body, namespace)
    except ApiError as error:
        return f"ValidatingAdmissionPolicy '{policy}'" in str(error)
    return False


def changed(body: Json, change: Json) -> Json:
    """A copy with the change merged into it; None takes a field away."""
    copy = deepcopy(body)
    for key, value in change.items():
        if value is None:
            copy.pop(key, None)
        elif isinstance(value, dict):
            copy[key] = changed(copy.get(key) or {}, value)
        else:
            copy[key] = value
    return copy


def a_model(admin: Admin) -> str:
    """The uid of an InferenceDeployment, without which the garbage collector takes its children."""
    (stored,) = admin.apply(inference("owner", "llama-3.1-8b", replicas=0))
    return str(stored["metadata"]["uid"])
