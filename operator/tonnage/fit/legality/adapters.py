"""Which settings for LoRA adapters vLLM accepts for a model and its parallelism."""

from collections.abc import Iterator
from typing import Final

from tonnage.catalog.vllm.lora import load_lora_support
from tonnage.fit.layout import Layout, divides
from tonnage.fit.lora.buffers import adapted_layers
from tonnage.fit.lora.layer import Shards
from tonnage.fit.model import IllegalParallelism
from tonnage.fit.weights.matrix import Sharding

_SHOWN_LAYERS: Final = 24


def check_adapters(layout: Layout) -> IllegalParallelism | None:
    """The first setting for adapters that vLLM refuses, None without any or without adapters."""
    if not layout.options.enable_lora:
        return None
    return next(_refusals(layout), None)


def _refusals(layout: Layout) -> Iterator[IllegalParallelism]:
    yield from _refuse_rank(layout)
    yield from _refuse_targets(layout)
    yield from _refuse_vocabulary(layout)
    if layout.options.fully_sharded_loras:
        yield from _refuse_sharding(layout)


def _refuse_rank(layout: Layout) -> Iterator[IllegalParallelism]:
    """Source: vllm/config/lora.py MaxLoRARanks."""
    rank, ranks = layout.options.max_lora_rank, load_lora_support().ranks
    if rank not in ranks:
        expected = ", ".join(map(str, ranks))
        why = f"--max-lora-rank {rank} is not a rank that vLLM reserves: expected {expected}"
        yield IllegalParallelism("AdapterRank", why)


def _refuse_targets(layout: Layout) -> Iterator[IllegalParallelism]:
    """A target that names no layer leaves all adapters without effect on it.

    A target that vLLM cannot wrap ends its start (vllm/lora/model_manager.py
    _create_lora_modules).
    """
    options = layout.options
    known = [
        *adapted_layers(layout.shape, layout.sharding, (), options.fully_sharded_loras),
        *adapted_layers(layout.shape, layout.sharding, ("embed_tokens", "lm_head")),
    ]
    names = {layer.name: None for layer in known}
    unsharded = adapted_layers(layout.shape, layout.sharding)
    for target in options.lora_target_modules:
        if any(layer.is_target((target,)) for layer in known):
            continue
        if any(layer.is_target((target,)) for layer in unsharded):
            why = (
                f"vLLM has no buffers for {target} with --fully-sharded-loras, so that adapters "
                f"would have no effect there; leave out --fully-sharded-loras, or {target} in "
                "--lora-target-modules"
            )
        else:
            expected = ", ".join(list(names)[:_SHOWN_LAYERS])
            why = (
                f"--lora-target-modules {target} is no layer of {layout.shape.architecture} with "
                f"buffers: expected one of {expected}"
            )
        yield IllegalParallelism("AdapterTargets", why)


def _refuse_vocabulary(layout: Layout) -> Iterator[IllegalParallelism]:
    """Source: vllm/lora/layers/logits_processor.py create_lora_weights."""
    shape, options = layout.shape, layout.options
    largest = load_lora_support().largest_head_vocabulary
    layers = adapted_layers(shape, Sharding(), options.lora_target_modules)
    if shape.vocab_size > largest and any(layer.name == "lm_head" for layer in layers):
        why = (
            f"a vocabulary of {shape.vocab_size} is too large for adapters of the output head, at "
            f"most {largest}; name the other layers in --lora-target-modules"
        )
        yield IllegalParallelism("AdapterVocabulary", why)


def _refuse_sharding(layout: Layout) -> Iterator[IllegalParallelism]:
    """Ranks share the rank of A, and the outputs of B in row-parallel layers, evenly.

    Source: vllm/distributed/utils.py divide, and lora/layers/fused_moe.py _verify_ep_fs.
    """
    shape, options = layout.shape, layout.options
    if options.enable_expert_parallel and shape.experts is not None:
        why = (
            "vLLM does not combine --fully-sharded-loras with expert parallelism; leave out one of "
            "them"
        )
        yield IllegalParallelism("AdapterSharding", why)
    layers = adapted_layers(shape, layout.sharding, options.lora_target_modules, True)
    sizes = [("a rank", options.max_lora_rank)]
    sizes += [
        (f"{layer.name} with outputs", layer.outputs)
        for layer in layers
        if layer.shards is Shards.OUTPUTS_OF_B and layer.name != "experts"
    ]
    for what, size in sizes:
        if size % layout.tensor:
            yield layout.refuse(
                "AdapterSharding",
                f"{what} of {size} is not divisible by TP {layout.tensor}, as "
                "--fully-sharded-loras needs",
                divides(size),
                "leaving out --fully-sharded-loras",
            )
