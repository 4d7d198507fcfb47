"""Readers without bounds, one that is well, and the outcome of each.

`python -m tests.support.foreign.broken_readers` tries them and prints a line of JSON for each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict

from tests.support.foreign.bounded_readers import MIB, try_bounded
from tests.support.foreign.readers import Reader


def _never_ends(_: bytes) -> object:
    while True:
        pass


def _raises(_: bytes) -> object:
    raise KeyError


BROKEN: dict[str, Callable[[bytes], object]] = {
    "it takes too much memory": lambda text: [list(text) for _ in range(len(text))],
    "it takes too long": _never_ends,
    "it raises what is no error of ours": _raises,
    "": lambda text: [list(text) for _ in range(10)],
}
"""By the expected fault; the last has none."""


def main() -> None:
    """Try all, and tell of each."""
    for fault, read in BROKEN.items():
        text = ("of one letter", [b"x" * 2_000])
        outcome = try_bounded(fault, Reader(read, ()), text, 16 * MIB, 1)
        sys.stdout.write(json.dumps(asdict(outcome)) + "\n")


if __name__ == "__main__":
    main()
