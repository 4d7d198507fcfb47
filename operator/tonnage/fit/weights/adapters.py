"""Bytes of the buffers for LoRA adapters on one GPU.

vLLM allocates them when it loads the model, however many adapters are loaded later.
"""

from typing import Final

from tonnage.checkpoint.model import ModelShape
from tonnage.fit.model import EngineOptions
from tonnage.fit.weights.matrix import Matrix, Sharding, WeightPart
from tonnage.fit.weights.precision import COMPUTE_BYTES
from tonnage.fit.weights.tensors import padded_vocabulary, rank_matrices

_ADAPTED: Final = frozenset(
    {WeightPart.ATTENTION, WeightPart.MLP, WeightPart.EXPERTS, WeightPart.ROUTER}
)
"""Parts whose linear layers vLLM wraps; encoders only on request."""


def adapter_bytes(shape: ModelShape, sharding: Sharding, options: EngineOptions) -> int:
    """Bytes of all slots on one rank, 0 without --enable-lora.

    A slot has `max_lora_rank` x (inputs + outputs) elements for each linear layer, where the ranks
    divide only what they divide of the layer itself. Embeddings and output head count as whole for
    every model, although some classes adapt neither. Less for --fully-sharded-loras and
    --lora-target-modules is not counted. Source: vLLM 0.33.0, vllm/lora/layers and
    vllm/lora/model_manager.py.
    """
    if not options.enable_lora:
        return 0
    widths = sum(
        _width(matrix)
        for matrix in rank_matrices(shape, sharding, None)
        if matrix.part in _ADAPTED and matrix.columns > 1
    )
    ends = (sharding.stage == 0) + (sharding.stage == sharding.pipeline - 1)
    widths += ends * (padded_vocabulary(shape) + shape.hidden_size)
    return options.max_loras * options.max_lora_rank * widths * COMPUTE_BYTES


def _width(matrix: Matrix) -> int:
    """Inputs and outputs of all the matrices; each of `stacked` ones has inputs of its own."""
    return matrix.layers * matrix.copies * (matrix.rows + matrix.stacked * matrix.columns)
