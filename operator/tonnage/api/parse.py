"""Parses stored objects into the models, with errors that name the field to change."""

import re
from typing import Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.schema import UNION_TAGS, ApiModel
from tonnage.api.text import format_steps, show_value

Parsed = TypeVar("Parsed", bound=ApiModel)

_MAX_ERRORS: Final = 5
_MAX_INPUT_CHARS: Final = 60
_MAX_DEPTH: Final = 100
"""Maximum nesting; a config.json in a spec has fewer than 20 levels."""
_NESTED: Final = (dict, list)

_PATCH: Final = "podTemplate"
"""Field whose spec is a merge patch: a null deletes a field."""

_EXPECTED: Final = {
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dict_type": "an object",
    "list_type": "a list",
    "tuple_type": "a list",
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "string_too_short": "a length of at least {min_length}",
    "string_too_long": "a length of at most {max_length}",
    "string_pattern_mismatch": "text that matches {pattern}",
    "too_short": "a length of at least {min_length}",
    "too_long": "a length of at most {max_length}",
    "enum": "{expected}",
    "literal_error": "{expected}",
}
"""The expected value, by pydantic's name of the error; its context fills in the bounds."""

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")


class InvalidSpecError(ValueError):
    """A spec that the models reject. The message has each field, its value and the expected one."""


def parse_spec(raw: object) -> InferenceDeploymentSpec:
    """Parse the spec of an InferenceDeployment. Raises InvalidSpecError."""
    return parse_model(InferenceDeploymentSpec, raw, "spec")


def parse_model(model: type[Parsed], raw: object, field: str) -> Parsed:
    """Parse `raw` as `model`; `field` is its path in the object. Raises InvalidSpecError."""
    try:
        return model.model_validate(_drop_nulls(raw, _MAX_DEPTH))
    except ValidationError as error:
        raise InvalidSpecError(_describe(error, field)) from None
    except _TooDeepError:
        raise InvalidSpecError(f"{field}: is nested deeper than {_MAX_DEPTH} levels") from None


def _describe_expected(problem: ErrorDetails) -> str:
    """The expected value of a field that pydantic refused, as in `expected at least 1`."""
    expected = _EXPECTED.get(problem["type"])
    if expected is None:
        return problem["msg"]
    return f"expected {expected.format(**problem.get('ctx', {}))}"


def describe_refused(problem: ErrorDetails) -> str:
    """A value that pydantic refused, and what it expected: `'x': expected a number`."""
    return f"{str(problem['input'])[:_MAX_INPUT_CHARS]!r}: {_describe_expected(problem)}"


def parse_duration(text: str) -> float:
    """Seconds of a duration such as 1h30m; `text` has passed the pattern of schema.Duration."""
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))


class _TooDeepError(Exception):
    """The value is nested too deeply for recursive parsing."""


def _drop_nulls(raw: object, levels: int) -> object:
    """Drop null fields, as the API server does before it applies defaults, except for those of a
    merge patch.

    Raises _TooDeepError for more than `levels` levels.
    """
    if not isinstance(raw, _NESTED):
        return raw
    if not levels:
        raise _TooDeepError
    if isinstance(raw, list):
        return [_drop_nulls(value, levels - 1) for value in raw]
    kept = {
        key: _drop_nulls(value, levels - 1) if isinstance(value, _NESTED) else value
        for key, value in raw.items()
        if value is not None
    }
    patch, kept_patch = raw.get(_PATCH), kept.get(_PATCH)
    if isinstance(patch, dict) and isinstance(kept_patch, dict) and "spec" in kept_patch:
        kept_patch["spec"] = patch["spec"]
    return kept


def _describe(error: ValidationError, field: str) -> str:
    problems = error.errors(include_url=False)
    shown = [_describe_one(problem, field) for problem in problems[:_MAX_ERRORS]]
    if len(problems) > _MAX_ERRORS:
        shown.append(f"and {len(problems) - _MAX_ERRORS} more")
    return "; ".join(shown)


def _describe_one(problem: ErrorDetails, field: str) -> str:
    parts = (part for part in problem["loc"] if part not in UNION_TAGS)
    path = field + format_steps(parts)
    if problem["type"] == "missing":
        return f"{path}: is required"
    if problem["type"] == "extra_forbidden":
        return f"{path}: is not a field of this version"
    if problem["type"] == "value_error":
        return f"{path}: {problem['msg'].removeprefix('Value error, ')}"
    shown = show_value(problem["input"], problem["loc"])
    return f"{path}: {_describe_expected(problem)}, found {shown}"
