"""Reads fields of a config.json whose every value may be wrong."""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

from tonnage.checkpoint.model import CheckpointError

MAX_COUNT: Final = 1 << 31
"""No size of a model that exists comes near: a larger one is a broken or hostile file."""

MAX_NAMES: Final = 65_536
"""Longest list of names that is read."""


class ConfigFields:
    """One object of a config.json; `path` names it in errors.

    Every reader takes alternative names and reads the first that is present and not null. A value
    of another type or out of bounds raises CheckpointError naming field, value and expectation.
    """

    def __init__(self, values: Mapping[str, object], path: str = "") -> None:
        self._values = values
        self._path = path

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def positive(self, *names: str, default: int | None = None, limit: int = MAX_COUNT) -> int:
        """An integer from 1 to `limit`; without a default it has to be present."""
        found = self._first(names)
        if found is None:
            if default is None:
                raise CheckpointError(
                    f"{self._path}{names[0]} is missing: expected a positive integer"
                )
            return default
        return self._integer(*found, low=1, high=limit)

    def optional_positive(self, *names: str) -> int | None:
        """An integer of at least 1, None when absent."""
        found = self._first(names)
        return None if found is None else self._integer(*found, low=1, high=MAX_COUNT)

    def count(self, *names: str) -> int:
        """An integer of at least 0, 0 when absent."""
        found = self._first(names)
        return 0 if found is None else self._integer(*found, low=0, high=MAX_COUNT)

    def flag(self, *names: str, default: bool = False) -> bool:
        """True or false."""
        found = self._first(names)
        if found is None:
            return default
        name, value = found
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def text(self, *names: str) -> str | None:
        """A string, None when absent."""
        found = self._first(names)
        if found is None:
            return None
        name, value = found
        if not isinstance(value, str):
            raise self.wrong(name, value, "a string")
        return value

    def names(self, *names: str) -> tuple[str, ...]:
        """A list of strings, empty when absent."""
        found = self._first(names)
        if found is None:
            return ()
        name, value = found
        if not _is_list(value) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, value, "a list of strings")
        if len(value) > MAX_NAMES:
            raise CheckpointError(
                f"{self._path}{name} has {len(value)} entries, at most {MAX_NAMES}"
            )
        return tuple(str(item) for item in value)

    def integers(self, *names: str) -> tuple[int, ...]:
        """A list of integers of at least 0, empty when absent."""
        found = self._first(names)
        if found is None:
            return ()
        name, value = found
        if not _is_list(value) or len(value) > MAX_NAMES:
            raise self.wrong(name, value, "a list of integers")
        return tuple(self._integer(name, item, low=0, high=MAX_COUNT) for item in value)

    def switches(self, name: str) -> tuple[bool, ...]:
        """A list of true or false, or 1 or 0; empty when absent."""
        value = self._values.get(name)
        if value is None:
            return ()
        if not _is_list(value) or len(value) > MAX_NAMES or not set(map(_hashed, value)) <= {0, 1}:
            raise self.wrong(name, value, "a list of true and false")
        return tuple(bool(item) for item in value)

    def enumeration(self, name: str) -> tuple[int, ...]:
        """Integers of at least 0 in a string with commas; empty when absent."""
        text = self.text(name) or ""
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        if len(parts) > MAX_NAMES or not all(p.isascii() and p.isdecimal() for p in parts):
            raise self.wrong(name, text, "integers separated by commas")
        if any(len(part) > 9 for part in parts):
            raise self.wrong(name, text, f"integers up to {MAX_COUNT}")
        return tuple(int(part) for part in parts)

    def number(self, *names: str, default: float | None = None) -> float:
        """A finite number of at least 0; without a default it has to be present."""
        found = self._first(names)
        if found is None:
            if default is None:
                raise CheckpointError(f"{self._path}{names[0]} is missing: expected a number")
            return default
        name, value = found
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, value, "a number")
        if not 0 <= value <= MAX_COUNT:  # also refuses what is not a number
            raise self.wrong(name, value, f"a number from 0 to {MAX_COUNT}")
        return float(value)

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of finite numbers of at least 0, empty when absent."""
        value = self._values.get(name)
        if value is None:
            return ()
        if not _is_list(value) or len(value) > MAX_NAMES:
            raise self.wrong(name, value, "a list of numbers")
        each = (ConfigFields({name: item}, self._path) for item in value)
        return tuple(fields.number(name) for fields in each)

    def objects(self, *names: str) -> "tuple[ConfigFields, ...]":
        """A list of objects, empty when absent."""
        found = self._first(names)
        if found is None:
            return ()
        name, value = found
        if not _is_list(value) or len(value) > MAX_NAMES:
            raise self.wrong(name, value, "a list of objects")
        return tuple(self._object(f"{name}[{index}]", item) for index, item in enumerate(value))

    def nested(self, *names: str) -> "ConfigFields | None":
        """An object, None when absent."""
        found = self._first(names)
        if found is None:
            return None
        return self._object(*found)

    def without(self, name: str) -> "ConfigFields":
        """These fields as if `name` were absent."""
        return self.having(name, None)

    def having(self, name: str, value: object) -> "ConfigFields":
        """These fields with that value under `name`."""
        return ConfigFields({**self._values, name: value}, self._path)

    def overridden_by(self, others: "ConfigFields") -> "ConfigFields":
        """These fields, and `others` in the place of those that both have."""
        return ConfigFields({**self._values, **others._values}, others._path)

    def completed_by(self, defaults: Mapping[str, object]) -> "ConfigFields":
        """These fields, and `defaults` for those that are absent; null counts as said."""
        return ConfigFields({**defaults, **self._values}, self._path)

    def children(self) -> "tuple[ConfigFields, ...]":
        """The objects among the values."""
        return tuple(
            ConfigFields(value, f"{self._path}{_shown(name)}.")
            for name, value in self._values.items()
            if isinstance(value, Mapping)
        )

    def named_counts(self, name: str) -> tuple[int, ...]:
        """The values of an object of integers of at least 0, empty when absent."""
        inner = self.nested(name)
        if inner is None:
            return ()
        return tuple(inner.count(key) for key in inner._values)

    def named_objects(self) -> "tuple[tuple[str, ConfigFields], ...]":
        """The objects among the values, each with its name."""
        names = (name for name, value in self._values.items() if isinstance(value, Mapping))
        return tuple(zip(names, self.children(), strict=True))

    def value(self, name: str) -> object:
        """The value as it is, for fields that come in several types."""
        return self._values.get(name)

    def wrong(self, name: str, value: object, expected: str) -> CheckpointError:
        """The error for a value that is not what was expected."""
        return CheckpointError(f"{self._path}{name} is {_shown(value)}: expected {expected}")

    def _first(self, names: Sequence[str]) -> tuple[str, object] | None:
        return next(((name, self._values[name]) for name in names if name in self), None)

    def _object(self, name: str, value: object) -> "ConfigFields":
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, "an object")
        return ConfigFields(value, f"{self._path}{name}.")

    def _integer(self, name: str, value: object, low: int, high: int) -> int:
        # bool is an int in Python; `"num_hidden_layers": true` must not mean one layer.
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, value, f"an integer from {low} to {high}")
        return value


def _hashed(value: object) -> object:
    """The value if it can be a member of a set, else something that is in none of those asked."""
    return value if isinstance(value, bool | int) else None


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _shown(value: object) -> str:
    """The value in a few characters, whatever it is."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    try:
        return reprlib.repr(value)
    except ValueError:  # an enormous integer inside a list or object has no decimal form
        return f"a {type(value).__name__}"
