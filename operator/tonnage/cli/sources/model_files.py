"""Reads the files of a model that arguments name."""

from collections.abc import Callable
from typing import TypeVar

from tonnage.checkpoint.model import CheckpointError
from tonnage.cli.errors import InputError
from tonnage.cli.sources.input_files import input_name, read_input

Parsed = TypeVar("Parsed")


def parse_model_file(parse: Callable[[bytes], Parsed], path: str, limit_bytes: int) -> Parsed:
    """Read and parse a file of a model. Raises InputError naming it."""
    name, content = input_name(path), read_input(path, limit_bytes)
    if len(content) > limit_bytes:
        raise InputError(f"{name} is larger than {limit_bytes} bytes; is it the right file?")
    try:
        return parse(content)
    except CheckpointError as error:
        raise InputError(f"{name}: {error}") from None
