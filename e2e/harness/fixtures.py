"""pytest fixtures: one control plane for a whole test session, and an admin's client of it.

Use them by importing the names into a conftest.py; however many conftests do so, a session has one
stack. It ends with the session, and also when pytest is killed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness.admin import Admin
from e2e.harness.failure import HarnessError
from e2e.harness.rest import Access
from e2e.harness.stack import Stack, check_ours, down, up

__all__ = ["admin", "control_plane", "namespace", "refuse_foreign_context"]

_STACK = pytest.StashKey[Stack]()


def refuse_foreign_context(kubeconfig: Path, stack: Stack) -> None:
    """Refuse to go on unless `kubeconfig` leads to the very stack that this session started.

    The address must be the stack's, and the marker in the cluster must bear its id: an address
    alone can be reused by another cluster after the stack has ended.
    """
    access = Access.load(kubeconfig)
    if access.server != stack.server:
        raise HarnessError(
            f"kubeconfig {kubeconfig} leads to {access.server}, expected {stack.server}: "
            "this suite talks to no API server that it did not start itself"
        )
    check_ours(access, stack.state["id"])


@pytest.fixture(scope="session")
def control_plane(pytestconfig: pytest.Config) -> Stack:
    """One stack without the operator, started at its first use."""
    stack = pytestconfig.stash.get(_STACK, None)
    if stack is None:
        root = Path(tempfile.mkdtemp(prefix="tonnage-e2e-"))
        stack = up(root, owner_pid=os.getpid())
        pytestconfig.stash[_STACK] = stack
        pytestconfig.add_cleanup(lambda: _end(root))
    refuse_foreign_context(stack.kubeconfig, stack)
    return stack


def _end(root: Path) -> None:
    """End the stack; keep its folder when somebody wants to read the logs."""
    down(root)
    if os.environ.get("TONNAGE_E2E_KEEP"):
        return
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def admin(control_plane: Stack) -> Admin:
    """A client with an admin's rights on the session's stack."""
    return Admin(control_plane.kubeconfig, control_plane.kubectl, audit_log=control_plane.audit_log)


@pytest.fixture
def namespace(admin: Admin) -> Iterator[str]:
    """A namespace of this test alone; `admin` works in it by default meanwhile."""
    with admin.fresh_namespace() as name:
        yield name
