"""What admission policies of the cluster make of the operator's children is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from e2e.harness.admin import Admin
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, container
from e2e.models import inference
from tests.support.cluster import MI300X

MIRROR: Final = "mirror.example.com"
GROUP: Final = "admissionregistration.k8s.io/v1beta1"
DEPLOYMENT: Final = "llama-mi300x"


def policy(name: str, namespace: str, group: str, resource: str, spec: str) -> list[Json]:
    """A policy for the pod specs at this path: a mirror for images, and a toleration."""
    pod_spec = f"object.{spec}"
    path = "/" + spec.replace(".", "/")
    patches = (
        f'[JSONPatch{{op: "replace", path: "{path}/containers/0/image",'
        f' value: "{MIRROR}/" + {pod_spec}.containers[0].image}},'
        f' JSONPatch{{op: "add", path: "{path}/tolerations/-",'
        f' value: Object.{spec}.tolerations{{key: "spot", operator: "Exists"}}}}]'
    )
    rule = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [resource],
    }
    constraints = {
        "resourceRules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    is_new = f"!{pod_spec}.containers[0].image.startsWith('{MIRROR}/')"
    return [
        {
            "apiVersion": GROUP,
            "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": constraints,
                "matchConditions": [{"name": "is-new", "expression": is_new}],
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "mutations": [
                    {"patchType": "JSONPatch", "jsonPatch": {"expression": patches}},
                ],
            },
        },
        {
            "apiVersion": GROUP,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name},
        },
    ]


def probe(kind: str, namespace: str) -> Json:
    """A pod or a Deployment that the policies change."""
    pod = {
        "containers": [{"name": "vllm", "image": "probe:1"}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }
    metadata = {"name": "probe", "namespace": namespace}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": pod}
    labels = {"app": "probe"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture(params=["Deployment", "Pod"])
def policies(request: pytest.FixtureRequest, user: User, admin: Admin) -> Iterator[str]:
    """A policy for Deployments or for Pods, once the API server applies it."""
    kind, namespace = str(request.param), user.namespace
    place = ("apps", "deployments", "spec.template.spec")
    bodies = policy(
        f"mirror-{namespace}",
        namespace,
        *(place if kind == "Deployment" else ("", "pods", "spec")),
    )
    admin.apply(bodies)

    def is_in_force() -> bool:
        body = probe(kind, namespace)
        path = admin.resource(kind).path(namespace)
        stored = admin.rest.request("POST", path, body, query={"dryRun": "All"})
        return MIRROR in str(stored["spec"])

    admin.until("the policy to be in force", is_in_force)
    yield kind
    for body in bodies:
        admin.delete(body["kind"], body["metadata"]["name"], timeout=None)


def test_replicas_are_ready_behind_a_policy_and_are_written_once(
    fleet: UseFleet, user: User, admin: Admin, policies: str
) -> None:
    fleet({"groups": [{**MI300X, "count": 1}]})
    user.apply(inference("llama", "llama-3.1-8b"))
    (placement,) = user.wait_ready("llama")["placements"]
    assert placement["image"] == f"{MIRROR}/{placement['requestedImage']}"
    (pod,) = user.children("pods", "llama")
    assert pod["spec"]["containers"][0]["image"] == placement["image"]
    assert any(one.get("key") == "spot" for one in pod["spec"]["tolerations"])

    user.await_quiet()
    mark = admin.audit_mark()
    model = inference("llama", "llama-3.1-8b")
    user.apply({**model, "metadata": {**model["metadata"], "annotations": {"nudge": "1"}}})
    admin.patch("deployments", DEPLOYMENT, {"metadata": {"annotations": {"nudge": "1"}}})
    user.await_quiet()
    assert [write for write in user.operator_writes(mark) if "deployments/llama" in write] == []
    assert user.wait_ready("llama")["placements"] == [placement]


def test_an_edit_behind_a_policy_is_overruled(
    fleet: UseFleet, user: User, admin: Admin, policies: str
) -> None:
    fleet({"groups": [{**MI300X, "count": 1}]})
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
    before = container(admin.get("deployments", DEPLOYMENT) or {})
    edited = {"spec": {"template": {"spec": {"containers": [{**before, "image": "other:1"}]}}}}
    admin.patch("deployments", DEPLOYMENT, edited)
    admin.wait_for("deployments", DEPLOYMENT, lambda body: container(body) == before)
    user.wait_ready("llama")
