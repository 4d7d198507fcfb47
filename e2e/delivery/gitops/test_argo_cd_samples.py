"""The real Argo CD accepts every file of manifests/argo-cd."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from e2e.harness.admin import Admin
from e2e.programs.argo_cd import NAMESPACE
from e2e.programs.argo_cd_settings import FOLDER, SETTINGS

SAMPLES = sorted(
    path
    for path in FOLDER.glob("*.yaml")
    if yaml.safe_load(path.read_text("utf-8"))["apiVersion"].startswith("argoproj.io/")
)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_a_sample_has_only_fields_that_argo_cd_knows(with_argo_cd: Admin, path: Path) -> None:
    sample = yaml.safe_load(path.read_text("utf-8"))
    collection = with_argo_cd.resource(sample["kind"]).path(NAMESPACE)
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    stored = with_argo_cd.rest.request("POST", collection, sample, query=query)
    assert stored["metadata"]["name"] == sample["metadata"]["name"]


def test_the_settings_merge_into_existing_ones(with_argo_cd: Admin) -> None:
    theirs = {"timeout.reconciliation": "60s"}
    with_argo_cd.patch("configmaps", "argocd-cm", {"data": theirs}, NAMESPACE)
    with_argo_cd.kubectl(
        *("-n", NAMESPACE, "patch", "configmap", "argocd-cm"), f"--patch-file={SETTINGS}"
    )
    config_map = with_argo_cd.get("configmaps", "argocd-cm", NAMESPACE)
    assert config_map is not None
    ours = yaml.safe_load(SETTINGS.read_text("utf-8"))["data"]
    assert config_map["data"].items() >= (ours | theirs).items()
    with_argo_cd.patch("configmaps", "argocd-cm", {"data": dict.fromkeys(theirs)}, NAMESPACE)
