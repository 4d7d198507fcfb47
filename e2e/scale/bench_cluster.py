"""A control plane for one benchmark, with the operator installed; gone with the block."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.admin import Admin
from e2e.fixtures import refuse_foreign_context
from e2e.operator_process import install
from e2e.stack import Stack, down, up


@contextmanager
def own_control_plane(name: str, namespaces: Iterable[str]) -> Iterator[tuple[Stack, Admin, Path]]:
    """With these namespaces; the folder is for whatever else runs. TONNAGE_E2E_KEEP keeps it."""
    root = Path(tempfile.mkdtemp(prefix=f"tonnage-{name}-"))
    stack = up(root, owner_pid=os.getpid())
    try:
        refuse_foreign_context(stack.kubeconfig, stack)
        admin = Admin(stack.kubeconfig, stack.kubectl)
        install(admin)
        for namespace in namespaces:
            admin.rest.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        yield stack, admin, root
    finally:
        down(root)
        if os.environ.get("TONNAGE_E2E_KEEP"):
            print(f"kept: {root}", file=sys.stderr)  # noqa: T201 - where to look afterwards
        else:
            shutil.rmtree(root, ignore_errors=True)
