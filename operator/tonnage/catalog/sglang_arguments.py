"""SGLang's arguments: sglang_arguments.yaml, read as its own parser reads a command line."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from typing import Final, Literal

from tonnage.catalog.data_files import Entry, read_data_file

_NEGATIVE: Final = re.compile(r"-\d+(\.\d*)?")
"""What argparse takes for a value although it begins with a dash."""

_TOKENS: Final = re.compile(r"\d+(\.\d+)?[kMGT]|\d+[KMGT]i")


def _read_tokens(text: str) -> None:
    """Source: sglang/srt/utils/common.py human_readable_int."""
    if not _TOKENS.fullmatch(text.strip()):
        int(text)


_READERS: Final[Mapping[str, tuple[Callable[[str], object], str]]] = {
    "int": (int, "an integer"),
    "float": (float, "a number"),
    "loads": (json.loads, "JSON"),
    "json_list_type": (json.loads, "JSON"),
    "human_readable_int": (_read_tokens, "a number of tokens, such as 16384 or 16k"),
}
"""Functions that raise ValueError for what SGLang's reader of that name refuses, and what it
expects. Other readers of SGLang are not repeated."""


class SglangArgumentError(ValueError):
    """Arguments that SGLang's parser refuses: `index` is that of the item, the message says why."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index = index


@dataclass(frozen=True, slots=True)
class GivenArgument:
    """An argument in a list: the `index` of its item, its first `name` without dashes, its
    values."""

    index: int
    name: str
    values: tuple[str, ...]


class Argument(Entry):
    """An argument; the head of the data file explains the fields."""

    also: tuple[str, ...] = ()
    nargs: Literal["0", "?", "*", "+"] | None = None
    reader: str = "str"
    choices: tuple[str, ...] = ()
    required: bool = False

    @property
    def most_values(self) -> int | None:
        """Values that it takes at most, None without a limit."""
        return {"0": 0, "?": 1, None: 1}.get(self.nargs)

    def explain_refusal(self, values: Sequence[str]) -> str | None:
        """Why the parser refuses these values, None if it takes them."""
        if self.nargs == "0":
            return "it takes no value" if values else None
        if not values:
            return "expected a value" if self.nargs in (None, "+") else None
        read, expected = _READERS.get(self.reader, (str, ""))
        for value in values:
            try:
                read(value)
            except (ValueError, RecursionError):
                return f"value {value[:40]!r}: expected {expected}"
            if self.choices and value not in self.choices:
                return f"value {value[:40]!r}: expected one of {', '.join(self.choices)}"
        return None


class SglangArguments(Entry):
    """The whole file."""

    compiled: date
    version: str
    arguments: Mapping[str, Argument]

    @cached_property
    def first_names(self) -> Mapping[str, str]:
        """The first name of each argument by all of its names."""
        return {
            name: first
            for first, argument in self.arguments.items()
            for name in (first, *argument.also)
        }

    def read(self, arguments: Sequence[str]) -> Iterator[GivenArgument]:
        """The arguments of a list, in its order. Raises SglangArgumentError."""
        rest = list(enumerate(arguments))
        while rest:
            index, text = rest.pop(0)
            name, equals, value = text.removeprefix("--").partition("=")
            if not text.startswith("--"):
                raise SglangArgumentError(index, "expected an argument that begins with --")
            if name not in self.first_names:
                raise SglangArgumentError(
                    index,
                    f"SGLang {self.version} has no such argument; remove it or write it in full",
                )
            first = self.first_names[name]
            argument, values = self.arguments[first], [value] if equals else []
            while not equals and rest and _is_value(rest[0][1]):
                if len(values) == argument.most_values:
                    break
                values.append(rest.pop(0)[1])
            refusal = argument.explain_refusal(values)
            if refusal is not None:
                raise SglangArgumentError(index, refusal)
            yield GivenArgument(index, first, tuple(values))


def _is_value(text: str) -> bool:
    return not text.startswith("-") or _NEGATIVE.fullmatch(text) is not None


@lru_cache(maxsize=1)
def load_sglang_arguments() -> SglangArguments:
    """The file, read once. A pydantic.ValidationError is a mistake in the package."""
    return SglangArguments.model_validate(read_data_file("sglang_arguments.yaml"))
