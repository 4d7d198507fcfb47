"""Reads the files that arguments name; `-` is standard input."""

import argparse
import sys
from pathlib import Path
from typing import Final

from tonnage.cli.errors import InputError

STDIN: Final = "-"


def input_name(path: str) -> str:
    """The name of an input in messages."""
    return "standard input" if path == STDIN else path


def read_input(path: str, limit_bytes: int) -> bytes:
    """Read an input up to one byte beyond the limit. Raises InputError naming it."""
    name = input_name(path)
    if not path:
        raise InputError("'' is not the name of a file")
    try:
        if path == STDIN:
            return sys.stdin.buffer.read(limit_bytes + 1)
        with Path(path).open("rb") as file:
            return file.read(limit_bytes + 1)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{name!r} is not the name of a file") from None


def refuse_second_stdin(options: argparse.Namespace) -> None:
    """Raise InputError where two inputs are standard input: the second one would be empty."""
    flags = [
        f"--{name.replace('_', '-')}"
        for name, value in vars(options).items()
        for path in (value if isinstance(value, list) else [value])
        if path == STDIN
    ]
    if len(flags) > 1:
        raise InputError(
            f"{STDIN} is given for {' and '.join(flags)}, but standard input can be read once: "
            "give files for all others"
        )
