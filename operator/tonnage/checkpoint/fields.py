"""Read and validate the fields of a config.json."""

import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

from tonnage.checkpoint.model import CheckpointError

MAX_COUNT: Final = 1 << 31
"""Limit of integers, far above any size in a published model."""

MAX_NAMES: Final = 65_536
"""Most entries of a list."""


def parse_object(text: str | bytes, name: str, limit_bytes: int) -> Mapping[str, object]:
    """Return the JSON object in the file `name`. Infinity and NaN count as null.

    Raises CheckpointError unless the text is an object of at most `limit_bytes` without duplicate
    keys.
    """
    if len(text) > limit_bytes:
        raise CheckpointError(f"{name} is larger than {limit_bytes} bytes")

    def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
        """Refuse a duplicate key, which parsers read differently."""
        unique: dict[str, object] = {}
        for key, value in pairs:
            if key in unique:
                raise CheckpointError(f"{name} has the key {key[:64]!r} twice")
            unique[key] = value
        return unique

    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        parsed = json.loads(decoded, object_pairs_hook=unique_keys, parse_constant=lambda _: None)
    except CheckpointError:
        raise
    except RecursionError as error:
        raise CheckpointError(f"{name} is nested too deeply") from error
    except ValueError as error:  # malformed JSON, wrong encoding, an integer of thousands of digits
        reason = str(error).partition(";")[0][:200]  # advice for programmers follows
        raise CheckpointError(f"{name} is not valid JSON: {reason}") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{name} holds a {type(parsed).__name__}: expected an object")
    return parsed


class ConfigFields:
    """One object of a config.json; `path` names it in errors.

    Each method takes alternative names and reads the first field that is present and not null. A
    value of another type or out of range raises CheckpointError naming field, value and
    expectation.
    """

    def __init__(self, values: Mapping[str, object], path: str = "") -> None:
        self._values = values
        self._path = path

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def positive(self, *names: str, default: int | None = None, limit: int = MAX_COUNT) -> int:
        """Return an integer from 1 to `limit`; without a default, the field is required."""
        field = self._find_first(names)
        if field is None:
            if default is None:
                raise CheckpointError(
                    f"{self._path}{names[0]} is missing: expected a positive integer"
                )
            return default
        return self._integer(*field, low=1, high=limit)

    def optional_positive(self, *names: str) -> int | None:
        """Return an integer of at least 1, None when absent."""
        field = self._find_first(names)
        return None if field is None else self._integer(*field, low=1, high=MAX_COUNT)

    def count(self, *names: str) -> int:
        """Return an integer of at least 0, 0 when absent."""
        field = self._find_first(names)
        return 0 if field is None else self._integer(*field, low=0, high=MAX_COUNT)

    def flag(self, *names: str, default: bool = False) -> bool:
        """Return a boolean."""
        field = self._find_first(names)
        if field is None:
            return default
        name, value = field
        if not isinstance(value, bool):
            raise self.invalid(name, value, "true or false")
        return value

    def text(self, *names: str) -> str | None:
        """Return a string, None when absent."""
        field = self._find_first(names)
        if field is None:
            return None
        name, value = field
        if not isinstance(value, str):
            raise self.invalid(name, value, "a string")
        return value

    def names(self, *names: str) -> tuple[str, ...]:
        """Return a list of strings, empty when absent."""
        field = self._find_first(names)
        if field is None:
            return ()
        name, value = field
        if not _is_list(value) or not all(isinstance(item, str) for item in value):
            raise self.invalid(name, value, "a list of strings")
        if len(value) > MAX_NAMES:
            raise CheckpointError(
                f"{self._path}{name} has {len(value)} entries, at most {MAX_NAMES}"
            )
        return tuple(str(item) for item in value)

    def integers(self, *names: str) -> tuple[int, ...]:
        """Return a list of integers of at least 0, empty when absent."""
        field = self._find_first(names)
        if field is None:
            return ()
        name, value = field
        if not _is_list(value) or len(value) > MAX_NAMES:
            raise self.invalid(name, value, "a list of integers")
        return tuple(self._integer(name, item, low=0, high=MAX_COUNT) for item in value)

    def flags(self, name: str) -> tuple[bool, ...]:
        """Return a list of booleans, written as true and false or 1 and 0; empty when absent."""
        value = self._values.get(name)
        if value is None:
            return ()
        if not _is_list(value) or len(value) > MAX_NAMES or not all(map(_is_bit, value)):
            raise self.invalid(name, value, "a list of true and false")
        return tuple(bool(item) for item in value)

    def enumeration(self, name: str) -> tuple[int, ...]:
        """Return the integers of at least 0 in a comma-separated string; empty when absent."""
        text = self.text(name) or ""
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        if len(parts) > MAX_NAMES or not all(p.isascii() and p.isdecimal() for p in parts):
            raise self.invalid(name, text, "integers separated by commas")
        if any(len(part) > 9 for part in parts):
            raise self.invalid(name, text, f"integers up to {MAX_COUNT}")
        return tuple(int(part) for part in parts)

    def number(self, *names: str, default: float | None = None) -> float:
        """Return a finite number of at least 0; without a default, the field is required."""
        field = self._find_first(names)
        if field is None:
            if default is None:
                raise CheckpointError(f"{self._path}{names[0]} is missing: expected a number")
            return default
        name, value = field
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.invalid(name, value, "a number")
        if not 0 <= value <= MAX_COUNT:  # refuses NaN, too
            raise self.invalid(name, value, f"a number from 0 to {MAX_COUNT}")
        return float(value)

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a list of finite numbers of at least 0, empty when absent."""
        value = self._values.get(name)
        if value is None:
            return ()
        if not _is_list(value) or len(value) > MAX_NAMES:
            raise self.invalid(name, value, "a list of numbers")
        fields = (ConfigFields({name: item}, self._path) for item in value)
        return tuple(field.number(name) for field in fields)

    def objects(self, *names: str) -> "tuple[ConfigFields, ...]":
        """Return a list of objects, empty when absent."""
        field = self._find_first(names)
        if field is None:
            return ()
        name, value = field
        if not _is_list(value) or len(value) > MAX_NAMES:
            raise self.invalid(name, value, "a list of objects")
        return tuple(self._object(f"{name}[{index}]", item) for index, item in enumerate(value))

    def nested(self, *names: str) -> "ConfigFields | None":
        """Return an object, None when absent."""
        field = self._find_first(names)
        return None if field is None else self._object(*field)

    def without(self, name: str) -> "ConfigFields":
        """Return these fields without `name`."""
        return self.with_value(name, None)

    def with_value(self, name: str, value: object) -> "ConfigFields":
        """Return these fields with `name` set to `value`."""
        return ConfigFields({**self._values, name: value}, self._path)

    def overridden_by(self, others: "ConfigFields") -> "ConfigFields":
        """Return the union of these fields and `others`, whose values take precedence."""
        return ConfigFields({**self._values, **others._values}, others._path)

    def completed_by(self, defaults: Mapping[str, object]) -> "ConfigFields":
        """Return these fields with `defaults` for those that are absent; null is a value here."""
        return ConfigFields({**defaults, **self._values}, self._path)

    def children(self) -> "tuple[ConfigFields, ...]":
        """Return the values that are objects."""
        return tuple(
            ConfigFields(value, f"{self._path}{_abbreviate(name)}.")
            for name, value in self._values.items()
            if isinstance(value, Mapping)
        )

    def named_counts(self, name: str) -> tuple[int, ...]:
        """Return the values of an object of integers of at least 0, empty when absent."""
        counts = self.nested(name)
        if counts is None:
            return ()
        return tuple(counts.count(key) for key in counts._values)

    def named_objects(self) -> "tuple[tuple[str, ConfigFields], ...]":
        """Return the values that are objects, with their names."""
        names = (name for name, value in self._values.items() if isinstance(value, Mapping))
        return tuple(zip(names, self.children(), strict=True))

    def value(self, name: str) -> object:
        """Return the raw value, for fields with several types."""
        return self._values.get(name)

    def invalid(self, name: str, value: object, expected: str) -> CheckpointError:
        """Return the error for an unexpected value."""
        return CheckpointError(f"{self._path}{name} is {_abbreviate(value)}: expected {expected}")

    def _find_first(self, names: Sequence[str]) -> tuple[str, object] | None:
        return next(((name, self._values[name]) for name in names if name in self), None)

    def _object(self, name: str, value: object) -> "ConfigFields":
        if not isinstance(value, Mapping):
            raise self.invalid(name, value, "an object")
        return ConfigFields(value, f"{self._path}{name}.")

    def _integer(self, name: str, value: object, low: int, high: int) -> int:
        # bool is an int in Python; `"num_hidden_layers": true` must not mean one layer.
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.invalid(name, value, f"an integer from {low} to {high}")
        return value


def _is_bit(value: object) -> bool:
    return isinstance(value, bool | int) and value in (0, 1)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _abbreviate(value: object) -> str:
    """Abbreviate a value of any type for a message."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    try:
        return reprlib.repr(value)
    except ValueError:  # Python refuses to print an enormous integer inside a list or object
        return f"a {type(value).__name__}"
