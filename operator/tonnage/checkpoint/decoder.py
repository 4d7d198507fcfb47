"""Read the stack of decoder layers; equal layers share one description."""

from dataclasses import dataclass

from tonnage.catalog.models.families import Families, Family
from tonnage.checkpoint.config.attention import read_hidden_size
from tonnage.checkpoint.config.blocks import LayerBlocks, LayerReader
from tonnage.checkpoint.config.feed_forwards import FeedForwardReader
from tonnage.checkpoint.config.layer_types import read_layer_kinds
from tonnage.checkpoint.config.mixers import MixerReader
from tonnage.checkpoint.families.adapters import LAYER_READERS
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import DecoderLayer
from tonnage.checkpoint.quantization.module_formats import ModuleFormats, find_expert_place


@dataclass(frozen=True, slots=True)
class LayerStack:
    """The distinct layers (`kinds`), and for each layer the index of its kind (`order`)."""

    kinds: tuple[DecoderLayer, ...]
    order: tuple[int, ...]


def read_layer_stack(
    config: ConfigFields, layers: int, families: Families, formats: ModuleFormats
) -> LayerStack:
    """Read each of `layers` layers.

    Raises CheckpointError naming field, value and expectation.
    """
    model_type = config.text("model_type") or ""
    read = LAYER_READERS.get(model_type, _read_common_layers)(
        config, layers, families.of(model_type)
    )
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
                *formats.of_layer(index, find_expert_place(blocks.feed_forwards)),
            ),
        )
        order.append(kinds.setdefault(layer, len(kinds)))
    return LayerStack(tuple(kinds), tuple(order))


def _read_common_layers(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Return a reader for the field names that most families share."""
    mixers = MixerReader(config, layers, family)
    feed_forwards = FeedForwardReader(config, layers, family)
    kinds = read_layer_kinds(config, layers, family)
    norm_elements = _count_norm_elements(config, family)
    repeats = 2 if family.twofold else 1
    return lambda index: LayerBlocks(
        mixers.read(kinds[index], index) * repeats, feed_forwards.read(index), norm_elements
    )


def _count_norm_elements(config: ConfigFields, family: Family) -> int:
    """Count the weights of a layer's norms; Gemma 4's experts add three norms."""
    norms = family.norms + (3 if config.flag("enable_moe_block") else 0)
    return norms * (2 if family.norm_biases else 1) * read_hidden_size(config)
