"""The charts and the manifests say what the project says of itself."""

import json
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from pydantic.alias_generators import to_camel

from tonnage import __version__
from tonnage.api.names import API_VERSION, INFERENCE_DEPLOYMENT
from tonnage.api.parse import parse_model, parse_spec
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.controller.settings import Settings

ROOT = Path(__file__).parents[3]
CHARTS = sorted(path.parent for path in (ROOT / "charts").glob("*/Chart.yaml"))
OPERATOR = ROOT / "charts" / "tonnage"
KUSTOMIZATIONS = [
    ROOT / "manifests" / "base" / "kustomization.yaml",
    *(ROOT / "manifests" / "overlays").glob("*/kustomization.yaml"),
]

# Who installs it does not choose these: they follow from where the operator runs.
NOT_TO_BE_SET = {
    *("kubeconfig", "context", "namespace", "listen", "hf_cache_directory"),
    *("tls_certificate_file", "tls_key_file"),  # metrics.tlsSecret mounts them
}
VALUES_OF_THEIR_OWN = {"namespaces", "shard", "fleet_file"}


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def schema_of(chart):
    return json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.name)
def test_chart_and_operator_have_the_version_of_the_project(chart):
    chart_metadata = load(chart / "Chart.yaml")
    assert (chart_metadata["version"], chart_metadata["appVersion"]) == (__version__, __version__)


ARTIFACT_HUB = "artifacthub.io/"


@pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.name)
def test_artifact_hub_is_given_the_licence_and_a_category(chart):
    annotations = load(chart / "Chart.yaml")["annotations"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert annotations[f"{ARTIFACT_HUB}license"] == project["license"]
    # https://artifacthub.io/docs/topics/annotations/helm has the categories.
    assert annotations[f"{ARTIFACT_HUB}category"] == "ai-machine-learning"
    assert all(isinstance(value, str) for value in annotations.values())


def test_artifact_hub_is_given_every_kind_with_an_example_that_is_valid():
    annotations = load(ROOT / "charts" / "tonnage-crds" / "Chart.yaml")["annotations"]
    crds = [load(path) for path in (ROOT / "crds").glob("*.yaml")]
    shown = yaml.safe_load(annotations[f"{ARTIFACT_HUB}crds"])
    assert {(one["name"], one["kind"], one["version"]) for one in shown} == {
        (crd["metadata"]["name"], crd["spec"]["names"]["kind"], version["name"])
        for crd in crds
        for version in crd["spec"]["versions"]
    }
    examples = yaml.safe_load(annotations[f"{ARTIFACT_HUB}crdsExamples"])
    assert [one["kind"] for one in examples] == [one["kind"] for one in shown]
    for example in examples:
        assert example["apiVersion"] == API_VERSION
        if example["kind"] == INFERENCE_DEPLOYMENT:
            parse_spec(example["spec"])
        else:
            parse_model(AcceleratorPoolSpec, example["spec"], "spec")


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: path.parent.name)
def test_labels_have_the_version_of_the_project(path):
    for labels in load(path).get("labels", []):
        assert labels["pairs"]["app.kubernetes.io/version"] == __version__


def test_every_setting_of_the_operator_is_a_value_with_its_default():
    described = schema_of(OPERATOR)["properties"]["settings"]["properties"]
    own = {
        to_camel(field.name): field.default
        for field in fields(Settings)
        if field.name not in NOT_TO_BE_SET | VALUES_OF_THEIR_OWN
    }
    assert {
        name: described_field.get("default") for name, described_field in described.items()
    } == own


def undescribed(schema, path=""):
    """Paths of objects that take any key, and of values without a description."""
    for name, inner in schema.get("properties", {}).items():
        where = f"{path}.{name}"
        if not inner.get("description", "").endswith("."):
            yield where
        yield from undescribed(inner, where)
        yield from undescribed(inner.get("items", {}), f"{where}[]")
    if "properties" in schema and schema.get("additionalProperties") is not False:
        yield f"{path or '.'}: takes any key"


@pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.name)
def test_every_value_is_described_and_unknown_values_are_refused(chart):
    assert list(undescribed(schema_of(chart))) == []


def unknown(values, schema, path=""):
    for name, value in values.items():
        inner = schema.get("properties", {}).get(name)
        if inner is None:
            yield f"{path}.{name}"
        elif isinstance(value, dict) and "properties" in inner:
            yield from unknown(value, inner, f"{path}.{name}")


@pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.name)
def test_every_value_of_the_schema_is_in_the_values_file(chart):
    schema, values = schema_of(chart), load(chart / "values.yaml")
    assert list(unknown(values, schema)) == []
    assert schema["properties"].keys() - {"global"} == values.keys()


def test_the_grace_period_exceeds_the_drain_and_the_release_of_the_lease():
    deployment = load(ROOT / "manifests" / "base" / "deployment.yaml")
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace == Settings().drain_seconds + 10


def test_files_copied_into_the_chart_equal_those_of_kustomize():
    files = OPERATOR / "files"
    copies = [path for path in files.rglob("*") if path.is_file()]
    assert copies
    for copy in copies:
        source = ROOT / "manifests" / copy.relative_to(files)
        assert copy.read_bytes() == source.read_bytes(), f"{copy.name}: `make charts`"
