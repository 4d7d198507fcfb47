"""A real API server accepts every overlay, without an unknown field or a warning."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.harness.admin import Admin
from e2e.harness.operator_process import ROOT
from e2e.programs.prometheus_operator import crds

FOLDERS = ("base", *(f"overlays/{path.name}" for path in (ROOT / "manifests/overlays").iterdir()))


@pytest.fixture(scope="module")
def made_by_others(platform: Admin) -> Iterator[None]:
    """The kinds of the Prometheus Operator, the namespace that one of the overlays serves, and that
    of a shard."""
    names = ("chat", "tonnage-east")
    for name in names:
        platform.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    with crds(platform):
        yield
    for name in names:
        platform.delete("namespaces", name, timeout=None)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_api_server_accepts_each_overlay(
    folder: str, platform: Admin, operator_namespace: str, made_by_others: None
) -> None:
    said = platform.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict"),
        *("--warnings-as-errors", "-k", str(ROOT / "manifests" / folder)),
    )
    assert "deployment.apps/tonnage serverside-applied" in said


@pytest.mark.parametrize("name", ["operator", "models"])
def test_an_api_server_takes_the_network_policies(
    name: str, platform: Admin, operator_namespace: str
) -> None:
    path = ROOT / "manifests" / "components" / "network-policies" / f"{name}.yaml"
    output = platform.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict"),
        *("--warnings-as-errors", f"--namespace={operator_namespace}", "-f", str(path)),
    )
    assert "serverside-applied" in output
