"""The manifests in docs/install.md do what the page says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import yaml

from e2e.harness.admin import Admin
from e2e.harness.operator_process import ROOT
from tests.support.markdown_pages import read_page

PAGE = ROOT / "docs" / "install.md"


@pytest.fixture
def roles(installed: Admin) -> Iterator[Admin]:
    """The page's roles for people, until the end of the test."""
    documents = [
        document
        for block in read_page(PAGE).blocks
        if block.language == "yaml"
        for document in yaml.safe_load_all(block.text)
    ]
    shown = [document for document in documents if document["kind"] == "ClusterRole"]
    assert len(shown) == 2
    installed.apply(shown)
    yield installed
    for role in shown:
        installed.delete("clusterrole", role["metadata"]["name"])


def binding(role: str, namespace: str) -> dict[str, object]:
    """A person, named as the role, who has a role of Kubernetes' own in one namespace."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}],
    }


def test_editors_declare_models_viewers_see_them_and_neither_writes_a_status(
    roles: Admin, namespace: str
) -> None:
    roles.apply([binding("edit", namespace), binding("view", namespace)])
    models = "inferencedeployments.tonnage.dev"
    for user, verb in (("edit", "create"), ("view", "watch")):
        roles.until(
            "the roles to be aggregated",
            partial(roles.allows, user, verb, models, namespace),
        )
    assert roles.allows("edit", "patch", f"{models}/scale", namespace)
    assert not roles.allows("view", "create", models, namespace)
    for user in ("edit", "view"):
        assert not roles.allows(user, "patch", f"{models}/status", namespace)
        assert not roles.allows(user, "get", models, "default")
