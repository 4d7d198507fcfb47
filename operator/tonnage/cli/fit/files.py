"""Reads the files and the repository that the flags of `tonnage fit` name.

Each is read once: standard input cannot be read again, and several engines are judged by the same.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tonnage.catalog.catalog import Catalog
from tonnage.checkpoint.model import Checkpoint, CheckpointError, ModelShape
from tonnage.checkpoint.safetensors.headers import MAX_INDEX_BYTES, SafetensorsIndex, parse_index
from tonnage.checkpoint.shape import MAX_CONFIG_BYTES, parse_config_text
from tonnage.cli.errors import InputError
from tonnage.cli.fit.model import apply_file_quantization, make_checkpoint
from tonnage.cli.sources.corrections import read_corrections
from tonnage.cli.sources.model_files import parse_model_file
from tonnage.fit.calibration.corrections import Corrections
from tonnage.fit.context import override_context


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
        return parse_model_file(parse_config_text, self._options.config, MAX_CONFIG_BYTES)

    @cached_property
    def _index(self) -> SafetensorsIndex:
        return parse_model_file(parse_index, self._options.safetensors_index, MAX_INDEX_BYTES)

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
