"""Bytes of one LoRA adapter in the memory of the host."""

from dataclasses import replace

from tonnage.checkpoint.model import ModelShape
from tonnage.fit.lora.buffers import lora_bytes
from tonnage.fit.lora.targets import usual_targets
from tonnage.fit.model import EngineOptions
from tonnage.fit.weights.tensors import WHOLE


def adapter_bytes(shape: ModelShape, options: EngineOptions) -> int:
    """Bytes of an adapter of the largest rank for all target modules, as its files hold it.

    Without target modules it counts as one of attention and MLPs. Few adapters have weights for
    experts, embeddings or the output head; those are several times as large.
    """
    targets = options.lora_target_modules or usual_targets(shape)
    one = replace(
        options,
        enable_lora=True,
        max_loras=1,
        lora_target_modules=targets,
        fully_sharded_loras=False,
    )
    return lora_bytes(shape, WHOLE, one)
