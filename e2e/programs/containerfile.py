"""What the Containerfile says, for tests that do the same without a container engine."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CONTINUED = re.compile(r"\\\n")


@dataclass(frozen=True, slots=True)
class Copy:
    """One COPY of files from the work tree; `target` as it is written."""

    sources: tuple[str, ...]
    target: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the build: its instructions in order, as (name, arguments)."""

    instructions: tuple[tuple[str, str], ...]

    def texts(self, name: str) -> list[str]:
        """The arguments of all instructions of this name."""
        return [text for instruction, text in self.instructions if instruction == name]

    def words(self, name: str) -> list[str]:
        """The words of the only instruction of this name, in its JSON form."""
        (text,) = self.texts(name)
        return [str(word) for word in json.loads(text)]

    @property
    def copies(self) -> list[Copy]:
        """What is copied from the work tree, not from another stage."""
        arguments = [text.split() for text in self.texts("COPY")]
        return [
            Copy(tuple(words[:-1]), words[-1])
            for words in arguments
            if not words[0].startswith("--")
        ]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that ENV sets."""
        pairs = [pair for text in self.texts("ENV") for pair in shlex.split(text)]
        return dict(pair.split("=", 1) for pair in pairs)


def read_containerfile(path: Path) -> list[Stage]:
    """The stages of a Containerfile, without what stands before the first."""
    stages: list[list[tuple[str, str]]] = []
    for name, text in _instructions(path.read_text(encoding="utf-8")):
        if name == "FROM":
            stages.append([])
        if stages:
            stages[-1].append((name, text))
    return [Stage(tuple(instructions)) for instructions in stages]


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    for line in _CONTINUED.sub(" ", text).splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, arguments = line.partition(" ")
            yield name, arguments.strip()
