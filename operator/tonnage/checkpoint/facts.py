"""Read checkpoints and adapters from facts that a user or a Job provides: inline or in a
ConfigMap."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Final

from tonnage.api.model import ConfigMapSource, InlineSource
from tonnage.checkpoint.adapter import ADAPTER_CONFIG, AdapterFacts, parse_adapter
from tonnage.checkpoint.model import Checkpoint, CheckpointError, ModelShape
from tonnage.checkpoint.safetensors.formats import make_checkpoint
from tonnage.checkpoint.safetensors.headers import (
    MAX_TENSOR_BYTES,
    SafetensorsIndex,
    parse_bytes_by_dtype,
    parse_index,
    parse_table,
)
from tonnage.checkpoint.shape import parse_config, parse_config_text

CONFIG_KEY: Final = "config.json"
"""The model's config.json, as in its repository."""

INDEX_KEY: Final = "model.safetensors.index.json"
"""The safetensors index, as in the repository: total size and names of the tensors."""

WEIGHTS_BYTES_KEY: Final = "weightsBytes"
"""Size of all tensors in bytes, decimal; takes precedence over the index."""

BYTES_BY_DTYPE_KEY: Final = "bytesByDtype"
"""JSON object from safetensors dtype to bytes, from the Job; takes precedence over both."""

TENSORS_KEY: Final = "tensors"
"""The table of tensors as JSON, from the Job; takes precedence over all sizes."""


MAX_ADAPTER_TABLE: Final = 100_000
"""Most characters of the table of an adapter, as many as the Job writes: an object has up to 128 of
them, which are read for each reconcile."""

SHAPE_CACHE_SIZE: Final = 256
"""Cached shapes of inline configs, some KiB each."""


def checkpoint_from_inline(source: InlineSource) -> Checkpoint:
    """Return the model that an InferenceDeployment describes inline.

    Raises CheckpointError, UnsupportedArchitectureError.
    """
    with _error_prefix("inline config"):
        shape = _parse_inline_shape(_dump_config(source.config))
    return Checkpoint(shape=shape, weights_bytes=source.weights_bytes)


def _dump_config(config: Mapping[str, object]) -> str:
    try:
        return json.dumps(config)
    except RecursionError as error:
        raise CheckpointError("it is nested too deeply") from error


@lru_cache(SHAPE_CACHE_SIZE)
def _parse_inline_shape(config: str) -> ModelShape:
    """Parse a config once for all objects with the same model, and for all their reconciles."""
    return parse_config(json.loads(config))


def checkpoint_from_config_map(source: ConfigMapSource, data: Mapping[str, str]) -> Checkpoint:
    """Return the model that a ConfigMap's data describe.

    The key config.json is required; of the keys about tensors, the most exact one counts. Raises
    CheckpointError and UnsupportedArchitectureError; their messages name the ConfigMap and the key.
    """
    location = f"ConfigMap {source.name}"
    if CONFIG_KEY not in data:
        raise CheckpointError(
            f"{location} has no key {CONFIG_KEY}: put the model's config.json there, or wait for "
            "the Job of `tonnage inspect` that writes it"
        )
    with _error_prefix(f"{location}, key {CONFIG_KEY}"):
        shape = parse_config_text(data[CONFIG_KEY])
    if TENSORS_KEY in data:
        with _error_prefix(f"{location}, key {TENSORS_KEY}"):
            return make_checkpoint(shape, parse_table(data[TENSORS_KEY]))
    index, size = _read_index(location, data), _read_weights_bytes(location, data)
    if BYTES_BY_DTYPE_KEY not in data:
        return make_checkpoint(shape, index=index, weights_bytes=size)
    with _error_prefix(f"{location}, key {BYTES_BY_DTYPE_KEY}"):
        sizes = parse_bytes_by_dtype(data[BYTES_BY_DTYPE_KEY])
    checkpoint = make_checkpoint(shape, index=index, weights_bytes=sizes.total_bytes)
    return replace(checkpoint, bytes_by_dtype=sizes.by_dtype)


def adapter_from_config_map(name: str, data: Mapping[str, str]) -> AdapterFacts:
    """Return the LoRA adapter that a ConfigMap's data describe.

    The key adapter_config.json is required; a table of tensors counts where it is the adapter's.
    Raises CheckpointError; its messages name the ConfigMap and the key.
    """
    location = f"ConfigMap {name}"
    if ADAPTER_CONFIG not in data:
        raise CheckpointError(
            f"{location} has no key {ADAPTER_CONFIG}: put that file of the adapter there, or wait"
            " for the Job of `tonnage inspect` that writes it"
        )
    tensors = None
    if TENSORS_KEY in data and CONFIG_KEY not in data:
        with _error_prefix(f"{location}, key {TENSORS_KEY}"):
            if len(data[TENSORS_KEY]) > MAX_ADAPTER_TABLE:
                raise CheckpointError(
                    f"the table is longer than {MAX_ADAPTER_TABLE} characters; leave it out"
                )
            tensors = parse_table(data[TENSORS_KEY])
    with _error_prefix(location):
        return parse_adapter(data[ADAPTER_CONFIG], tensors)


def _read_index(location: str, data: Mapping[str, str]) -> SafetensorsIndex | None:
    if INDEX_KEY not in data:
        return None
    with _error_prefix(f"{location}, key {INDEX_KEY}"):
        return parse_index(data[INDEX_KEY])


def _read_weights_bytes(location: str, data: Mapping[str, str]) -> int | None:
    if WEIGHTS_BYTES_KEY not in data:
        return None
    with _error_prefix(f"{location}, key {WEIGHTS_BYTES_KEY}"):
        return _parse_decimal(data[WEIGHTS_BYTES_KEY])


def _parse_decimal(text: str) -> int:
    digits = text.strip()
    # Check the length first: int() takes quadratic time.
    if len(digits) <= 16 and digits.isascii() and digits.isdecimal():
        value = int(digits)
        if 1 <= value <= MAX_TENSOR_BYTES:
            return value
    raise CheckpointError(
        f"{text[:40]!r} is no number of bytes: expected a decimal from 1 to {MAX_TENSOR_BYTES}, "
        "for example 141107412992"
    )


@contextmanager
def _error_prefix(location: str) -> Iterator[None]:
    """Prefix the message of a CheckpointError with a location; its class stays the same."""
    try:
        yield
    except CheckpointError as error:
        raise type(error)(f"{location}: {error}") from error
