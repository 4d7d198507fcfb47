"""Shapes of published models, and of models that differ from them in a field of their config."""

import json
from dataclasses import replace
from pathlib import Path

from tonnage.checkpoint.model import (
    Attention,
    DecoderLayer,
    FeedForward,
    Mixer,
    ModelShape,
    Quantization,
)
from tonnage.checkpoint.shape import parse_config

CONFIGS = Path(__file__).parents[2] / "data" / "configs"


def load_shape(name: str, **fields: object) -> ModelShape:
    """The model of that file, with `fields` of its config.json replaced."""
    return parse_config({**json.loads((CONFIGS / f"{name}.json").read_text()), **fields})


def grouped_query(heads: int = 32, kv_heads: int = 8, head_dim: int = 128) -> Attention:
    """Attention to the whole context."""
    return Attention(heads, kv_heads, head_dim, head_dim)


def layer(mixer: Mixer, feed_forward: FeedForward, hidden_size: int = 4096) -> DecoderLayer:
    """A layer of one mixer and one feed-forward block."""
    return DecoderLayer((mixer,), (feed_forward,), norm_elements=2 * hidden_size)


def with_layers(shape: ModelShape, *layers: tuple[DecoderLayer, int]) -> ModelShape:
    """The model with so many layers of each kind instead of its own."""
    order = tuple(kind for kind, (_, count) in enumerate(layers) for _ in range(count))
    return replace(shape, layer_kinds=tuple(kind for kind, _ in layers), layer_order=order)


def with_exception(shape: ModelShape, linear: str, layers: int) -> ModelShape:
    """The model of one kind of layers, so many of which keep a linear layer in 16 bits."""
    (kind,) = shape.layer_kinds
    keeps = replace(kind, exceptions=((linear, None),))
    return with_layers(shape, (keeps, layers), (kind, shape.layers - layers))


def quantized(shape: ModelShape, stored: Quantization | None) -> ModelShape:
    """The model with its linear layers stored so."""
    return replace(shape, quantization=stored)
