"""A weight matrix of one rank, and how ranks shard a model."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tonnage.catalog.vllm.weight_formats import KernelLayout
from tonnage.checkpoint.model import Quantization

FLOAT32_BYTES: Final = 4
"""Bytes of an element that vLLM keeps in 32 bits whatever the model's dtype."""


class WeightPart(StrEnum):
    """The part of the model that a matrix belongs to."""

    EMBEDDINGS = "embeddings"
    LM_HEAD = "lm_head"
    ATTENTION = "attention"
    MLP = "mlp"
    EXPERTS = "experts"
    ROUTER = "router"
    NORMS = "norms"
    ENCODERS = "encoders"
    MTP = "mtp"


@dataclass(frozen=True, slots=True)
class Matrix:
    """`layers` x `copies` equal matrices of one rank, of `rows` outputs and `columns` inputs.

    `name` is the linear layer's, as the lists of unquantised layers spell it, None for a matrix
    that no method quantises. Ranks shard `row_parallel` matrices by inputs, others by outputs or
    not at all. `quantization` None means unquantised, with `element_bytes` per element (None: those
    of the model's dtype). `biases` counts additional, unquantised elements. The matrix fuses
    `stacked` equal matrices along their outputs.
    """

    part: WeightPart
    name: str | None
    rows: int
    columns: int
    copies: int = 1
    layers: int = 1
    row_parallel: bool = False
    quantization: Quantization | None = None
    element_bytes: int | None = None
    biases: int = 0
    stacked: int = 1

    @property
    def elements(self) -> int:
        """Weights of all the matrices."""
        return self.layers * self.copies * self.rows * self.columns

    def times(self, layers: int) -> "Matrix":
        """The same matrix in `layers` layers."""
        return replace(self, layers=layers)

    def quantized_as(self, quantization: Quantization | None) -> "Matrix":
        """The same matrix with another quantisation."""
        return replace(self, quantization=quantization)


@dataclass(frozen=True, slots=True)
class StageDivision:
    """How an engine other than vLLM divides a model into pipeline stages: the layers of each, and
    whether all have an output head. The first has the embeddings."""

    sizes: tuple[int, ...]
    head_on_all: bool


@dataclass(frozen=True, slots=True)
class Sharding:
    """How ranks shard a model, and the pipeline stage of the rank.

    `expert_padding` rounds experts up, None leaves them. `whole_encoders` keeps vision encoders
    whole on every rank. `data` counts the data-parallel ranks that share the experts. `division`
    are the stages, None for those of vLLM.
    """

    tensor: int = 1
    pipeline: int = 1
    stage: int = 0
    expert_parallel: bool = False
    data: int = 1
    expert_padding: KernelLayout | None = None
    whole_encoders: bool = False
    division: StageDivision | None = None

    @property
    def expert_ranks(self) -> int:
        """Ranks that share the experts, with or without expert parallelism.

        Source: vllm/model_executor/layers/fused_moe/config.py FusedMoEParallelConfig.make.
        """
        return self.tensor * self.data

    def shard(self, size: int) -> int:
        """A rank's part of a dimension, rounded up."""
        return -(-size // self.tensor)
