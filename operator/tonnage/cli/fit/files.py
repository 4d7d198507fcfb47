"""Reads the files and the repository that the flags of `tonnage fit` name.

Each is read once: standard input cannot be read again, and several engines are judged by the same.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from tonnage.catalog.catalog import Catalog
from tonnage.checkpoint.model import Checkpoint, CheckpointError, ModelShape
from tonnage.checkpoint.safetensors.headers import MAX_INDEX_BYTES, SafetensorsIndex, parse_index
from tonnage.checkpoint.shape import MAX_CONFIG_BYTES, parse_config_text
from tonnage.cli.errors import InputError
from tonnage.cli.fit.model import apply_file_quantization, make_checkpoint
from tonnage.cli.sources.corrections import read_corrections
from tonnage.fit.calibration.corrections import Corrections
from tonnage.fit.context import override_context

Parsed = TypeVar("Parsed")

STDIN: Final = "-"


class Files:
    """What the flags name. All members raise InputError naming the flag or file."""

    def __init__(self, options: argparse.Namespace, catalog: Catalog) -> None:
        self._options = options
        self._catalog = catalog

    @cached_property
    def corrections(self) -> Corrections:
        """Those of --corrections."""
        return read_corrections(self._options.corrections, self._catalog).most_careful()

    def checkpoint(self, settings: Mapping[str, Any]) -> Checkpoint:
        """The model with the given quantization and overrides of config.json."""
        if self._options.model is not None:
            return replace(self._fetched, shape=_apply(self._fetched.shape, settings))
        shape = _apply(self._shape, settings)
        if self._options.safetensors_index is None:
            return make_checkpoint(shape, self._options.weights_bytes)
        return make_checkpoint(shape, index=self._index)

    @cached_property
    def _shape(self) -> ModelShape:
        return _parse(parse_config_text, self._options.config, MAX_CONFIG_BYTES)

    @cached_property
    def _index(self) -> SafetensorsIndex:
        return _parse(parse_index, self._options.safetensors_index, MAX_INDEX_BYTES)

    @cached_property
    def _fetched(self) -> Checkpoint:
        """The model of a repository on the Hub, whose files state their sizes."""
        options = self._options
        for flag, value in (
            ("--weights-bytes", options.weights_bytes),
            ("--safetensors-index", options.safetensors_index),
        ):
            if value is not None:
                raise InputError(f"{flag} describes the files of --config; leave it out with MODEL")
        if Path(options.model).exists():
            raise InputError(
                f"MODEL {options.model!r} is a file or folder, expected a repository as "
                "meta-llama/Llama-3.1-8B; give a config.json by --config"
            )
        # The client of the Hub takes longer to import than the answer from a file takes.
        from tonnage.cli.sources.repository import read_repository  # noqa: PLC0415 - see above

        return read_repository(options.model, options.revision, "MODEL")


def _apply(shape: ModelShape, settings: Mapping[str, Any]) -> ModelShape:
    shape = apply_file_quantization(shape, settings.get("quantization"))
    try:
        return override_context(shape, settings.get("context_overrides", ""))
    except CheckpointError as error:
        raise InputError(f"--hf-overrides or --rope-scaling: {error}") from None


def _parse(parse: Callable[[bytes], Parsed], path: str, limit_bytes: int) -> Parsed:
    name = "standard input" if path == STDIN else path
    content = _read(path, name, limit_bytes)
    try:
        return parse(content)
    except CheckpointError as error:
        raise InputError(f"{name}: {error}") from None


def _read(path: str, name: str, limit_bytes: int) -> bytes:
    """Read the file up to one byte beyond the limit, which the parser then refuses."""
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
