"""What one decoder layer is made of, as the readers of configs hand it over."""

from collections.abc import Callable
from dataclasses import dataclass

from tonnage.catalog.families import Family
from tonnage.checkpoint.attention import AttentionReader
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.layers import LayerKind
from tonnage.checkpoint.model import Attention, CheckpointError, FeedForward, Mixer, Quantization


@dataclass(frozen=True, slots=True)
class LayerBlocks:
    """The blocks of one layer and what lies beside them, as DecoderLayer describes them."""

    mixers: tuple[Mixer, ...]
    feed_forwards: tuple[FeedForward, ...]
    norm_elements: int
    float32_elements: int = 0
    exceptions: tuple[tuple[str, Quantization | None], ...] = ()


LayerReader = Callable[[int], LayerBlocks]
"""Describes the layer of an index. Raises CheckpointError for fields missing or absurd."""

LayerReaderFactory = Callable[[ConfigFields, int, Family], LayerReader]
"""Makes the reader of one config with so many layers."""


def read_attention(config: ConfigFields, layers: int, family: Family) -> Attention:
    """The attention of the layers that see the whole context, the same in all of them."""
    attention = AttentionReader(config, 1, family).read(LayerKind.FULL, 0)
    if attention is None:
        raise CheckpointError("num_attention_heads is missing: expected a positive integer")
    return attention
