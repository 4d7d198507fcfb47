"""The stack of decoder layers, each described once for all that are alike."""

from dataclasses import dataclass

from tonnage.catalog.architectures import Families
from tonnage.checkpoint.exclusions import Exclusions
from tonnage.checkpoint.feed_forwards import FeedForwardReader
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.layers import read_layer_kinds
from tonnage.checkpoint.mixers import MixerReader, read_hidden_size
from tonnage.checkpoint.model import DecoderLayer


@dataclass(frozen=True, slots=True)
class LayerStack:
    """The kinds of layers, and which kind each layer is."""

    kinds: tuple[DecoderLayer, ...]
    order: tuple[int, ...]


def read_layer_stack(
    config: ConfigFields, layers: int, families: Families, exclusions: Exclusions
) -> LayerStack:
    """Describe each of `layers` layers.

    Raises CheckpointError naming field, value and expectation.
    """
    mixers, feed_forwards = (
        MixerReader(config, families),
        FeedForwardReader(config, layers, families),
    )
    norm_elements = 2 * read_hidden_size(config)
    kinds: dict[DecoderLayer, int] = {}
    order = []
    for index, kind in enumerate(read_layer_kinds(config, layers, families)):
        has_experts = index in feed_forwards.expert_layers
        layer = DecoderLayer(
            mixers=mixers.read(kind, index),
            feed_forwards=feed_forwards.read(index),
            norm_elements=norm_elements,
            exceptions=exclusions.of_layer(index, has_experts),
        )
        order.append(kinds.setdefault(layer, len(kinds)))
    return LayerStack(tuple(kinds), tuple(order))
