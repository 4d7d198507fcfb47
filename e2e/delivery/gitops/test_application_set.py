"""The shipped ApplicationSet creates an Application for each folder in Git and prunes it again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.delivery.gitops.applications import KIND, shipped
from e2e.harness.admin import Admin
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User
from e2e.models import inference
from e2e.programs.argo_cd import NAMESPACE, ArgoCd
from e2e.programs.git_repository import GitRepository

SETS = "applicationsets.argoproj.io"

_COLLECTION_TIMEOUT = 240
"""Seconds. The garbage collector looks for new kinds every 30 s, and again only when it has the
objects of those, for which it waits up to 30 s. Argo CD's kinds are new here, and before it knows
them it deletes no Application of a set that is gone."""


@pytest.fixture
def models(argo_cd: ArgoCd, user: User, repository: GitRepository) -> Iterator[Json]:
    """The shipped ApplicationSet on this test's repository, with two teams in it."""
    for team in ("team-chat", "team-code"):
        repository.commit({f"teams/{team}/llama.yaml": inference("llama", "llama-3.1-8b")})
    manifest = shipped("applicationset.yaml")
    manifest["spec"]["generators"][0]["git"]["repoURL"] = repository.url
    manifest["spec"]["template"]["spec"]["source"]["repoURL"] = repository.url
    user.admin.apply(manifest)
    yield manifest
    user.admin.delete(SETS, manifest["metadata"]["name"], NAMESPACE, timeout=None)
    user.admin.until(
        "the Applications to be gone",
        lambda: not applications(user.admin),
        timeout=_COLLECTION_TIMEOUT,
    )
    for team in ("team-chat", "team-code"):
        user.admin.delete("namespaces", team, timeout=None)


def applications(admin: Admin) -> dict[str, str]:
    """Health by Application."""
    items = admin.items(KIND, NAMESPACE)
    return {
        item["metadata"]["name"]: item.get("status", {}).get("health", {}).get("status", "")
        for item in items
    }


def test_an_application_set_deploys_each_teams_folder(
    fleet: UseFleet, user: User, models: Json, repository: GitRepository
) -> None:
    fleet("tiny")
    want = {"models-team-chat": "Healthy", "models-team-code": "Healthy"}
    user.admin.until("both teams to serve", lambda: applications(user.admin) == want, timeout=240)
    repository.commit({"teams/team-code/llama.yaml": None})
    refresh = {"argocd.argoproj.io/application-set-refresh": "true"}
    user.admin.patch(SETS, "models", {"metadata": {"annotations": refresh}}, NAMESPACE)
    user.admin.wait_gone("infd", "llama", "team-code", timeout=240)
    user.admin.wait_gone(KIND, "models-team-code", NAMESPACE, timeout=240)
    user.admin.until(
        "the other team to be served alone",
        lambda: applications(user.admin) == {"models-team-chat": "Healthy"},
        timeout=240,
    )
    assert user.admin.get("infd", "llama", "team-chat") is not None
