"""A control plane that differs from the one that journeys share, with an operator of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from e2e.harness.admin import Admin
from e2e.harness.operator_process import RestartedOperator, install
from e2e.harness.rest import Json
from e2e.harness.servers import Options
from e2e.harness.stack import down, up
from e2e.journeys.user import User
from e2e.nodes.fleet import apply_fleet


@contextmanager
def user_of_own_cluster(folder: Path, options: Options, fleet: Json) -> Iterator[User]:
    """A user of a cluster with these options and nodes, where the operator runs."""
    root = folder / "stack"
    stack = up(root, owner_pid=os.getpid(), options=options)
    try:
        admin = Admin(stack.kubeconfig, stack.kubectl, audit_log=stack.audit_log)
        install(admin)
        apply_fleet(stack.access, fleet)
        with (
            admin.fresh_namespace() as namespace,
            closing(RestartedOperator(stack, folder / "operator")) as operator,
        ):
            operator.start()
            user = User(admin, namespace)
            yield user
            user.assert_untouched()
    finally:
        down(root)
        if not os.environ.get("TONNAGE_E2E_KEEP"):
            shutil.rmtree(root, ignore_errors=True)
