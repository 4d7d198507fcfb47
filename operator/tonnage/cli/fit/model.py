"""Makes the checkpoint of a question from a config.json, sizes and names."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from tonnage.catalog.vllm.gguf import gguf_bits_per_weight
from tonnage.checkpoint.model import Checkpoint, ModelShape, Quantization
from tonnage.checkpoint.safetensors import formats as stored_formats
from tonnage.checkpoint.safetensors.headers import SafetensorsIndex
from tonnage.checkpoint.shape import parse_config_text
from tonnage.fit.weights.correction import contradiction
from tonnage.fit.weights.total import count_parameters

_CACHED_SHAPES: Final = 1024
"""Configs with a cached shape: a batch repeats the same model many times."""


_FILE_FORMATS: Final = frozenset({"gguf"})
"""Methods that vLLM recognises by the weight file; config.json does not name them."""

_UNKNOWN_BITS: Final = 16
"""Such a file mixes formats; without its size, the weights are assumed to have 16 bits."""


def make_checkpoint(
    shape: ModelShape, weights_bytes: int | None = None, index: SafetensorsIndex | None = None
) -> Checkpoint:
    """Make the checkpoint of a shape; `weights_bytes` overrides the size in the index."""
    return stored_formats.make_checkpoint(shape, index=index, weights_bytes=weights_bytes)


def apply_file_quantization(shape: ModelShape, method: str | None) -> ModelShape:
    """Set the quantization of weights in a file format that the config cannot name."""
    if shape.quantization is not None or method not in _FILE_FORMATS:
        return shape
    return replace(shape, quantization=Quantization(method, _UNKNOWN_BITS))


def estimate_file_bytes(shape: ModelShape, name: str) -> int | None:
    """Bytes of the weight file, if its name says the bits per weight; else None."""
    if shape.quantization is None or shape.quantization.method not in _FILE_FORMATS:
        return None
    bits = gguf_bits_per_weight(name)
    return None if bits is None else int(sum(count_parameters(shape).values()) * bits / 8)


def list_assumptions(checkpoint: Checkpoint) -> Iterator[str]:
    """Describe the assumptions about the model that no input states."""
    if checkpoint.shape.estimated is not None:
        yield checkpoint.shape.estimated
    quantization = checkpoint.shape.quantization
    if (
        quantization
        and quantization.weight_bits == _UNKNOWN_BITS
        and checkpoint.weights_bytes is None
    ):
        yield (
            f"quantization {quantization.method} does not define the size of a weight: weights "
            "count as 16-bit, which is too much; give the size of the weight files"
        )
    contradicted = contradiction(checkpoint)
    if contradicted is not None:
        yield contradicted


def read_config(config: Mapping[str, Any]) -> ModelShape:
    """Parse a config.json; each distinct one is parsed once.

    Raises CheckpointError, UnsupportedArchitectureError.
    """
    return _parse_once(json.dumps(config))


@lru_cache(maxsize=_CACHED_SHAPES)
def _parse_once(text: str) -> ModelShape:
    return parse_config_text(text)
