"""Whether a split leaves weights that share a scale on one GPU.

Sources: vllm/model_executor/layers/quantization/utils/fp8_utils.py validate_fp8_block_shape and
validate_fp8_block_shape_moe, vllm/distributed/utils.py verify_group_size_divides_partition; what
depends on method and release is in catalog/data/splits.yaml.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from tonnage.catalog.splits import holds, load_split_rules
from tonnage.checkpoint.model import DType, ModelShape, Quantization
from tonnage.fit.layout import Layout
from tonnage.fit.matrix import Matrix, Split, WeightPart
from tonnage.fit.model import IllegalParallelism
from tonnage.fit.tensors import WHOLE, rank_matrices

_HALF = frozenset({"float16", "half"})
"""Names of float16 among the values of --dtype."""

_ALONE = frozenset({"self_attn.q_b_proj", "self_attn.kv_b_proj"})
"""Layers that share out their outputs and are merged with no other: of latent attention."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A quantised matrix as a rank holds it, beside the `whole` one, in a model so wide.

    `half_precision`: the model computes in float16.
    """

    rank: Matrix
    whole: Matrix
    stored: Quantization
    hidden_size: int
    half_precision: bool

    @property
    def is_expert(self) -> bool:
        """Whether it is an expert's."""
        return self.rank.part is WeightPart.EXPERTS


@dataclass(frozen=True, slots=True)
class Cut:
    """A shard whose `held` channels are no whole number of blocks or groups."""

    shard: Shard
    held: int


def check_quantization(layout: Layout) -> IllegalParallelism | None:
    """The first matrix in which a split cuts what belongs together, None without any."""
    if layout.shape.quantization is None:
        return None
    cuts = _cuts_of(layout)
    return _refuse(layout, cuts[0]) if cuts else None


def _cuts_of(layout: Layout) -> tuple[Cut, ...]:
    asked = layout.options.dtype
    half = layout.shape.dtype is DType.FLOAT16 if asked == "auto" else asked in _HALF
    return _find_cuts(layout.shape, layout.split, layout.release.version, half)


@lru_cache(maxsize=1024)
def _find_cuts(shape: ModelShape, split: Split, version: str, half: bool) -> tuple[Cut, ...]:
    """All cuts, in the order of the matrices; those of the rank and of the model correspond.

    Encoders are counted as a whole, not matrix by matrix, and left out.
    """
    stored, found = shape.quantization, []
    ranks = rank_matrices(shape, split, stored)
    for rank, whole in zip(ranks, rank_matrices(shape, WHOLE, stored), strict=True):
        if rank.stored is None or not rank.elements or rank.part is WeightPart.TOWERS:
            continue
        shard = Shard(rank, whole, rank.stored, shape.hidden_size, half)
        held = _held(shard, version)
        if held is not None and _cuts(held, shard, version):
            found.append(Cut(shard, held))
    return tuple(found)


def _held(shard: Shard, version: str) -> int | None:
    """Channels that this rank holds of the dimension that is shared out, None where vLLM does not
    look. Those of an expert are rows of one matrix and columns of the other."""
    rank, whole = shard.rank, shard.whole
    if rank.row_parallel:
        return rank.columns
    if shard.stored.block is None or shard.is_expert or rank.rows == whole.rows:
        return None
    loose = holds(load_split_rules().loose_columns, shard.stored.method, version)
    return rank.rows if rank.name in _ALONE or not loose else None


def _cuts(held: int, shard: Shard, version: str) -> bool:
    block = shard.stored.block
    if block is not None:
        return _cuts_block(held, shard, block, version)
    return _cuts_group(held, shard, version)


def _cuts_block(held: int, shard: Shard, block: tuple[int, int], version: str) -> bool:
    """One GPU holds all of a dense matrix; experts have to be whole blocks even there."""
    if held % math.lcm(*block) == 0:
        return False
    if not shard.is_expert:
        return shard.rank != shard.whole
    rules = load_split_rules()
    if not holds(rules.refined_experts, shard.stored.method, version):
        return True
    return math.gcd(*block, held, shard.hidden_size) < rules.smallest_refined_block


def _cuts_group(held: int, shard: Shard, version: str) -> bool:
    """A rank that may hold a part of a group still wants the whole matrix to be a number of groups.

    Floats are padded by most methods.
    """
    stored, group = shard.stored, shard.stored.group_size
    if group is None or held % group == 0:
        return False
    rules = load_split_rules()
    if stored.is_float:
        return not shard.is_expert and holds(rules.whole_float_groups, stored.method, version)
    may_cut = rules.may_cut_groups(
        stored.method, version, held, experts=shard.is_expert, half_precision=shard.half_precision
    )
    return not may_cut or shard.whole.columns % group != 0


def _refuse(layout: Layout, cut: Cut) -> IllegalParallelism:
    shard, stored = cut.shard, cut.shard.stored
    what = f"blocks of {stored.block[0]}" if stored.block else f"groups of {stored.group_size}"
    layer = "experts" if shard.is_expert else shard.rank.name
    others = ["expert parallelism"] if shard.is_expert else []

    def passes(size: int) -> bool:
        cuts = _cuts_of(layout.with_tensor(size))
        return not any(other.shard.rank.name == shard.rank.name for other in cuts)

    return layout.refuse(
        "QuantizationBlock",
        f"TP {layout.tensor} leaves {cut.held} channels a GPU in {layer}, which is not divisible"
        f" by the {what} weights that share a scale",
        passes,
        *others,
        "a 16-bit checkpoint",
    )
