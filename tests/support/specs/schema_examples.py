"""Fields of a structural schema: their paths, those that an object has, and an object with all."""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_PLAIN = {"string": "x", "integer": 1, "number": 0.5, "boolean": True}


def field_paths(schema: Schema, path: str = "") -> Iterator[str]:
    """The path of every field: a list's entries are `[]`, a map's values `{}`."""
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from field_paths(inner, f"{path}.{name}")
    if "items" in schema:
        yield from field_paths(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from field_paths(schema["additionalProperties"], f"{path}{{}}")


def paths_in(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """The paths of the fields that a value has, as `field_paths` writes them."""
    if isinstance(value, list):
        for entry in value:
            yield from paths_in(entry, schema["items"], f"{path}[]")
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name in schema.get("properties", {}):
                yield f"{path}.{name}"
                yield from paths_in(inner, schema["properties"][name], f"{path}.{name}")


def example(schema: Schema) -> Any:
    """A value that has every field. Only for schemas without patterns and choices."""
    if "enum" in schema:
        return schema["enum"][0]
    if "properties" in schema:
        return {name: example(inner) for name, inner in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        return {"x": example(schema["additionalProperties"])}
    if "items" in schema:
        return [example(schema["items"])]
    return _PLAIN[schema["type"]]
