"""Bytes of the buffers for LoRA adapters on one GPU.

vLLM allocates them when it loads the model, for the number of slots and the rank that are set,
however many adapters are loaded later. The largest scratch of a step is part of the activation
peak, which vLLM measures with adapters; the index arrays of a batch are below 1 MiB and left out.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from tonnage.catalog.load import load_catalog
from tonnage.catalog.vllm.lora import AdaptedClass, load_lora_support
from tonnage.catalog.vllm.parallelism import load_split_rules
from tonnage.checkpoint.model import DecoderLayer, ModelShape
from tonnage.fit.lora.feed_forwards import feed_forward_layers
from tonnage.fit.lora.layer import AdaptedLayer, Shards
from tonnage.fit.lora.mixers import mixer_layers
from tonnage.fit.model import EngineOptions
from tonnage.fit.weights.matrix import Sharding
from tonnage.fit.weights.tensors import padded_vocabulary, stage_layers

_INDEX_BYTES: Final = 8
"""An entry of the table that brings the logits of all ranks into the order of the vocabulary
(vllm/lora/layers/logits_processor.py)."""


def lora_bytes(shape: ModelShape, sharding: Sharding, options: EngineOptions) -> int:
    """Bytes of all slots on the rank, 0 without --enable-lora."""
    if not options.enable_lora:
        return 0
    return sum(
        layer.buffer_bytes(options, sharding.tensor)
        for layer in adapted_layers(
            shape, sharding, options.lora_target_modules, options.fully_sharded_loras
        )
    )


@lru_cache(maxsize=1024)
def adapted_layers(
    shape: ModelShape,
    sharding: Sharding,
    targets: tuple[str, ...] = (),
    fully_sharded: bool = False,
) -> tuple[AdaptedLayer, ...]:
    """The layers of a rank of stage `sharding.stage` that have buffers, by vLLM's names.

    `targets` are those of --lora-target-modules; without any, all layers that vLLM can wrap, with
    `fully_sharded` those that it can wrap then. Encoders have none unless a flag
    asks for them, MTP layers never have any.
    """
    model = load_lora_support().layers_of(_served_class(shape))
    layers = [*_decoder_layers(shape, sharding, model), *_ends(shape, sharding, targets)]
    named = (
        replace(layer, name=model.names.get(layer.name, layer.name))
        for layer in layers
        if layer.name not in model.unwrapped and not (fully_sharded and layer.never_sharded)
    )
    return tuple(layer for layer in named if not targets or layer.is_target(targets))


def _served_class(shape: ModelShape) -> str:
    """The class that vLLM builds: its Transformers backend for one that it has no code for."""
    known = load_catalog().architectures.served
    return shape.architecture if shape.architecture in known else "TransformersForCausalLM"


def _decoder_layers(
    shape: ModelShape, sharding: Sharding, model: AdaptedClass
) -> Iterator[AdaptedLayer]:
    for kind, count in stage_layers(shape, sharding).items():
        for layer in _layers_of_kind(kind, shape.hidden_size, sharding, model):
            yield layer.times(count)


def _layers_of_kind(
    kind: DecoderLayer, hidden: int, sharding: Sharding, model: AdaptedClass
) -> Iterator[AdaptedLayer]:
    for mixer in kind.mixers:
        yield from mixer_layers(mixer, hidden, sharding, model)
    for block in kind.feed_forwards:
        yield from feed_forward_layers(block, hidden, sharding, model)


def _ends(
    shape: ModelShape, sharding: Sharding, targets: tuple[str, ...]
) -> Iterator[AdaptedLayer]:
    """Embeddings and output head, which ranks never divide.

    Listed modules have buffers without --lora-target-modules; a target has them in any class. The
    last stage holds embeddings too where the head shares them.
    """
    support, name = load_lora_support(), _served_class(shape)
    listed = support.embedding_layers(name, shape.model_type, multimodal=bool(shape.encoders))
    wrapped = frozenset(targets) if targets else listed
    rules = load_split_rules()
    first = sharding.stage == 0 or name in rules.embeddings_on_all_stages
    last = sharding.stage == sharding.pipeline - 1
    head = last or name in rules.head_on_all_stages
    vocabulary, hidden = shape.vocab_size, shape.hidden_size
    if "embed_tokens" in wrapped and (first or (last and shape.tie_word_embeddings)):
        yield AdaptedLayer("embed_tokens", vocabulary, hidden, Shards.NOTHING)
    if "lm_head" in wrapped and head:
        table = _INDEX_BYTES * padded_vocabulary(shape) if sharding.tensor > 1 else 0
        yield AdaptedLayer("lm_head", hidden, vocabulary, Shards.NOTHING, own_bytes=table)
