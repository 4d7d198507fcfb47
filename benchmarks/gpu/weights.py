"""Random weights for every tensor, with numbers of its own.

vLLM's dummy loader does not fill packed 4-bit weights, starts every tensor from the same seed, and
gives embeddings as little weight as layers. The tokens of a batch of gpt-oss then chose the same
experts, so that a step read fewer of them than with trained weights.
"""

import zlib
from collections.abc import Mapping
from typing import Any, Final

_RANGE: Final = 0.035
"""Uniform in ±0.035: a standard deviation of 0.02, with which models are initialised. GPUs compute
faster on numbers with few bits set, as vLLM's own ±0.001 has in FP8."""

_EMBEDDING_RANGE: Final = 1.7
"""A standard deviation of 1, so that the layers add to what tells the tokens apart, and do not
replace it."""

_SCALE_EXPONENT: Final = 119
"""2 ** (119 - 127): blocks of 4-bit numbers up to 6 get about the range of the others."""


def use_independent_weights() -> None:
    """Let vLLM's dummy loader fill each tensor with numbers of its own, from here on."""
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

    def load_weights(self: Any, model: Any, model_config: Any) -> None:
        fill_weights(model.state_dict())

    DummyModelLoader.load_weights = load_weights


def fill_weights(tensors: Mapping[str, Any]) -> None:
    """Fill tensors with random numbers that depend on their names."""
    import torch

    for name, tensor in tensors.items():
        generator = torch.Generator(device=tensor.device)
        generator.manual_seed(zlib.crc32(name.encode()))
        limit = _EMBEDDING_RANGE if "embed" in name else _RANGE
        if not tensor.is_floating_point():
            if name.endswith("_scale"):
                tensor.fill_(_SCALE_EXPONENT)
            elif tensor.dtype == torch.uint8:
                tensor.random_(0, 256, generator=generator)
        elif torch.finfo(tensor.dtype).bits < 16:
            numbers = torch.empty_like(tensor, dtype=torch.float16)
            tensor.copy_(numbers.uniform_(-limit, limit, generator=generator))
        else:
            tensor.uniform_(-limit, limit, generator=generator)
