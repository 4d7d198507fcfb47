"""Pod Security, enforced by the real API server, for the operator and the pods of models."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml

from e2e.harness.admin import Admin
from e2e.harness.binaries import program_path
from e2e.harness.operator_process import ROOT
from e2e.harness.rest import ApiError, Json

OVERLAYS = ("base", *(f"overlays/{path.name}" for path in (ROOT / "manifests/overlays").iterdir()))
RENDERED = ROOT / "tests" / "golden" / "render"


@pytest.fixture(scope="module")
def enforced(admin: Admin) -> Iterator[dict[str, str]]:
    """A namespace for each standard that the API server knows, by the standard's name."""
    names = {level: f"pod-security-{level}" for level in ("baseline", "restricted")}
    for level, name in names.items():
        labels = {"pod-security.kubernetes.io/enforce": level}
        admin.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": labels},
            }
        )
        admin.wait_for("serviceaccounts", "default", lambda _: True, name)
    yield names
    for name in names.values():
        admin.delete("namespaces", name, timeout=None)


def try_pod(admin: Admin, namespace: str, template: Json) -> None:
    """Create the template's pod without storing it. Raises ApiError where it is not admitted."""
    pod = {"metadata": {"name": "tried"}, "spec": template["spec"]}
    path = f"/api/v1/namespaces/{namespace}/pods"
    admin.rest.request("POST", path, pod, query={"dryRun": "All", "fieldValidation": "Strict"})


def operators_template(overlay: str) -> Json:
    """The operator's pod, less what the namespace it is tried in does not have."""
    command = [str(program_path("kubectl")), "kustomize", str(ROOT / "manifests" / overlay)]
    objects = yaml.safe_load_all(subprocess.check_output(command, text=True))
    template: Json = next(manifest for manifest in objects if manifest["kind"] == "Deployment")[
        "spec"
    ]["template"]
    template["spec"] |= {"serviceAccountName": "default"}
    template["spec"].pop("priorityClassName", None)
    return template


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_operators_pods_are_admitted_where_restricted_is_enforced(
    admin: Admin, enforced: dict[str, str], overlay: str
) -> None:
    try_pod(admin, enforced["restricted"], operators_template(overlay))


LOOSENED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "as root": ({"runAsNonRoot": False}, {}, "runAsNonRoot"),
    "without a seccomp profile": ({"seccompProfile": None}, {}, "seccompProfile"),
    "with privilege escalation": (
        {},
        {"allowPrivilegeEscalation": True},
        "allowPrivilegeEscalation",
    ),
    "with capabilities": ({}, {"capabilities": None}, "unrestricted capabilities"),
}


@pytest.mark.parametrize("case", LOOSENED)
def test_an_operator_with_a_weaker_security_context_is_not_admitted(
    admin: Admin, enforced: dict[str, str], case: str
) -> None:
    of_the_pod, of_the_container, want = LOOSENED[case]
    template = operators_template("base")
    template["spec"]["securityContext"] |= of_the_pod
    template["spec"]["containers"][0]["securityContext"] |= of_the_container
    with pytest.raises(ApiError, match=f'violates PodSecurity "restricted.*{want}') as error:
        try_pod(admin, enforced["restricted"], template)
    assert error.value.code == 403


# docs/install.md says what the namespaces of models need, by vendor and engine.
STANDARDS = {
    "70b-on-h100": "restricted",
    "70b-on-mi300x": "baseline",
    "cached": "restricted",
    "model-image": "restricted",
    "sglang-on-h100": "baseline",
}


def models_template(case: str) -> Json:
    """vLLM's pod as the operator renders it."""
    text = (RENDERED / f"{case}.output.yaml").read_text("utf-8")
    template: Json = next(yaml.safe_load_all(text))["spec"]["template"]
    return deepcopy(template)


@pytest.mark.parametrize("case", STANDARDS)
def test_models_are_admitted_under_the_standard_of_their_vendor_and_engine(
    admin: Admin, enforced: dict[str, str], case: str
) -> None:
    try_pod(admin, enforced[STANDARDS[case]], models_template(case))


@pytest.mark.parametrize("case", ["70b-on-mi300x", "sglang-on-h100"])
def test_models_that_run_as_root_are_not_admitted_as_restricted(
    admin: Admin, enforced: dict[str, str], case: str
) -> None:
    with pytest.raises(ApiError, match="runAsNonRoot"):
        try_pod(admin, enforced["restricted"], models_template(case))


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_the_pod_that_downloads_weights_is_admitted_everywhere(
    admin: Admin, enforced: dict[str, str], level: str
) -> None:
    objects = yaml.safe_load_all((RENDERED / "cached.output.yaml").read_text("utf-8"))
    job = next(each for each in objects if each["kind"] == "Job")
    try_pod(admin, enforced[level], job["spec"]["template"])


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_models_on_the_disk_of_a_node_need_a_namespace_without_a_standard(
    admin: Admin, enforced: dict[str, str], level: str
) -> None:
    template = models_template("node-disk")
    with pytest.raises(ApiError, match="hostPath"):
        try_pod(admin, enforced[level], template)
    try_pod(admin, "default", template)


def test_the_install_page_names_the_standard_of_each_vendor_and_engine() -> None:
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    assert "| NVIDIA | `restricted`; for [SGLang](sglang.md) `baseline` |" in page
    assert "| AMD | `baseline` |" in page
