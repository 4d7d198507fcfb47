"""The tables of cosines and sines that rotary embeddings keep on every GPU."""

from collections.abc import Iterable

from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Attention, DecoderLayer, LatentAttention, RopeCache


def read_rope_caches(
    config: ConfigFields, positions: int, layers: Iterable[DecoderLayer]
) -> tuple[RopeCache, ...]:
    """One table for each kind of rotary embedding in the model.

    Source: vllm/model_executor/layers/rotary_embedding/__init__.py get_rope.
    """
    widths = {
        mixer.qk_rope_head_dim if isinstance(mixer, LatentAttention) else mixer.head_dim
        for layer in layers
        for mixer in layer.mixers
        if isinstance(mixer, Attention | LatentAttention)
    }
    return tuple(RopeCache(positions, width) for width in sorted(widths))
