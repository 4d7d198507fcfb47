"""One real control plane for all tests of this folder."""

from pathlib import Path

import pytest

from e2e.harness.admin import Admin
from e2e.harness.fixtures import admin, control_plane, namespace

__all__ = ["admin", "control_plane", "namespace"]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def _installed(admin: Admin) -> None:
    """Our kinds, and the namespace of the operator."""
    for path in sorted((ROOT / "crds").glob("tonnage.dev_*.yaml")):
        admin.apply(path)
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tonnage-system"}})
