"""A control plane for one benchmark, with the operator installed; it ends with the block."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.harness.admin import Admin
from e2e.harness.fixtures import refuse_foreign_context
from e2e.harness.operator_process import install
from e2e.harness.stack import Stack, down, up


@contextmanager
def bench_cluster(name: str, namespaces: Iterable[str]) -> Iterator[tuple[Stack, Admin, Path]]:
    """A control plane with these namespaces, and a folder for the logs of further processes, which
    TONNAGE_E2E_KEEP keeps."""
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
            print(f"kept: {root}", file=sys.stderr)  # noqa: T201 - the path of the logs
        else:
            shutil.rmtree(root, ignore_errors=True)
