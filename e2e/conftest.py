"""Make the harness's fixtures known to the tests of this folder."""

from e2e.harness.fixtures import admin, control_plane, namespace

__all__ = ["admin", "control_plane", "namespace"]
