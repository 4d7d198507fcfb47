"""Whether a CRD takes every object that an older one has taken.

Nothing converts stored objects, and nothing is asked of users on an upgrade: so a schema may only
grow. It reports what the API server would refuse, prune or change, and what an operator of the
older version could not read while the kinds are already the newer ones.
"""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_UPPER = ("maximum", "maxLength", "maxItems", "maxProperties")
_LOWER = ("minimum", "minLength", "minItems", "minProperties")
_FIXED = (
    "type",
    "pattern",
    "format",
    "default",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)


def incompatibilities(old: Schema, new: Schema) -> list[str]:
    """Sentences that each name a field and what became worse from `old` to `new`, two CRDs."""
    return [*_of_the_kind(old["spec"], new["spec"]), *_of_versions(old["spec"], new["spec"])]


def _of_the_kind(old: Schema, new: Schema) -> Iterator[str]:
    for field in ("group", "scope"):
        if old[field] != new[field]:
            yield f"{field}: was {old[field]}, is {new[field]}"
    for field in ("kind", "plural", "singular", "listKind"):
        if old["names"][field] != new["names"][field]:
            yield f"names.{field}: was {old['names'][field]}, is {new['names'][field]}"
    for name in set(old["names"].get("shortNames", [])) - set(new["names"].get("shortNames", [])):
        yield f"names.shortNames: {name} is gone"


def _of_versions(old: Schema, new: Schema) -> Iterator[str]:
    served = {version["name"]: version for version in new["versions"] if version["served"]}
    for version in old["versions"]:
        name = version["name"]
        if name not in served:
            yield f"{name}: is no longer served"
            continue
        for subresource, was in version["subresources"].items():
            if served[name]["subresources"].get(subresource) != was:
                yield f"{name}: the subresource {subresource} changed"
        before = version["schema"]["openAPIV3Schema"]
        yield from _of_schema(before, served[name]["schema"]["openAPIV3Schema"], "")


def _of_schema(old: Schema, new: Schema, path: str) -> Iterator[str]:
    yield from _of_values(old, new, path or ".")
    yield from _of_properties(old, new, path)
    for inner, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(old.get(inner), dict):
            if isinstance(new.get(inner), dict):
                yield from _of_schema(old[inner], new[inner], path + mark)
            else:
                yield f"{path}{mark}: is gone"


def _of_values(old: Schema, new: Schema, path: str) -> Iterator[str]:
    for word in _FIXED:
        if old.get(word) != new.get(word):
            yield f"{path}: {word} was {old.get(word)!r}, is {new.get(word)!r}"
    for word in _UPPER:
        if word in new and new[word] < old.get(word, float("inf")):
            yield f"{path}: {word} was {old.get(word)}, is {new[word]}"
    for word in _LOWER:
        if word in new and new[word] > old.get(word, float("-inf")):
            yield f"{path}: {word} was {old.get(word)}, is {new[word]}"
    if "enum" in new:
        for value in sorted(set(old.get("enum", ["any other value"])) - set(new["enum"])):
            yield f"{path}: {value!r} is no longer allowed"
    for rule in sorted(_rules(new) - _rules(old)):
        yield f"{path}: has the new rule {rule!r}"


def _rules(schema: Schema) -> set[str]:
    return {rule["rule"] for rule in schema.get("x-kubernetes-validations", [])}


def _of_properties(old: Schema, new: Schema, path: str) -> Iterator[str]:
    before, after = old.get("properties", {}), new.get("properties", {})
    for name, schema in before.items():
        if name in after:
            yield from _of_schema(schema, after[name], f"{path}.{name}")
        else:
            yield f"{path}.{name}: is gone"
    for name in sorted(set(new.get("required", [])) - set(old.get("required", []))):
        yield f"{path}.{name}: is required now"
    for name in after.keys() - before.keys():
        # The API server writes a default into every object, and an older operator refuses what it
        # does not know. The operator's own default does the same without that.
        if before and "default" in after[name]:
            yield f"{path}.{name}: is new and has a default in the schema"
