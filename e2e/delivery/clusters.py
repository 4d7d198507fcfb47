"""A cluster without Tonnage, for tests that install it themselves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from e2e.harness.admin import Admin
from e2e.harness.operator_process import ROOT
from e2e.harness.stack import Stack, down, up
from e2e.nodes.fleet import apply_fleet, load_fleet


@pytest.fixture(scope="session")
def empty_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A second stack with two GPU nodes; a test that installs something there removes it."""
    root = tmp_path_factory.mktemp("empty-stack")
    stack = up(root, owner_pid=os.getpid())
    apply_fleet(stack.access, load_fleet("tiny"))
    yield stack
    down(root)
    if not os.environ.get("TONNAGE_E2E_KEEP"):
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def platform(empty_stack: Stack) -> Admin:
    """The hands of the platform team that installs Tonnage there."""
    return Admin(empty_stack.kubeconfig, empty_stack.kubectl, audit_log=empty_stack.audit_log)


@pytest.fixture(scope="session")
def operator_namespace(platform: Admin) -> str:
    """The operator's namespace as it is shipped, with Pod Security `restricted` enforced."""
    (namespace,) = platform.apply(ROOT / "manifests" / "base" / "namespace.yaml")
    name = str(namespace["metadata"]["name"])
    platform.wait_for("serviceaccounts", "default", lambda _: True, name)
    return name
