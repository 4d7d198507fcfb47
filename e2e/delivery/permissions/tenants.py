"""A user who may only write InferenceDeployments of one namespace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.rest import Access, ApiError, Json, Rest
from e2e.harness.stack import Stack, service_account_kubeconfig
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, container, has
from e2e.models import inference

TENANT = "tenant"


@dataclass(frozen=True)
class Tenant:
    """Somebody whose whole rights are InferenceDeployments of one namespace."""

    user: User
    rest: Rest

    @property
    def path(self) -> str:
        """Where the objects are."""
        return self.user.admin.resource("infd").path(self.user.namespace)

    def create(self, body: Json) -> Json:
        """Create the object. Raises ApiError where the API server refuses it."""
        return self.rest.request("POST", self.path, body)


@pytest.fixture
def tenant(user: User, control_plane: Stack, fleet: UseFleet, tmp_path: Path) -> Tenant:
    """In its own namespace, with a small fleet."""
    fleet("tiny")
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": TENANT}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": TENANT}
    rule = {
        "apiGroups": ["tonnage.dev"],
        "resources": ["inferencedeployments"],
        "verbs": ["get", "list", "create", "update", "patch", "delete"],
    }
    account = {"kind": "ServiceAccount", "name": TENANT, "namespace": user.namespace}
    user.admin.apply(
        [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": TENANT}},
            {**rbac, "kind": "Role", "rules": [rule]},
            {**rbac, "kind": "RoleBinding", "roleRef": reference, "subjects": [account]},
        ]
    )
    kubeconfig = tmp_path / "tenant.kubeconfig"
    service_account_kubeconfig(control_plane, user.namespace, TENANT, kubeconfig)
    rest = Rest(Access.load(kubeconfig))
    path = f"/apis/tonnage.dev/v1alpha1/namespaces/{user.namespace}/inferencedeployments"
    user.admin.until("the tenant's rights", lambda: _may(rest, path))
    return Tenant(user, rest)


def _may(rest: Rest, path: str) -> bool:
    try:
        rest.request("GET", path)
    except ApiError:
        return False
    return True


def llama(name: str, **spec: Any) -> Json:
    """An object as a tenant writes it; its model's facts are in it."""
    return inference(name, "llama-3.1-8b", max_model_len=2048, **spec)


def pod_of(tenant: Tenant, name: str) -> Json:
    """The pod's spec as it was rendered."""
    tenant.user.wait(name, has("Placed"))
    (deployment,) = tenant.user.children("deployments", name)
    spec: Json = deployment["spec"]["template"]["spec"]
    return spec


def container_of(pod: Json) -> Json:
    """The vLLM container of a pod's spec."""
    return container({"spec": {"template": {"spec": pod}}})
