"""The blocks of one decoder layer, as the config readers return them."""

from collections.abc import Callable
from dataclasses import dataclass

from tonnage.catalog.models.families import Family
from tonnage.checkpoint.config.attention import AttentionReader
from tonnage.checkpoint.config.layer_types import LayerKind
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Attention, CheckpointError, FeedForward, Mixer, Quantization


@dataclass(frozen=True, slots=True)
class LayerBlocks:
    """The blocks of one layer; the fields mean the same as in DecoderLayer."""

    mixers: tuple[Mixer, ...]
    feed_forwards: tuple[FeedForward, ...]
    norm_elements: int
    float32_elements: int = 0
    exceptions: tuple[tuple[str, Quantization | None], ...] = ()


LayerReader = Callable[[int], LayerBlocks]
"""Reads the layer at an index. Raises CheckpointError for missing and out-of-range fields."""

LayerReaderFactory = Callable[[ConfigFields, int, Family], LayerReader]
"""Makes the LayerReader of a config with a given number of layers."""


def read_attention(config: ConfigFields, layers: int, family: Family) -> Attention:
    """Return the attention of the layers with full attention, which all have the same."""
    attention = AttentionReader(config, 1, family).read(LayerKind.FULL, 0)
    if attention is None:
        raise CheckpointError("num_attention_heads is missing: expected a positive integer")
    return attention
