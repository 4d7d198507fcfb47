"""The CRDs take what every older version of them has taken."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.specs.crd_compatibility import incompatibilities

ROOT = Path(__file__).parents[3]
OLDER = ROOT / "tests" / "data" / "crds"
VERSIONS = sorted(path.name for path in OLDER.iterdir())
FILES = sorted(path.name for path in (ROOT / "crds").iterdir())


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


# Before there was a release, when no older operator could meet them.
BEFORE_THE_FIRST_RELEASE = {
    ".spec.approval: is new and has a default in the schema",
    ".spec.placement.fallback.back: is new and has a default in the schema",
    ".spec.placement.tightFit: is new and has a default in the schema",
    ".status: default was None, is {'observedGeneration': -1}",
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", FILES)
def test_a_schema_only_grows(version, file):
    problems = set(incompatibilities(load(OLDER / version / file), load(ROOT / "crds" / file)))
    assert problems - BEFORE_THE_FIRST_RELEASE == set()


def test_every_exception_is_still_needed():
    problems = {
        sentence
        for file in FILES
        for sentence in incompatibilities(
            load(OLDER / "0.1.0-first" / file), load(ROOT / "crds" / file)
        )
    }
    assert problems == BEFORE_THE_FIRST_RELEASE


def crd(**schema: Any) -> dict[str, Any]:
    """A CRD whose spec has one field `it` of this schema next to a field `other`."""
    spec = {
        "type": "object",
        "required": ["other"],
        "properties": {"it": schema, "other": {"type": "string"}},
    }
    return {
        "spec": {
            "group": "tonnage.dev",
            "scope": "Namespaced",
            "names": {
                "kind": "Thing",
                "plural": "things",
                "singular": "thing",
                "listKind": "ThingList",
                "shortNames": ["th"],
            },
            "versions": [
                {
                    "name": "v1alpha1",
                    "served": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                }
            ],
        }
    }


RULE = {"rule": "self > 1", "message": "m"}
TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
COMPATIBLE = {
    "nothing": (NUMBER, NUMBER),
    "a wider bound": (NUMBER | {"maximum": 5}, NUMBER | {"maximum": 6}),
    "no bound any more": (NUMBER | {"minimum": 5}, NUMBER),
    "one more value": (TEXT | {"enum": ["a"]}, TEXT | {"enum": ["a", "b"]}),
    "any value": (TEXT | {"enum": ["a"]}, TEXT),
    "a rule that is gone": (NUMBER | {"x-kubernetes-validations": [RULE]}, NUMBER),
    "another description": (NUMBER, NUMBER | {"description": "better"}),
    "one more field": (
        {"type": "object", "properties": {"a": TEXT}},
        {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
    ),
    "one more object with defaults and what it needs": (
        {"type": "object", "properties": {"a": TEXT}},
        {
            "type": "object",
            "properties": {
                "a": TEXT,
                "b": {
                    "type": "object",
                    "required": ["c"],
                    "properties": {"c": TEXT, "d": TEXT | {"default": "x"}},
                },
            },
        },
    ),
}
INCOMPATIBLE = {
    "another type": (NUMBER, TEXT, "type was 'integer'"),
    "a lower maximum": (NUMBER | {"maximum": 6}, NUMBER | {"maximum": 5}, "maximum was 6, is 5"),
    "a first maximum": (NUMBER, NUMBER | {"maximum": 5}, "maximum was None, is 5"),
    "a higher minimum": (TEXT | {"minLength": 1}, TEXT | {"minLength": 2}, "minLength"),
    "a value less": (TEXT | {"enum": ["a", "b"]}, TEXT | {"enum": ["a"]}, "'b' is no longer"),
    "a first list of values": (TEXT, TEXT | {"enum": ["a"]}, "no longer allowed"),
    "another pattern": (TEXT | {"pattern": "a"}, TEXT | {"pattern": "b"}, "pattern was 'a'"),
    "another default": (TEXT | {"default": "a"}, TEXT | {"default": "b"}, "default was 'a'"),
    "a new rule": (NUMBER, NUMBER | {"x-kubernetes-validations": [RULE]}, "new rule"),
    "a field less": (
        {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        {"type": "object", "properties": {"a": TEXT}},
        ".spec.it.b: is gone",
    ),
    "a field that is required now": (
        {"type": "object", "properties": {"a": TEXT}},
        {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
        ".spec.it.a: is required now",
    ),
    "a new field with a default": (
        {"type": "object", "properties": {"a": TEXT}},
        {"type": "object", "properties": {"a": TEXT, "b": TEXT | {"default": "x"}}},
        ".spec.it.b: is new and has a default",
    ),
    "narrower entries of a list": (
        {"type": "array", "items": NUMBER},
        {"type": "array", "items": NUMBER | {"maximum": 5}},
        ".spec.it[]: maximum",
    ),
    "narrower values of a map": (
        {"type": "object", "additionalProperties": TEXT},
        {"type": "object", "additionalProperties": TEXT | {"maxLength": 5}},
        ".spec.it{}: maxLength",
    ),
    "a list that is merged otherwise": (
        {"type": "array", "items": TEXT, "x-kubernetes-list-type": "map"},
        {"type": "array", "items": TEXT, "x-kubernetes-list-type": "atomic"},
        "x-kubernetes-list-type was 'map'",
    ),
}


@pytest.mark.parametrize("case", COMPATIBLE)
def test_growth_is_compatible(case):
    old, new = COMPATIBLE[case]
    assert incompatibilities(crd(**old), crd(**new)) == []


@pytest.mark.parametrize("case", INCOMPATIBLE)
def test_a_narrower_schema_is_reported(case):
    old, new, want = INCOMPATIBLE[case]
    (sentence,) = incompatibilities(crd(**old), crd(**new))
    assert want in sentence


def without(schema, *path):
    """A copy without the entry at `path`."""
    copy = deepcopy(schema)
    *outer, last = path
    inner = copy
    for key in outer:
        inner = inner[key]
    del inner[last]
    return copy


def test_a_changed_kind_is_reported():
    before, after = crd(**TEXT), crd(**TEXT)
    after["spec"]["scope"] = "Cluster"
    after["spec"]["names"] |= {"plural": "thingies", "shortNames": []}
    assert incompatibilities(before, after) == [
        "scope: was Namespaced, is Cluster",
        "names.plural: was things, is thingies",
        "names.shortNames: th is gone",
    ]


def test_a_missing_version_or_subresource_is_reported():
    before = crd(**TEXT)
    assert incompatibilities(
        before, without(before, "spec", "versions", 0, "subresources", "status")
    ) == ["v1alpha1: the subresource status changed"]
    not_served = deepcopy(before)
    not_served["spec"]["versions"][0]["served"] = False
    assert incompatibilities(before, not_served) == ["v1alpha1: is no longer served"]
