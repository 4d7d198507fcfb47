"""Checks the types of the fields that Tonnage reads, so that an error names the field.

A shape describes a value: a `Scalar`, a list with the shape of its items, a `MapOf` values of one
shape under any names, or a mapping from the names of fields to their shapes. Other fields are not
read, and may be anything.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value without fields."""

    expected: str
    admits: Callable[[object], bool]


@dataclass(frozen=True, slots=True)
class MapOf:
    """Values of one shape by names that the user or a driver chooses."""

    value: "Shape"


@dataclass(frozen=True, slots=True)
class Required:
    """A field that every stored object has."""

    shape: "Shape"


Shape: TypeAlias = Scalar | MapOf | Required | list["Shape"] | Mapping[str, "Shape"]


class FieldTypeError(Exception):
    """A value of the wrong type at `path`, which `check_types` builds from the inside out."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(expected)
        self.value = value
        self.expected = expected
        self.path: tuple[str | int, ...] = ()


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


TEXT: Final = Scalar("a string", lambda value: isinstance(value, str))
NAME: Final = Scalar("a name", lambda value: isinstance(value, str) and value != "")
WHOLE: Final = Scalar("an integer", lambda value: _is_number(value) and isinstance(value, int))
TRUTH: Final = Scalar("true or false", lambda value: isinstance(value, bool))
TIME: Final = Scalar("a time as 2026-01-31T12:00:00Z", _is_time)
QUANTITY: Final = Scalar(
    "a quantity as 8 or 2Gi", lambda value: isinstance(value, str) or _is_number(value)
)


def check_types(value: Any, shape: Shape) -> None:
    """Raise FieldTypeError for the first value that does not have its shape. Fields that are null
    are removed: the API server does not store them."""
    match shape:
        case Scalar():
            if not shape.admits(value):
                raise FieldTypeError(value, shape.expected)
        case Required():
            check_types(value, shape.shape)
        case MapOf():
            _expect(value, dict, "an object")
            for name, each in value.items():
                _expect(name, str, "a name in quotes")  # YAML has other keys than strings
                _check_at(name, each, shape.value)
        case list():
            _expect(value, list, "a list")
            for index, each in enumerate(value):
                _check_at(index, each, shape[0])
        case _:
            _expect(value, dict, "an object")
            for name, inner in shape.items():
                _check_field(value, name, inner)


def _check_field(fields: dict[str, Any], name: str, shape: Shape) -> None:
    value = fields.get(name)
    if value is not None or isinstance(shape, Required):
        _check_at(name, value, shape)
    else:
        fields.pop(name, None)


def _expect(value: object, kind: type, expected: str) -> None:
    if not isinstance(value, kind):
        raise FieldTypeError(value, expected)


def _check_at(step: str | int, value: object, shape: Shape) -> None:
    try:
        check_types(value, shape)
    except FieldTypeError as error:
        error.path = (step, *error.path)
        raise
