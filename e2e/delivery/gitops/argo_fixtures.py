"""Argo CD next to the session's control plane, and a team that deploys with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.delivery.gitops.applications import Delivery
from e2e.harness.admin import Admin
from e2e.harness.stack import Stack
from e2e.journeys.user import User
from e2e.programs import argo_cd as argo
from e2e.programs.argo_cd import ArgoCd
from e2e.programs.git_repository import GitRepository


@pytest.fixture(scope="session")
def with_argo_cd(installed: Admin, tmp_path_factory: pytest.TempPathFactory) -> Admin:
    """The cluster with Argo CD's manifests as well; they stay, and do nothing by themselves."""
    argo.install(installed, tmp_path_factory.mktemp("argo-cd-manifests"))
    return installed


@pytest.fixture(scope="module")
def argo_cd(
    control_plane: Stack, with_argo_cd: Admin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ArgoCd]:
    """Its processes, for the tests of a module."""
    processes = ArgoCd(control_plane, tmp_path_factory.mktemp("argo-cd"))
    processes.start()
    yield processes
    processes.close()


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    """An empty repository of this test alone."""
    return GitRepository(tmp_path / "repository")


@pytest.fixture
def delivery(argo_cd: ArgoCd, user: User, repository: GitRepository) -> Iterator[Delivery]:
    """A team that delivers models into the user's namespace; afterwards all of it is gone."""
    team = Delivery(user.admin, argo_cd, repository, user.namespace)
    yield team
    team.withdraw()
