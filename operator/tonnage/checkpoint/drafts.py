"""The layers that predict tokens ahead (multi-token prediction), which lie behind the others."""

from dataclasses import replace
from typing import Final

from tonnage.catalog.families import Family
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
from tonnage.checkpoint.module_formats import ModuleFormats, expert_place
from tonnage.checkpoint.module_names import LINEAR_LAYERS

MAX_DRAFT_LAYERS: Final = 64
"""Most layers of that kind a model may have; published models have at most a handful."""

_COUNT: Final = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_num_layers")

_NORMS: Final = 3
"""Norms of the embedding, of the hidden state and of the output, beside those of the layer."""


def read_draft_layers(
    config: ConfigFields,
    hidden_size: int,
    stack: LayerStack,
    formats: ModuleFormats,
    family: Family,
) -> tuple[DecoderLayer, ...]:
    """Each a decoder layer as the model's last, behind a projection that joins what it predicts of.

    Embeddings and output head are those of the model. Sources: vLLM 0.32.0,
    vllm/model_executor/models/{deepseek,glm4_moe,mimo,qwen3_5,ernie}_mtp.py.
    """
    count = next((config.count(name) for name in _COUNT if name in config), family.drafts)
    if not count or not stack.order:
        return ()
    first = len(stack.order)
    last = _last_attending(stack)
    last = _plain(last, stack) if family.dense_draft else last
    experts = expert_place(last.feed_forwards)
    kept = tuple((linear, None) for linear in (*LINEAR_LAYERS, "mtp.fc"))
    return tuple(
        replace(
            last,
            mixers=tuple(_drafting(mixer, stack) for mixer in last.mixers),
            feed_forwards=(DraftProjection(family.sharded_draft), *last.feed_forwards),
            norm_elements=last.norm_elements + _NORMS * hidden_size,
            exceptions=kept if formats.drafts_kept else formats.of_layer(index, experts),
        )
        for index in range(first, first + min(count, MAX_DRAFT_LAYERS))
    )


def _last_attending(stack: LayerStack) -> DecoderLayer:
    """The last layer with attention: no family drafts with a recurrent state."""
    kinds = [stack.kinds[kind] for kind in reversed(stack.order)]
    attending = (
        layer
        for layer in kinds
        if any(isinstance(mixer, Attention | LatentAttention) for mixer in layer.mixers)
    )
    return next(attending, kinds[0])


def _plain(layer: DecoderLayer, stack: LayerStack) -> DecoderLayer:
    """The layer with one mixer and the model's MLP, whatever it has of both."""
    blocks = (block for kind in stack.kinds for block in kind.feed_forwards)
    mlp = tuple(block for block in blocks if isinstance(block, Mlp))[:1]
    return replace(layer, mixers=layer.mixers[:1], feed_forwards=mlp or layer.feed_forwards)


def _drafting(mixer: Mixer, stack: LayerStack) -> Mixer:
    """The mixer as a draft has it: one that compresses keeps no more than its window.

    Sparse latent attention has an indexer of its own, even where the last layer's has not.
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
