"""Values for the fields of the CRD's schema, good and bad; a new field is in them by itself.

A value is drawn from the schema of its field: within its bounds, at them, and beyond. Where the
schema says less than there is to know (a model's config, the id of an accelerator), words that mean
something are drawn too: random text alone would never get further than the first check.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from hypothesis import strategies as st

from tests.support.api_server.admission import Schema
from tests.support.engines.shapes import CONFIGS

Path = tuple[str, ...]
Values = st.SearchStrategy[Any]

MODELS: Final = ("llama-3.1-8b", "llama-3.3-70b", "gemma-3-27b", "mixtral-8x7b")
_KEEP: Final = "x-kubernetes-preserve-unknown-fields"
_LONGEST: Final = 12
"""Of texts and collections that nothing in the schema bounds more tightly."""


@cache
def config_of(model: str) -> dict[str, Any]:
    """The config.json of a published model."""
    config: dict[str, Any] = json.loads((CONFIGS / f"{model}.json").read_text("utf-8"))
    return config


_IMAGES: Final = ("registry.local/vllm:other", "registry.local/vllm:v0.32.0")
_CONFIG: Final = (*(config_of(model) for model in MODELS), {}, {"architectures": ["Nothing"]})

WORDS: Final[Mapping[Path, tuple[Any, ...]]] = {
    ("model", "source", "inline", "config"): _CONFIG,
    ("model", "source", "configMap", "name"): ("facts", "missing"),
    ("workload", "maxModelLen"): (1, 4096, 8192, 32768, 131072, 262144),
    ("workload", "concurrency"): (1, 8, 64, 800),
    ("replicas",): (0, 1, 2, 3, 5, 40),
    ("kvCacheDtype",): ("auto", "fp8"),
    ("quantization",): ("auto", "fp8", "awq", "nonsense"),
    ("scaling", "minReplicas"): (0, 1, 2, 3),
    ("scaling", "maxReplicas"): (1, 2, 8),
    ("placement", "accelerators", "[]"): ("mi300x", "h100-sxm-80gb", "l40s", "nonsense"),
    ("placement", "allow", "[]"): ("QuantizationMismatch", "nonsense"),
    ("placement", "poolSelector", "matchLabels"): ({}, {"team": "chat"}),
    ("placement", "multiNode"): ("Auto", "Never", {"maxNodes": 2}, {"allowTcp": True}),
    ("placement", "maxCostPerHour"): ("0.01", "0.5", "5", "1000"),
    ("engine", "vllm", "version"): ("v0.32.0", "v0.27.0", "v0.99.0"),
    ("engine", "vllm", "image"): _IMAGES,
    ("engine", "vllm", "gpuMemoryUtilization"): (0.5, 0.9, 0.95),
    ("engine", "vllm", "maxNumSeqs"): (1, 77, 512),
    ("engine", "vllm", "maxNumBatchedTokens"): (2048, 16384),
    ("engine", "vllm", "extraArgs", "[]"): ("--disable-log-requests", "--port=1", "--nonsense"),
    ("template", "spec", "priorityClassName"): ("urgent", "unknown"),
}
"""What a field may say that means something to the operator, its mistakes included."""


def fields(schema: Schema, path: Path = ()) -> Iterator[tuple[Path, Schema]]:
    """Every field with its schema; those inside a list or a map are drawn with it as a whole."""
    for name, inner in schema.get("properties", {}).items():
        yield (*path, name), inner
        yield from fields(inner, (*path, name))


def choices(schema: Schema) -> list[str]:
    """The fields of which exactly one is set, none where there is no such rule."""
    rules = [rule["rule"] for rule in schema.get("x-kubernetes-validations", [])]
    choice_rule = next((rule for rule in rules if "exists_one" in rule), "")
    return [name for name in schema.get("properties", {}) if f"has(self.{name})" in choice_rule]


def good(schema: Schema, path: Path) -> Values:
    """Values that the schema allows, those with a meaning first."""
    words = [word for word in WORDS.get(path, ()) if _is_within(word, schema)]
    if "type" not in schema and "enum" not in schema:  # a union, of which the schema has nothing
        return st.sampled_from(words)
    by_schema = _good(schema, path)
    return st.sampled_from(words) | by_schema if words else by_schema


def bad(schema: Schema, path: Path) -> Values:
    """Values that the schema should refuse: beyond its bounds, or of another type."""
    beyond: list[Any] = [None, [], {}, "", "\N{SNOWMAN} no", -1, 0.5, True]
    if "maximum" in schema:
        beyond += [schema["maximum"] + 1, 2**63]
    if "minimum" in schema:
        beyond += [schema["minimum"] - 1]
    if "maxLength" in schema:
        beyond += ["x" * (schema["maxLength"] + 1)]
    if "maxItems" in schema:
        beyond += [[None] * (schema["maxItems"] + 1)]
    if "enum" in schema:
        beyond += [schema["enum"][0].upper() + "x"]
    if "properties" in schema:
        beyond += [{"unknown": 1}]
    return st.sampled_from(beyond)


def _is_within(word: Any, schema: Schema) -> bool:
    """Whether a number keeps to the bounds of its field."""
    return "maximum" not in schema or schema["minimum"] <= word <= schema["maximum"]


def _good(schema: Schema, path: Path) -> Values:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "object":
            return _objects(schema, path)
        case "array":
            most = min(2, schema.get("maxItems", 2))
            return st.lists(good(schema["items"], (*path, "[]")), max_size=most)
        case "string":
            return _texts(schema)
        case "boolean":
            return st.booleans()
        case _:
            return _numbers(schema)


def _objects(schema: Schema, path: Path) -> Values:
    without_fields = "properties" not in schema and "additionalProperties" not in schema
    if schema.get(_KEEP) or without_fields:
        return st.just({})
    if "properties" in schema:
        inner = {name: good(one, (*path, name)) for name, one in schema["properties"].items()}
        required = {name: inner.pop(name) for name in schema.get("required", [])}
        excluding = {name: inner.pop(name) for name in choices(schema)}
        rest: Values = st.fixed_dictionaries(required, optional=inner)
        one: list[Values] = [
            st.builds(dict.__or__, rest, st.fixed_dictionaries({name: value}))
            for name, value in excluding.items()
        ]
        return st.one_of(one) if one else rest
    keys = st.sampled_from(["team", "cpu", "memory", "example.com/key"])
    values = good(schema["additionalProperties"], (*path, "{}"))
    return st.dictionaries(keys, values, min_size=schema.get("minProperties", 0), max_size=2)


def _texts(schema: Schema) -> Values:
    least, most = schema.get("minLength", 0), schema.get("maxLength", 10**6)
    if "pattern" in schema:
        strategy = st.from_regex(f"(?a){schema['pattern'].removesuffix('$')}\\Z")
        return strategy.filter(lambda text: least <= len(text) <= most)
    return st.text("ab-./ é", min_size=least, max_size=min(most, _LONGEST))


def _numbers(schema: Schema) -> Values:
    if schema["type"] == "number":
        return st.sampled_from([0.001, 0.5, 0.9, 1])
    least, most = schema.get("minimum", -(2**31)), schema.get("maximum", 2**31 - 1)
    near = [value for value in (0, 1, 2, 3, 7, 64, 1000) if least <= value <= most]
    return st.sampled_from([*near, least, most])
