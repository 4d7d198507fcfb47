"""The fleet and user of the journeys; the operator ends with each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.delivery.clusters import empty_stack, operator_namespace, platform
from e2e.delivery.gitops.argo_fixtures import argo_cd, delivery, repository, with_argo_cd
from e2e.delivery.permissions.exercise import exercised, roles
from e2e.delivery.permissions.operators_token import as_operator, inference_pools, operator_rest
from e2e.delivery.permissions.tenants import tenant
from e2e.delivery.scaling.followed_load import prometheus
from e2e.harness.admin import Admin
from e2e.harness.operator_process import OperatorProcess, RestartedOperator
from e2e.harness.stack import Stack
from e2e.journeys.conftest import declare, fleet, installed, operator, user

__all__ = [
    "argo_cd",
    "as_operator",
    "declare",
    "delivery",
    "empty_stack",
    "exercised",
    "fleet",
    "inference_pools",
    "installed",
    "operator",
    "operator_namespace",
    "operator_rest",
    "platform",
    "prometheus",
    "repository",
    "roles",
    "tenant",
    "user",
    "with_argo_cd",
]


@pytest.fixture(scope="module")
def shared_operator(
    control_plane: Stack, installed: Admin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One operator for the tests of a module; two at once would compete for the Lease."""
    process = RestartedOperator(control_plane, tmp_path_factory.mktemp("operator"))
    process.start()
    yield process
    process.close()
