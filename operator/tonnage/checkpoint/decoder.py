"""The stack of decoder layers, each described once for all that are alike."""

from dataclasses import dataclass

from tonnage.catalog.families import Families, Family
from tonnage.checkpoint.attention import read_hidden_size
from tonnage.checkpoint.blocks import LayerBlocks, LayerReader
from tonnage.checkpoint.dialects import LAYER_READERS
from tonnage.checkpoint.feed_forwards import FeedForwardReader
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.layers import read_layer_kinds
from tonnage.checkpoint.mixers import MixerReader
from tonnage.checkpoint.model import DecoderLayer
from tonnage.checkpoint.module_formats import ModuleFormats, expert_place


@dataclass(frozen=True, slots=True)
class LayerStack:
    """The kinds of layers, and which kind each layer is."""

    kinds: tuple[DecoderLayer, ...]
    order: tuple[int, ...]


def read_layer_stack(
    config: ConfigFields, layers: int, families: Families, formats: ModuleFormats
) -> LayerStack:
    """Describe each of `layers` layers.

    Raises CheckpointError naming field, value and expectation.
    """
    model_type = config.text("model_type") or ""
    read = LAYER_READERS.get(model_type, _read_usual)(config, layers, families.of(model_type))
    kinds: dict[DecoderLayer, int] = {}
    order = []
    for index in range(layers):
        blocks = read(index)
        layer = DecoderLayer(
            mixers=blocks.mixers,
            feed_forwards=blocks.feed_forwards,
            norm_elements=blocks.norm_elements,
            float32_elements=blocks.float32_elements,
            exceptions=(
                *blocks.exceptions,
                *formats.of_layer(index, expert_place(blocks.feed_forwards)),
            ),
        )
        order.append(kinds.setdefault(layer, len(kinds)))
    return LayerStack(tuple(kinds), tuple(order))


def _read_usual(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Layers of one mixer and one feed-forward block, in the words that most families use."""
    mixers = MixerReader(config, layers, family)
    feed_forwards = FeedForwardReader(config, layers, family)
    kinds = read_layer_kinds(config, layers, family)
    norm_elements = _norm_elements(config, family)
    times = 2 if family.twofold else 1
    return lambda index: LayerBlocks(
        mixers.read(kinds[index], index) * times, feed_forwards.read(index), norm_elements
    )


def _norm_elements(config: ConfigFields, family: Family) -> int:
    """Weights of a layer's norms; Gemma 4's experts beside the MLP have three of their own."""
    norms = family.norms + (3 if config.flag("enable_moe_block") else 0)
    return norms * (2 if family.norm_biases else 1) * read_hidden_size(config)
