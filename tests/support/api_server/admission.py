"""What the API server does with a spec before it stores it, by the published CRD.

Unknown fields are pruned, nulls dropped, defaults filled in; then the schema has its say, and the
rules in CEL (https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources). Held to the real
API server by e2e/journeys/rollouts/test_spec_campaign.py.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import cel
import yaml
from jsonschema import Draft4Validator

Schema = dict[str, Any]

_CRD = Path(__file__).parents[3] / "crds" / "tonnage.dev_inferencedeployments.yaml"
_KEEP = "x-kubernetes-preserve-unknown-fields"
_RULES = "x-kubernetes-validations"


class RefusedByServerError(ValueError):
    """The API server would not store the spec; the message says why."""


@cache
def spec_schema() -> Schema:
    """The structural schema of `spec`, as the CRD has it."""
    definition = yaml.safe_load(_CRD.read_text("utf-8"))
    (version,) = definition["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def admit(spec: Any) -> Any:
    """The spec as it is stored. Raises RefusedByServerError."""
    schema = spec_schema()
    stored = _complete(spec, schema)
    errors = [f"{error.json_path}: {error.message}" for error in _validator().iter_errors(stored)]
    errors = errors or list(_broken_rules(stored, schema, "$"))
    if errors:
        raise RefusedByServerError("; ".join(errors))
    return stored


def is_admitted(spec: Any) -> bool:
    """Whether the API server stores the spec."""
    try:
        admit(spec)
    except RefusedByServerError:
        return False
    return True


def without_nulls(value: Any) -> Any:
    """The spec as any store keeps it: a field that is null is not there."""
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: without_nulls(each) for key, each in value.items() if each is not None}


@cache
def _validator() -> Draft4Validator:
    """OpenAPI 3.0 writes exclusive bounds as draft 4 of JSON Schema does, a flag next to each."""
    return Draft4Validator(_with_go_patterns(spec_schema()))


def _with_go_patterns(node: Any) -> Any:
    """Patterns as Go reads them: ASCII classes, and `$` is the end of the text."""
    if isinstance(node, list):
        return [_with_go_patterns(each) for each in node]
    if not isinstance(node, dict):
        return node
    changed = {key: _with_go_patterns(value) for key, value in node.items()}
    if isinstance(node.get("pattern"), str):
        changed["pattern"] = f"(?a){node['pattern'].removesuffix('$')}\\Z"
    return changed


def _complete(value: Any, schema: Schema) -> Any:
    """Without unknown fields and nulls, with the defaults of absent fields."""
    if isinstance(value, list):
        return [_complete(each, schema.get("items", {})) for each in value]
    if not isinstance(value, dict) or schema.get(_KEEP):
        return value
    fields = schema.get("properties", {})
    others = schema.get("additionalProperties")
    completed = {
        name: _complete(each, inner)
        for name, each in value.items()
        for inner in [fields.get(name, others)]
        if each is not None and isinstance(inner, dict)
    }
    absent = {name: inner for name, inner in fields.items() if name not in completed}
    return completed | {name: one["default"] for name, one in absent.items() if "default" in one}


def _broken_rules(value: Any, schema: Schema, path: str) -> Iterator[str]:
    for rule in schema.get(_RULES, []):
        if not cel.evaluate(rule["rule"], {"self": value}):
            yield f"{path}: {rule['message']}"
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _broken_rules(each, schema["items"], f"{path}[{number}]")
    elif isinstance(value, dict):
        fields = schema.get("properties", {})
        for name, each in value.items():
            inner = fields.get(name) or schema.get("additionalProperties")
            if isinstance(inner, dict):
                yield from _broken_rules(each, inner, f"{path}.{name}")
