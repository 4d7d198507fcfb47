"""Objects that were stored with older CRDs work with the current ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.harness.admin import Admin
from e2e.harness.operator_process import ROOT, OperatorProcess
from e2e.harness.rest import ApiError, Json
from e2e.harness.stack import Stack
from e2e.models import inference
from e2e.programs.helm import CRD_CHART, OPERATOR_CHART, Helm
from tests.support.specs.schema_examples import example, field_paths, paths_in
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import STATUS_FIELD_MANAGER
from tonnage.api.parse import parse_model
from tonnage.api.pool import AcceleratorPoolSpec, AcceleratorPoolStatus
from tonnage.api.schema import ApiModel
from tonnage.api.status import InferenceDeploymentStatus

DATA = ROOT / "tests" / "data"
OLD = "0.1.0-first"
NEW_FIELD = ".spec.approval"
MODELS: dict[str, tuple[type[ApiModel], type[ApiModel]]] = {
    "InferenceDeployment": (InferenceDeploymentSpec, InferenceDeploymentStatus),
    "AcceleratorPool": (AcceleratorPoolSpec, AcceleratorPoolStatus),
}


def old_schemas() -> dict[str, Json]:
    """The schemas of the older version by kind."""
    crds = [yaml.safe_load(path.read_text("utf-8")) for path in (DATA / "crds" / OLD).iterdir()]
    return {
        crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for crd in crds
    }


def old_objects() -> list[Json]:
    """The objects under the older version, without a status."""
    return list(yaml.safe_load_all((DATA / "stored" / f"{OLD}.yaml").read_text("utf-8")))


@pytest.fixture
def helm(empty_stack: Stack, tmp_path: Path) -> Helm:
    return Helm(tmp_path / "helm", empty_stack.kubeconfig)


@pytest.fixture
def older_kinds(
    helm: Helm, platform: Admin, operator_namespace: str, tmp_path: Path
) -> Iterator[None]:
    """The kinds as the older chart had them."""
    chart = tmp_path / CRD_CHART.name
    shutil.copytree(CRD_CHART, chart)
    for path in (DATA / "crds" / OLD).iterdir():
        shutil.copy(path, chart / "files" / path.name)
    helm.run("install", CRD_CHART.name, chart, f"--namespace={operator_namespace}", "--wait")
    for kind in MODELS:
        served = partial(platform.rest.serves, platform.resource(kind).path(""))
        platform.until(f"{kind} to be served", served)
    yield
    helm.run("uninstall", CRD_CHART.name, f"--namespace={operator_namespace}")
    for path in (DATA / "crds" / OLD).iterdir():
        name = yaml.safe_load(path.read_text("utf-8"))["metadata"]["name"]
        platform.delete("crd", name, timeout=240)


@pytest.fixture
def stored(older_kinds: None, platform: Admin) -> Iterator[list[Json]]:
    """Every object with every field of its status, as the API server stores it."""
    schemas = old_schemas()
    with platform.fresh_namespace("stored"):
        objects = []
        for manifest in old_objects():
            platform.apply(manifest)
            status = {"status": example(schemas[manifest["kind"]]["properties"]["status"])}
            name = manifest["metadata"]["name"]
            objects.append(platform.patch(manifest["kind"], name, status, subresource="status"))
        yield objects


def test_the_stored_objects_set_every_field_of_the_spec() -> None:
    for kind, schema in old_schemas().items():
        spec = schema["properties"]["spec"]
        objects = [manifest["spec"] for manifest in old_objects() if manifest["kind"] == kind]
        present = {path for spec_values in objects for path in paths_in(spec_values, spec)}
        assert set(field_paths(spec)) - present == set()


def current(platform: Admin, before: Json) -> Json:
    now = platform.get(before["kind"], before["metadata"]["name"])
    assert now is not None
    return now


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """Paths at which `after` lacks what `before` has, or has something else."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            path_below
            for name, value in before.items()
            for path_below in lost(value, after.get(name), f"{path}.{name}")
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            path_below
            for one, other in zip(before, after, strict=True)
            for path_below in lost(one, other, f"{path}[]")
        ]
    return [] if before == after else [path]


def test_stored_objects_lose_no_field_by_a_crd_upgrade_and_can_be_updated(
    stored: list[Json], helm: Helm, platform: Admin, operator_namespace: str
) -> None:
    helm.run("upgrade", CRD_CHART.name, CRD_CHART, f"--namespace={operator_namespace}", "--wait")
    wait_published(platform, NEW_FIELD)
    for before in stored:
        now = current(platform, before)
        assert lost(before["spec"], now["spec"]) == []
        assert lost(before["status"], now["status"]) == []
        of_spec, of_status = MODELS[before["kind"]]
        parse_model(of_spec, now["spec"], "spec")
        parse_model(of_status, now["status"], "status")

        labelled = platform.patch(
            before["kind"], before["metadata"]["name"], {"metadata": {"labels": {"touched": "yes"}}}
        )
        assert lost(before["spec"], labelled["spec"]) == []
        assert lost(before["status"], labelled["status"]) == []
        replaced = replace_strictly(platform, labelled)
        assert lost(before["spec"], replaced["spec"]) == []


def test_an_upgrade_removes_status_fields_that_are_no_longer_reported(
    older_kinds: None, helm: Helm, platform: Admin, operator_namespace: str
) -> None:
    status = old_schemas()["InferenceDeployment"]["properties"]["status"]["properties"]
    (item, model) = status["placements"]["items"], status["model"]
    whole: Json = {"placements": [example(item)], "model": example(model)}
    required: Json = {
        "placements": [{name: example(item)[name] for name in item["required"]}],
        "model": {name: example(model)[name] for name in model["required"]},
    }
    assert len(required["placements"][0]) < len(whole["placements"][0])
    with platform.fresh_namespace("stored"):
        (served,) = platform.apply(inference("llama", "llama-3.1-8b"))
        assert owned(report(platform, served, whole), "f:model") != {}
        helm.run(
            "upgrade", CRD_CHART.name, CRD_CHART, f"--namespace={operator_namespace}", "--wait"
        )
        platform.until(
            "the fields of a model to have one owner",
            lambda: owned(report(platform, served, whole), "f:model") == {},
        )
        now = report(platform, served, required)
        assert {name: now["status"][name] for name in required} == required
        platform.delete("infd", "llama")


def report(platform: Admin, target: Json, status: Json) -> Json:
    """Apply a status as the operator does."""
    metadata = {key: target["metadata"][key] for key in ("name", "namespace")}
    body = {key: target[key] for key in ("apiVersion", "kind")}
    path = platform.resource(target["kind"]).path(metadata["namespace"], metadata["name"], "status")
    return platform.rest.request(
        "PATCH",
        path,
        {**body, "metadata": metadata, "status": status},
        query={"fieldManager": STATUS_FIELD_MANAGER, "force": "true"},
        content_type="application/apply-patch+yaml",
    )


def owned(target: Json, field: str) -> Json | None:
    """What of a field of the status the operator owns."""
    for entry in target["metadata"]["managedFields"]:
        if entry["manager"] == STATUS_FIELD_MANAGER:
            answer: Json | None = entry["fieldsV1"]["f:status"].get(field)
            return answer
    return None


def test_a_crd_rollback_prunes_only_new_fields(
    stored: list[Json], helm: Helm, platform: Admin, operator_namespace: str
) -> None:
    helm.run("upgrade", CRD_CHART.name, CRD_CHART, f"--namespace={operator_namespace}", "--wait")
    wait_published(platform, NEW_FIELD)
    # What is published may be ahead of what is served.
    manual = {"spec": {"approval": "Manual"}}
    platform.until(
        "the new field to be stored",
        lambda: "approval" in platform.patch("infd", "inline", manual)["spec"],
    )
    helm.run("rollback", CRD_CHART.name, "1", f"--namespace={operator_namespace}", "--wait")
    wait_withdrawn(platform, NEW_FIELD)
    platform.wait_for("infd", "inline", lambda deployment: "approval" not in deployment["spec"])
    for before in stored:
        now = current(platform, before)
        assert lost(before["spec"], now["spec"]) == []
        assert "approval" not in now["spec"]


def test_an_operator_newer_than_the_crds_places_objects_and_reports_what_to_do(
    older_kinds: None,
    helm: Helm,
    platform: Admin,
    empty_stack: Stack,
    operator_namespace: str,
    tmp_path: Path,
) -> None:
    release = (OPERATOR_CHART.name, f"--namespace={operator_namespace}", "--wait")
    helm.run("install", *release, OPERATOR_CHART)
    operator = OperatorProcess(empty_stack, tmp_path / "operator")
    operator.start()
    with platform.fresh_namespace("chat"):
        platform.apply(inference("llama", "llama-3.1-8b"))
        platform.wait_items("deploy", lambda deployments: len(deployments) == 1, timeout=240)
        platform.until(
            "the log to say what to do",
            lambda: "the CRD is older than this operator" in operator.log.read_text("utf-8"),
            timeout=240,
        )
        platform.delete("infd", "llama")
    operator.close()
    helm.run("uninstall", *release)


def published(platform: Admin) -> set[str]:
    """Fields that an InferenceDeployment has by the schema that is published; none at the moment in
    which a changed CRD is published anew, when the whole version is not found."""
    try:
        answer = platform.rest.request("GET", "/openapi/v3/apis/tonnage.dev/v1alpha1")
    except ApiError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return set()
        raise
    return {
        field
        for name, schema in answer["components"]["schemas"].items()
        if name.endswith(".InferenceDeployment")
        for field in field_paths(schema)
    }


def wait_published(platform: Admin, field: str) -> None:
    platform.until(f"a schema with {field}", lambda: field in published(platform))


def wait_withdrawn(platform: Admin, field: str) -> None:
    def withdrawn() -> bool:
        fields = published(platform)
        return bool(fields) and field not in fields

    platform.until(f"a schema without {field}", withdrawn)


def replace_strictly(platform: Admin, manifest: Json) -> Json:
    """What `kubectl replace` does: the whole object, and no field that is not known."""
    metadata = manifest["metadata"]
    path = platform.resource(manifest["kind"]).path(metadata.get("namespace", ""), metadata["name"])
    return platform.rest.request("PUT", path, manifest, query={"fieldValidation": "Strict"})
