"""The checkpoint of a question, from what a user has of it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from tonnage.catalog.gguf import gguf_bits_per_weight
from tonnage.checkpoint import stored_formats
from tonnage.checkpoint.config import parse_config_text
from tonnage.checkpoint.model import Checkpoint, ModelShape, Quantization
from tonnage.checkpoint.safetensors import SafetensorsIndex
from tonnage.fit.weight_correction import contradiction
from tonnage.fit.weights import count_parameters

_SHAPES: Final = 1024
"""Configs whose shape is remembered: a batch asks about the same model many times."""


_KNOWN_BY_THE_FILE: Final = frozenset({"gguf"})
"""Methods that vLLM recognises by the weight file; config.json does not speak of them."""

_UNKNOWN_BITS: Final = 16
"""Such a file mixes formats; its size tells how large the weights are, else 16 bits are assumed."""


def make_checkpoint(
    shape: ModelShape, weights_bytes: int | None = None, index: SafetensorsIndex | None = None
) -> Checkpoint:
    """The model of that shape; a size that is given stands above the one in the index."""
    return stored_formats.make_checkpoint(shape, index=index, weights_bytes=weights_bytes)


def stored_as(shape: ModelShape, method: str | None) -> ModelShape:
    """The shape of weights that lie in a file of that method, where the config cannot say so."""
    if shape.quantization is not None or method not in _KNOWN_BY_THE_FILE:
        return shape
    return replace(shape, quantization=Quantization(method, _UNKNOWN_BITS))


def named_bytes(shape: ModelShape, name: str) -> int | None:
    """Bytes of the weight file, where its method is told by the file and its size by the name."""
    if shape.quantization is None or shape.quantization.method not in _KNOWN_BY_THE_FILE:
        return None
    bits = gguf_bits_per_weight(name)
    return None if bits is None else int(sum(count_parameters(shape).values()) * bits / 8)


def doubts(checkpoint: Checkpoint) -> Iterator[str]:
    """What was assumed of the model though nobody said it."""
    if checkpoint.shape.estimated is not None:
        yield checkpoint.shape.estimated
    stored = checkpoint.shape.quantization
    if stored and stored.weight_bits == _UNKNOWN_BITS and checkpoint.weights_bytes is None:
        yield (
            f"quantization {stored.method} does not tell the size of a weight: they count as "
            "16-bit, which is more than they take; give the size of the weight files"
        )
    disbelieved = contradiction(checkpoint)
    if disbelieved is not None:
        yield disbelieved


def read_config(config: Mapping[str, Any]) -> ModelShape:
    """The shape a config.json describes; each distinct one is parsed once.

    Raises CheckpointError, UnsupportedArchitectureError.
    """
    return _parse_once(json.dumps(config))


@lru_cache(maxsize=_SHAPES)
def _parse_once(text: str) -> ModelShape:
    return parse_config_text(text)
