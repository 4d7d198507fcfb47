"""Argo CD installs the operator from the shipped Application with both charts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.delivery.gitops.applications import KIND, shipped
from e2e.doubles.watch_recorder import WatchRecorder
from e2e.harness.admin import Admin, condition
from e2e.harness.binaries import program_path
from e2e.harness.operator_process import ROOT
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.programs import argo_cd as argo
from e2e.programs.argo_cd import NAMESPACE, ArgoCd
from e2e.programs.git_repository import GitRepository

TONNAGE = "tonnage"
WHERE = "tonnage-system"


@pytest.fixture
def application(
    empty_stack: Stack, platform: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Json]:
    """The shipped Application on a repository with this project's charts."""
    repository = GitRepository(tmp_path / "repository")
    shutil.copytree(ROOT / "charts", repository.folder / "charts")
    repository.commit({})
    manifest = shipped("operator.yaml")
    for source in manifest["spec"]["sources"]:
        source["repoURL"] = repository.url
    argo.install(platform, tmp_path)
    monkeypatch.setenv("PATH", str(program_path("helm").parent), prepend=":")
    processes = ArgoCd(empty_stack, tmp_path / "argo-cd")
    processes.start()
    yield manifest
    processes.close()
    for plural in ("inferencedeployments", "acceleratorpools"):
        platform.delete("crd", f"{plural}.tonnage.dev", timeout=240)


def synced(application: Json) -> bool:
    status = application.get("status", {})
    return bool(
        status.get("sync", {}).get("status") == "Synced"
        and status.get("health", {}).get("status") == "Healthy"
        and status.get("operationState", {}).get("phase") == "Succeeded"
    )


def test_argo_cd_installs_the_operator_without_drift_and_keeps_the_crds(
    platform: Admin, application: Json
) -> None:
    platform.apply(application)
    platform.wait_for(KIND, TONNAGE, synced, NAMESPACE, timeout=240)
    platform.wait_for("deployments", TONNAGE, condition("Available"), WHERE, timeout=240)
    with WatchRecorder(platform, KIND, TONNAGE, NAMESPACE) as recorder:
        change = {"metadata": {"annotations": {"argocd.argoproj.io/refresh": "hard"}}}
        platform.patch(KIND, TONNAGE, change, NAMESPACE)
        platform.until(
            "Argo CD to have compared anew",
            lambda: len(recorder.versions) > 1 and not is_asked(recorder.versions[-1]),
            timeout=240,
        )
    assert {version["status"]["sync"]["status"] for version in recorder.versions} == {"Synced"}

    (model,) = platform.apply(ROOT / "manifests" / "samples" / "qwen3-8b-inline.yaml")
    cascade = {"metadata": {"finalizers": ["resources-finalizer.argocd.argoproj.io"]}}
    platform.patch(KIND, TONNAGE, cascade, NAMESPACE)
    platform.delete(KIND, TONNAGE, NAMESPACE, timeout=240)
    platform.wait_gone("deployments", TONNAGE, WHERE, timeout=240)
    name, namespace = model["metadata"]["name"], model["metadata"]["namespace"]
    assert platform.get("infd", name, namespace) is not None


def is_asked(current: Json) -> bool:
    return "argocd.argoproj.io/refresh" in (current["metadata"].get("annotations") or {})
