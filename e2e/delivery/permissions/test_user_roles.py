"""What people may do who have one of Kubernetes' own roles in a namespace, and what kubectl shows
them."""

from __future__ import annotations

import json
from functools import partial

import pytest

from e2e.harness.admin import Admin
from e2e.harness.failure import HarnessError
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, has
from e2e.models import inference

MODELS = "inferencedeployments.tonnage.dev"
POOLS = "acceleratorpools.tonnage.dev"


@pytest.fixture
def people(installed: Admin, namespace: str) -> Admin:
    """One person for each of Kubernetes' own roles, named as the role, in the namespace."""
    for role in ("view", "edit", "admin"):
        installed.kubectl(
            *("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}"),
            f"--namespace={namespace}",
        )
    for role, verb in (("view", "watch"), ("edit", "create"), ("admin", "create")):
        installed.until(
            f"{role} to have the aggregated rules",
            partial(installed.allows, role, verb, MODELS, namespace),
        )
    return installed


WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def test_editors_and_admins_declare_models_and_viewers_see_them(
    people: Admin, namespace: str
) -> None:
    for role in ("view", "edit", "admin"):
        for verb in ("get", "list", "watch"):
            assert people.allows(role, verb, MODELS, namespace)
        writes = {verb for verb in WRITES if people.allows(role, verb, MODELS, namespace)}
        assert writes == (set() if role == "view" else WRITES)
        assert people.allows(role, "get", f"{MODELS}/scale", namespace)
        assert people.allows(role, "patch", f"{MODELS}/scale", namespace) == (role != "view")


def test_people_of_one_namespace_have_nothing_beyond_it(people: Admin, namespace: str) -> None:
    for role in ("view", "edit", "admin"):
        assert not people.allows(role, "get", MODELS, "default")
        assert not people.allows(role, "patch", f"{MODELS}/status", namespace)
        assert not people.allows(role, "create", POOLS, "")
        assert not people.allows(role, "list", POOLS, "")


def test_who_may_view_all_namespaces_sees_pools_and_declares_none(installed: Admin) -> None:
    """And so does a person to whom nothing but the role for pools is bound."""
    for name, role in (("everywhere", "view"), ("pools", "tonnage-pools-view")):
        binding = f"{name}-of-tests"
        installed.kubectl(
            "create", "clusterrolebinding", binding, f"--clusterrole={role}", f"--user={name}"
        )
        try:
            installed.until("the role to hold", partial(installed.allows, name, "list", POOLS, ""))
            assert not any(installed.allows(name, verb, POOLS, "") for verb in WRITES)
            assert installed.allows(name, "list", MODELS, "default") == (role == "view")
        finally:
            installed.delete("clusterrolebinding", binding)


def test_an_editor_declares_scales_and_sees_a_model_by_kubectl(
    fleet: UseFleet, user: User, people: Admin
) -> None:
    fleet("tiny")
    body = json.dumps(inference("llama", "llama-3.1-8b"))
    edit = ("--as=edit", f"--namespace={user.namespace}")
    view = ("--as=view", f"--namespace={user.namespace}")
    with pytest.raises(HarnessError, match="cannot create resource"):
        people.kubectl(*view, "create", "-f", "-", text=body)
    people.kubectl(*edit, "create", "-f", "-", text=body)
    user.wait_ready("llama")
    people.kubectl(*edit, "scale", "infd/llama", "--replicas=2")
    user.wait("llama", lambda status: has("Ready")(status) and status["replicas"] == 2)
    for person in (edit, view):
        shown = people.kubectl(*person, "get", "all", "-o", "name").splitlines()
        assert "inferencedeployment.tonnage.dev/llama" in shown
        assert any(name.startswith("deployment.apps/llama-") for name in shown)
    with pytest.raises(HarnessError, match="cannot delete resource"):
        people.kubectl(*view, "delete", "infd", "llama")
    people.kubectl(*edit, "delete", "infd", "llama")
