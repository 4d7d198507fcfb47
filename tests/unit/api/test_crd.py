"""The generated CRDs: structural, described, and with defaults for scalars only."""

from collections.abc import Iterator
from typing import Any

import pytest

from tonnage.api.crd import crd_manifests

CRDS = {body["spec"]["names"]["kind"]: body for body in crd_manifests().values()}
ALWAYS_EMPTY = {"spec.model.cache.nodeDisk"}
"""Objects whose presence says it all."""

NOT_STRUCTURAL = {"$ref", "$defs", "anyOf", "oneOf", "allOf", "title", "nullable", "const"}


def version_of(kind: str) -> dict[str, Any]:
    (version,) = CRDS[kind]["spec"]["versions"]
    assert isinstance(version, dict)
    return version


def walk(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, value in schema.get("properties", {}).items():
        yield from walk(value, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from walk(schema[key], f"{path}.{key}")


def fields(kind: str, part: str) -> list[tuple[str, dict[str, Any]]]:
    schema = version_of(kind)["schema"]["openAPIV3Schema"]
    return list(walk(schema["properties"][part], part))


ALL_FIELDS = [field for kind in CRDS for part in ("spec", "status") for field in fields(kind, part)]


@pytest.mark.parametrize(("path", "schema"), ALL_FIELDS, ids=[path for path, _ in ALL_FIELDS])
def test_every_field_is_structural_and_described(path: str, schema: dict[str, Any]) -> None:
    assert not NOT_STRUCTURAL & schema.keys()
    types = {"object", "array", "string", "integer", "number", "boolean"}
    is_union = "type" not in schema and schema["x-kubernetes-preserve-unknown-fields"]
    assert is_union or schema["type"] in types
    is_element = path.endswith((".items", ".additionalProperties"))
    assert is_element or schema.get("description"), f"kubectl explain {path} would print nothing"


@pytest.mark.parametrize(("path", "schema"), ALL_FIELDS, ids=[path for path, _ in ALL_FIELDS])
def test_the_api_server_prunes_no_key_of_a_map(path: str, schema: dict[str, Any]) -> None:
    keywords = {"properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"}
    is_map = schema.get("type") == "object" and path not in ALWAYS_EMPTY
    assert not is_map or keywords & schema.keys(), f"{path} would always be empty"


@pytest.mark.parametrize(("path", "schema"), ALL_FIELDS, ids=[path for path, _ in ALL_FIELDS])
def test_the_api_server_drops_no_part_of_a_schema(path: str, schema: dict[str, Any]) -> None:
    assert {} not in schema.values()


@pytest.mark.parametrize("kind", CRDS)
def test_no_default_adds_an_object_to_a_users_spec(kind: str) -> None:
    defaults = [schema["default"] for _, schema in fields(kind, "spec") if "default" in schema]
    assert defaults
    assert all(isinstance(default, str | int | float | bool) for default in defaults)


def optional_fields() -> list[tuple[str, str]]:
    return [
        (f"{path}.{name}", value["description"])
        for kind in CRDS
        for path, schema in fields(kind, "spec")
        for name, value in schema.get("properties", {}).items()
        if name not in schema.get("required", ())
        and value.get("type") not in ("object", "array")
        and "x-kubernetes-validations" not in schema
    ]


@pytest.mark.parametrize(("path", "description"), optional_fields())
def test_every_optional_field_documents_its_default(path: str, description: str) -> None:
    assert "Default" in description or "instead of" in description, path


def test_the_crds_have_short_names_categories_subresources_and_columns() -> None:
    names = CRDS["InferenceDeployment"]["spec"]["names"]
    assert names["shortNames"] == ["infd"]
    assert names["categories"] == ["tonnage", "all"]
    assert CRDS["AcceleratorPool"]["spec"]["names"]["categories"] == ["tonnage"]
    version = version_of("InferenceDeployment")
    assert version["subresources"]["scale"]["labelSelectorPath"] == ".status.selector"
    assert version["subresources"]["status"] == {}
    columns = [column["name"] for column in version["additionalPrinterColumns"]]
    assert columns[:5] == ["Ready", "Pool", "Accelerator", "TP", "Replicas"]
    assert CRDS["AcceleratorPool"]["spec"]["scope"] == "Cluster"


def test_conditions_are_a_map_by_type() -> None:
    for kind in CRDS:
        ((_, conditions),) = (
            field for field in fields(kind, "status") if field[0] == "status.conditions"
        )
        assert conditions["x-kubernetes-list-type"] == "map"
        assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_every_other_object_of_a_status_is_atomic() -> None:
    for kind in CRDS:
        status = version_of(kind)["schema"]["openAPIV3Schema"]["properties"]["status"]
        objects = {
            name: field.get("items", field)
            for name, field in status["properties"].items()
            if field["type"] == "object" or field.get("x-kubernetes-list-type") == "map"
        }
        del objects["conditions"]
        assert objects
        assert {field.get("x-kubernetes-map-type") for field in objects.values()} == {"atomic"}


def test_the_api_server_refuses_bounds_in_the_wrong_order() -> None:
    """The rule needs no `has()`: the API server sets both defaults before it evaluates rules."""
    ((_, scaling),) = (
        field for field in fields("InferenceDeployment", "spec") if field[0] == "spec.scaling"
    )
    rule, _ = scaling["x-kubernetes-validations"]
    assert rule["rule"] == "self.minReplicas <= self.maxReplicas"
    assert {"minReplicas", "maxReplicas"} <= set(rule["message"].split())
    bounds = [scaling["properties"][name] for name in ("minReplicas", "maxReplicas")]
    assert all("default" in bound for bound in bounds)


def test_the_api_server_refuses_scale_to_zero_without_targets() -> None:
    ((_, scaling),) = (
        field for field in fields("InferenceDeployment", "spec") if field[0] == "spec.scaling"
    )
    _, rule = scaling["x-kubernetes-validations"]
    assert rule["rule"] == "!has(self.scaleToZero) || has(self.targets)"
    (any_target,) = scaling["properties"]["targets"]["x-kubernetes-validations"]
    named = set(scaling["properties"]["targets"]["properties"])
    assert all(f"has(self.{name})" in any_target["rule"] for name in named)
    assert all(name in any_target["message"] for name in named)
