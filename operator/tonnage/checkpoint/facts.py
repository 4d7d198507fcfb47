"""Checkpoints from facts that a user or a Job has written down."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Final

from tonnage.api.inference import ConfigMapSource, InlineSource
from tonnage.checkpoint.config import parse_config, parse_config_text
from tonnage.checkpoint.model import Checkpoint, CheckpointError, ModelShape
from tonnage.checkpoint.safetensors import (
    MAX_TENSOR_BYTES,
    SafetensorsIndex,
    parse_bytes_by_dtype,
    parse_index,
    parse_table,
)
from tonnage.checkpoint.stored_formats import make_checkpoint

CONFIG_KEY: Final = "config.json"
"""The model's config, as in its repository."""

INDEX_KEY: Final = "model.safetensors.index.json"
"""The safetensors index, as in the repository: its total size and the tensors' names."""

WEIGHTS_BYTES_KEY: Final = "weightsBytes"
"""Size of all tensors in bytes, decimal; stands above the index."""

BYTES_BY_DTYPE_KEY: Final = "bytesByDtype"
"""JSON object from safetensors dtype to bytes, written by the Job; stands above both."""

TENSORS_KEY: Final = "tensors"
"""The table of tensors as JSON, written by the Job; stands above all sizes."""


SHAPES: Final = 256
"""Inline configs that are remembered, with what was read of each: some KiB."""


def checkpoint_from_inline(source: InlineSource) -> Checkpoint:
    """Return the model that an object describes itself.

    Raises CheckpointError, UnsupportedArchitectureError.
    """
    with _naming("inline config"):
        shape = _shape_of(_written(source.config))
    return Checkpoint(shape=shape, weights_bytes=source.weights_bytes)


def _written(config: Mapping[str, object]) -> str:
    try:
        return json.dumps(config)
    except RecursionError as error:
        raise CheckpointError("it is nested too deeply") from error


@lru_cache(SHAPES)
def _shape_of(config: str) -> ModelShape:
    """Read once for all objects that describe the same model, and for all looks at them."""
    return parse_config(json.loads(config))


def checkpoint_from_config_map(source: ConfigMapSource, data: Mapping[str, str]) -> Checkpoint:
    """Return the model that a ConfigMap's data describe.

    Key config.json is required; of the keys about tensors the most exact one counts. Raises
    CheckpointError, UnsupportedArchitectureError; messages name the ConfigMap and the key.
    """
    where = f"ConfigMap {source.name}"
    if CONFIG_KEY not in data:
        raise CheckpointError(
            f"{where} has no key {CONFIG_KEY}: put the model's config.json there, or wait for the "
            "Job of `tonnage inspect` that writes it"
        )
    with _naming(f"{where}, key {CONFIG_KEY}"):
        shape = parse_config_text(data[CONFIG_KEY])
    if TENSORS_KEY in data:
        with _naming(f"{where}, key {TENSORS_KEY}"):
            return make_checkpoint(shape, parse_table(data[TENSORS_KEY]))
    index, size = _index(where, data), _weights_bytes(where, data)
    if BYTES_BY_DTYPE_KEY not in data:
        return make_checkpoint(shape, index=index, weights_bytes=size)
    with _naming(f"{where}, key {BYTES_BY_DTYPE_KEY}"):
        sizes = parse_bytes_by_dtype(data[BYTES_BY_DTYPE_KEY])
    checkpoint = make_checkpoint(shape, index=index, weights_bytes=sizes.total_bytes)
    return replace(checkpoint, bytes_by_dtype=sizes.by_dtype)


def _index(where: str, data: Mapping[str, str]) -> SafetensorsIndex | None:
    if INDEX_KEY not in data:
        return None
    with _naming(f"{where}, key {INDEX_KEY}"):
        return parse_index(data[INDEX_KEY])


def _weights_bytes(where: str, data: Mapping[str, str]) -> int | None:
    if WEIGHTS_BYTES_KEY not in data:
        return None
    with _naming(f"{where}, key {WEIGHTS_BYTES_KEY}"):
        return _parse_decimal(data[WEIGHTS_BYTES_KEY])


def _parse_decimal(text: str) -> int:
    digits = text.strip()
    # Length first: the time int() takes grows with the square of it.
    if len(digits) <= 16 and digits.isascii() and digits.isdecimal():
        value = int(digits)
        if 1 <= value <= MAX_TENSOR_BYTES:
            return value
    raise CheckpointError(
        f"{text[:40]!r} is no number of bytes; expected is a decimal of 1 to {MAX_TENSOR_BYTES}, "
        "for example 141107412992"
    )


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Put the place before the message of a CheckpointError; its kind stays."""
    try:
        yield
    except CheckpointError as error:
        raise type(error)(f"{place}: {error}") from error
