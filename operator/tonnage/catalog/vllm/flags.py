"""Flags of `vllm serve`: which of them only the operator sets, and which change GPU memory.

One table, `data/engine_flags.yaml`, serves the check of a user's arguments, the memory calculation
and `tonnage fit --extra-args`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import Final

from tonnage.catalog.data_files import Entry, read_data_file

COUNTED: Final = "counted"
"""Value of `EngineFlag.memory`: the memory calculation follows the flag."""

_WRITE_IN_FULL: Final = "write it in full; abbreviations change their meaning with new flags"

_SHORT: Final = re.compile(r"-[A-Za-z]")
"""How a short flag begins: `-1` is a number and `-` a file."""


class EngineFlag(Entry):
    """One flag; the head of the data file explains the fields."""

    short: str | None = None
    field: str | None = None
    reserved: str | None = None
    with_lora: str | None = None
    permitted: frozenset[str] = frozenset()
    memory: str | None = None
    no_more: bool = False
    sets: Mapping[str, Mapping[str, bool]] = {}
    option: str | None = None
    value: str | None = None
    several: bool = False
    otherwise: str | None = None
    since: str | None = None

    @property
    def instead(self) -> str | None:
        """What to do instead of giving the flag, None for one that a user may give."""
        return f"use {self.field}" if self.field else self.reserved

    @property
    def uncounted(self) -> str | None:
        """What the flag may bring in addition to the memory that the calculation says."""
        if self.memory == COUNTED:
            return self.otherwise
        return None if self.no_more else self.memory

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value."""
        return "" in self.sets


@dataclass(frozen=True, slots=True)
class GivenFlag:
    """A flag of the table in a list of arguments: `index` and `text` of its item, its `name` in
    the table, and its value. The value of a switch and one that is missing is "", several values
    are joined by spaces."""

    index: int
    text: str
    name: str
    value: str
    flag: EngineFlag

    @property
    def refusal(self) -> str | None:
        """What to do instead, None where the flag may be given with this value."""
        if self.flag.instead is not None and self.value not in self.flag.permitted:
            return self.flag.instead
        return _WRITE_IN_FULL if self._is_abbreviated else None

    @property
    def key(self) -> str:
        """The key of `--flag.key=value`, which sets a part of a JSON value; "" without one."""
        return self.text.partition("=")[0].partition(".")[2]

    @property
    def _is_abbreviated(self) -> bool:
        written = self.text.partition("=")[0].replace("_", "-").partition(".")[0]
        names = (self.name, self.flag.short or self.name)
        return any(name.startswith(written) for name in names) and written not in names


class EngineFlags(Entry):
    """The table. `flags` by their long names, `variables` by what they bring. `of_sglang` are flags
    of another engine, by their long names, with what to do instead."""

    source: str
    date: str
    flags: Mapping[str, EngineFlag]
    variables: Mapping[str, str]
    of_sglang: Mapping[str, str]

    def read(self, arguments: Sequence[str]) -> Iterator[GivenFlag]:
        """Flags of the table among arguments, in their order, as vLLM's own parser reads them."""
        for index, (text, following) in enumerate(pairwise([*arguments, ""])):
            name, value = self._split(text)
            flag = self.flags.get(name)
            if flag is None:
                continue
            if value is None and flag.several:
                value = " ".join(takewhile(_is_value, arguments[index + 1 :]))
            elif value is None:
                value = following if not flag.is_switch and _is_value(following) else ""
            yield GivenFlag(index, text, name, value, flag)

    def name_of(self, text: str) -> str | None:
        """The long name of the flag that an argument gives, None for one that is not listed."""
        name, _ = self._split(text)
        return name if name in self.flags else None

    def _split(self, text: str) -> tuple[str, str | None]:
        """The flag's long name, "" for none of the table, and its value if it is in the same item.

        vLLM's parser (vllm/utils/argparse_utils.py) takes underscores for dashes and `--flag.key`
        for a key of a flag with a JSON value. argparse takes any prefix of a flag that is not
        ambiguous; one that is would be refused there, so the first one stands for all.
        """
        written, equals, value = text.partition("=")
        flag = written.replace("_", "-").partition(".")[0]
        if flag in self.flags:
            return flag, value if equals else None
        if flag.startswith("--"):
            return self._long_name(flag), value if equals else None
        return self._split_short(text)

    def _long_name(self, prefix: str) -> str:
        if prefix == "--":
            return ""
        return next((name for name in self.flags if name.startswith(prefix)), "")

    def _split_short(self, text: str) -> tuple[str, str | None]:
        """Of `-tp=8`, of its prefix `-t`, and of `-q` with its value behind it as in `-qfp8`."""
        shorts = {flag.short: name for name, flag in self.flags.items() if flag.short}
        written, equals, value = text.partition("=")
        written = written.partition(".")[0]
        if not _SHORT.match(written):
            return "", None
        if written not in shorts and written[:2] in shorts:
            return shorts[written[:2]], text[2:]
        abbreviated = (name for short, name in shorts.items() if short.startswith(written))
        name = shorts.get(written) or next(abbreviated, "")
        return name, value if equals else None


def _is_value(argument: str) -> bool:
    return not argument.startswith("-")


@lru_cache(maxsize=1)
def engine_flags() -> EngineFlags:
    """The table, read once. A pydantic.ValidationError is a mistake in the package."""
    return EngineFlags.model_validate(read_data_file("engine_flags.yaml"))
