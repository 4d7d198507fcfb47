"""Read the multi-token prediction (MTP) layers, which follow the decoder layers."""

from dataclasses import replace
from typing import Final

from tonnage.catalog.models.families import Family
from tonnage.checkpoint.decoder import LayerStack
from tonnage.checkpoint.feed_forward_kinds import DraftProjection
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.mixer_kinds import CompressedAttention
from tonnage.checkpoint.model import (
    Attention,
    DecoderLayer,
    LatentAttention,
    Mixer,
    Mlp,
)
from tonnage.checkpoint.quantization.module_formats import ModuleFormats, find_expert_place
from tonnage.checkpoint.quantization.module_names import LINEAR_LAYERS

MAX_MTP_LAYERS: Final = 64
"""Most MTP layers of a model; published models have at most a handful."""

_COUNT: Final = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_num_layers")

_NORMS: Final = 3
"""Norms of the embedding, the hidden state and the output, in addition to the layer's own."""


def read_mtp_layers(
    config: ConfigFields,
    hidden_size: int,
    stack: LayerStack,
    formats: ModuleFormats,
    family: Family,
) -> tuple[DecoderLayer, ...]:
    """Return the MTP layers: each is the last decoder layer behind a projection of its inputs.

    They share the model's embeddings and output head. Sources: vLLM 0.32.0,
    vllm/model_executor/models/{deepseek,glm4_moe,mimo,qwen3_5,ernie}_mtp.py.
    """
    count = next((config.count(name) for name in _COUNT if name in config), family.drafts)
    if not count or not stack.order:
        return ()
    first = len(stack.order)
    last = _find_last_attention_layer(stack)
    last = _make_dense(last, stack) if family.dense_draft else last
    experts = find_expert_place(last.feed_forwards)
    unquantized = tuple((linear, None) for linear in (*LINEAR_LAYERS, "mtp.fc"))
    return tuple(
        replace(
            last,
            mixers=tuple(_make_mtp_mixer(mixer, stack) for mixer in last.mixers),
            feed_forwards=(DraftProjection(family.sharded_draft), *last.feed_forwards),
            norm_elements=last.norm_elements + _NORMS * hidden_size,
            exceptions=(
                unquantized if formats.mtp_unquantized else formats.of_layer(index, experts)
            ),
        )
        for index in range(first, first + min(count, MAX_MTP_LAYERS))
    )


def _find_last_attention_layer(stack: LayerStack) -> DecoderLayer:
    """Return the last layer with attention: the MTP layers of every family have attention."""
    layers = [stack.kinds[kind] for kind in reversed(stack.order)]
    attention_layers = (
        layer
        for layer in layers
        if any(isinstance(mixer, Attention | LatentAttention) for mixer in layer.mixers)
    )
    return next(attention_layers, layers[0])


def _make_dense(layer: DecoderLayer, stack: LayerStack) -> DecoderLayer:
    """Return the layer with only its first mixer and the model's MLP."""
    blocks = (block for kind in stack.kinds for block in kind.feed_forwards)
    mlp = tuple(block for block in blocks if isinstance(block, Mlp))[:1]
    return replace(layer, mixers=layer.mixers[:1], feed_forwards=mlp or layer.feed_forwards)


def _make_mtp_mixer(mixer: Mixer, stack: LayerStack) -> Mixer:
    """Return the mixer of an MTP layer: compressed attention keeps only its window.

    Sparse latent attention always has its own indexer, even if the last layer shares one.
    Source: vllm/models/deepseek_v4/attention.py (compress_ratio beyond num_hidden_layers).
    """
    if isinstance(mixer, CompressedAttention):
        return replace(mixer, compress_ratio=1, indexer_heads=0, indexer_head_dim=0, index_top_k=0)
    if not isinstance(mixer, LatentAttention) or not mixer.sparse:
        return mixer
    indexers = (
        other.indexer
        for layer in stack.kinds
        for other in layer.mixers
        if isinstance(other, LatentAttention) and other.indexer is not None
    )
    return replace(mixer, indexer=next(indexers, None))
