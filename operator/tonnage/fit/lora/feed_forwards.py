"""The adapted layers of MLPs and experts on one rank.

Source: vLLM 0.32.0, vllm/lora/layers/fused_moe.py and the linear layers of the model classes.
"""

from collections.abc import Iterator
from typing import Final

from tonnage.catalog.vllm.lora import AdaptedClass
from tonnage.checkpoint.model import Experts, FeedForward, Mlp
from tonnage.fit.lora.layer import AdaptedLayer, Shards, fused
from tonnage.fit.weights.feed_forward import expert_sizes
from tonnage.fit.weights.matrix import Sharding

_COLUMN, _ROW, _WHOLE = Shards.RANK_OF_A, Shards.OUTPUTS_OF_B, Shards.NOTHING

_FLAG_BYTES: Final = 4
"""Experts keep a 32-bit flag for each slot, and one for requests without an adapter."""


def feed_forward_layers(
    block: FeedForward, hidden: int, sharding: Sharding, model: AdaptedClass
) -> Iterator[AdaptedLayer]:
    """The adapted layers of one block in a model of width `hidden`, by their usual names."""
    match block:
        case Mlp():
            inner = block.intermediate_size
            inner = inner if block.whole else sharding.shard(inner)
            yield from _mlp(inner, hidden, model, gated=block.gated, whole=block.whole)
        case Experts():
            yield from _experts(block, hidden, sharding, model)
        case _:  # classes with embeddings of layers or residual streams wrap none of their layers
            return


def _mlp(
    inner: int, hidden: int, model: AdaptedClass, *, gated: bool, whole: bool = False
) -> Iterator[AdaptedLayer]:
    column, row = (_WHOLE, _WHOLE) if whole else (_COLUMN, _ROW)
    if gated:
        halves = (
            AdaptedLayer("gate_proj", hidden, inner, column),
            AdaptedLayer("up_proj", hidden, inner, column),
        )
        yield from fused("gate_up_proj", halves, model)
    else:
        yield AdaptedLayer("up_proj", hidden, inner, column)
    yield AdaptedLayer("down_proj", inner, hidden, row)


def _experts(
    block: Experts, hidden: int, sharding: Sharding, model: AdaptedClass
) -> Iterator[AdaptedLayer]:
    """Adapters of all experts are one layer; each expert has an A and a B of its own."""
    sizes = expert_sizes(block, hidden, sharding)
    whole = sharding.expert_parallel
    column, row = (_WHOLE, _WHOLE) if whole else (_COLUMN, _ROW)
    slices = 2 if block.gated and not model.experts_3d else 1
    up = (2 if block.gated else 1) * sizes.inner
    count, width = sizes.count, sizes.width
    # Two halves of one layer of vLLM's, which the flag divides in different ways.
    yield AdaptedLayer("experts", count * slices * width, count * up, column)
    yield AdaptedLayer("experts", count * sizes.inner, count * width, row, slot_bytes=_FLAG_BYTES)
    yield AdaptedLayer("gate", hidden, block.count + block.idle_count, _WHOLE)
    if block.shared_intermediate_size:
        inner = sharding.shard(block.shared_intermediate_size)
        yield from _mlp(inner, hidden, model, gated=block.gated)
        if block.shared_gate:
            yield AdaptedLayer("shared_expert_gate", hidden, 1, _WHOLE)
    if block.latent_size is not None:
        yield AdaptedLayer("fc1_latent_proj", hidden, block.latent_size, _WHOLE)
        yield AdaptedLayer("fc2_latent_proj", block.latent_size, hidden, _WHOLE)
