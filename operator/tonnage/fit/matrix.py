"""A weight matrix of one rank, and how a model is split over ranks."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tonnage.catalog.formats import KernelLayout
from tonnage.checkpoint.model import Quantization

FLOAT32_BYTES: Final = 4
"""An element of what vLLM keeps in 32 bits whatever the model's dtype."""


class WeightPart(StrEnum):
    """What a matrix belongs to."""

    EMBEDDINGS = "embeddings"
    LM_HEAD = "lm_head"
    ATTENTION = "attention"
    MLP = "mlp"
    EXPERTS = "experts"
    ROUTER = "router"
    NORMS = "norms"
    TOWERS = "towers"
    DRAFT = "mtp"


@dataclass(frozen=True, slots=True)
class Matrix:
    """`layers` x `copies` equal matrices of one rank, of `rows` outputs and `columns` inputs.

    `name` is the linear layer's, as the lists of unquantised layers spell it, None for what no
    method quantises. `row_parallel` ones share their inputs out over ranks, the others their
    outputs or nothing. `stored` is how each is quantised, None: unquantised, `element_bytes` each,
    None those of the model's dtype. `biases` are unquantised elements beside it. `stacked` equal
    matrices are fused to one, their outputs below each other.
    """

    part: WeightPart
    name: str | None
    rows: int
    columns: int
    copies: int = 1
    layers: int = 1
    row_parallel: bool = False
    stored: Quantization | None = None
    element_bytes: int | None = None
    biases: int = 0
    stacked: int = 1

    @property
    def elements(self) -> int:
        """Weights of all of them."""
        return self.layers * self.copies * self.rows * self.columns

    def times(self, layers: int) -> "Matrix":
        """The same matrix in so many layers."""
        return replace(self, layers=layers)

    def stored_as(self, stored: Quantization | None) -> "Matrix":
        """The same matrix, quantised so."""
        return replace(self, stored=stored)


@dataclass(frozen=True, slots=True)
class Split:
    """How a model is split over ranks, and which pipeline stage is looked at.

    `expert_padding` rounds experts up, None leaves them. `whole_towers` keeps vision towers whole
    on every rank. `data` are the data-parallel ranks that share the experts with the tensor ranks.
    """

    tensor: int = 1
    pipeline: int = 1
    stage: int = 0
    expert_parallel: bool = False
    data: int = 1
    expert_padding: KernelLayout | None = None
    whole_towers: bool = False

    @property
    def expert_ranks(self) -> int:
        """Ranks that share the experts, with or without expert parallelism.

        Source: vllm/model_executor/layers/fused_moe/config.py FusedMoEParallelConfig.make.
        """
        return self.tensor * self.data

    def shard(self, size: int) -> int:
        """A rank's part of a dimension, the largest where it does not divide."""
        return -(-size // self.tensor)
