"""Whether tensor parallelism keeps weights that share a scale on one GPU.

Sources: vllm/model_executor/layers/quantization/utils/fp8_utils.py validate_fp8_block_shape and
validate_fp8_block_shape_moe, vllm/distributed/utils.py verify_group_size_divides_partition. The
differences between methods and releases are in catalog/data/parallelism.yaml.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from tonnage.catalog.vllm.parallelism import holds, load_split_rules
from tonnage.checkpoint.model import DType, ModelShape, Quantization
from tonnage.fit.layout import Layout
from tonnage.fit.model import IllegalParallelism
from tonnage.fit.weights.matrix import Matrix, Sharding, WeightPart
from tonnage.fit.weights.tensors import WHOLE, rank_matrices

_FLOAT16_NAMES = frozenset({"float16", "half"})
"""Names of float16 among the values of --dtype."""

_UNMERGED_LAYERS = frozenset({"self_attn.q_b_proj", "self_attn.kv_b_proj"})
"""Layers of latent attention with sharded outputs that vLLM does not merge with others."""


@dataclass(frozen=True, slots=True)
class MatrixShard:
    """A quantised matrix on one `rank`, the `whole` matrix, and the model's hidden size.

    `half_precision`: the model computes in float16.
    """

    rank: Matrix
    whole: Matrix
    quantization: Quantization
    hidden_size: int
    half_precision: bool

    @property
    def is_expert(self) -> bool:
        """Whether the matrix belongs to an expert."""
        return self.rank.part is WeightPart.EXPERTS


@dataclass(frozen=True, slots=True)
class CutShard:
    """A shard whose `channels` are not a multiple of the block or group size."""

    shard: MatrixShard
    channels: int


def check_quantization(layout: Layout) -> IllegalParallelism | None:
    """The first matrix in which the parallelism cuts a block or group, None without any."""
    if layout.shape.quantization is None:
        return None
    cuts = _cuts_of(layout)
    return _refuse(layout, cuts[0]) if cuts else None


def _cuts_of(layout: Layout) -> tuple[CutShard, ...]:
    dtype = layout.options.dtype
    half = layout.shape.dtype is DType.FLOAT16 if dtype == "auto" else dtype in _FLOAT16_NAMES
    return _find_cuts(layout.shape, layout.sharding, layout.release.version, half)


@lru_cache(maxsize=1024)
def _find_cuts(
    shape: ModelShape, sharding: Sharding, version: str, half: bool
) -> tuple[CutShard, ...]:
    """All cut shards, in the order of the matrices, which are the same for rank and model.

    Encoders are not listed by matrix, so they are skipped.
    """
    quantization, cuts = shape.quantization, []
    rank_shards = rank_matrices(shape, sharding, quantization)
    for rank, whole in zip(rank_shards, rank_matrices(shape, WHOLE, quantization), strict=True):
        if rank.quantization is None or not rank.elements or rank.part is WeightPart.ENCODERS:
            continue
        shard = MatrixShard(rank, whole, rank.quantization, shape.hidden_size, half)
        channels = _checked_channels(shard, version)
        if channels is not None and _cuts(channels, shard, version):
            cuts.append(CutShard(shard, channels))
    return tuple(cuts)


def _checked_channels(shard: MatrixShard, version: str) -> int | None:
    """Channels of the sharded dimension on this rank, None if vLLM does not check them.

    For an expert these are rows of one matrix and columns of the other.
    """
    rank, whole = shard.rank, shard.whole
    if rank.row_parallel:
        return rank.columns
    if shard.quantization.block is None or shard.is_expert or rank.rows == whole.rows:
        return None
    loose = holds(load_split_rules().loose_columns, shard.quantization.method, version)
    return rank.rows if rank.name in _UNMERGED_LAYERS or not loose else None


def _cuts(channels: int, shard: MatrixShard, version: str) -> bool:
    block = shard.quantization.block
    if block is not None:
        return _cuts_block(channels, shard, block, version)
    return _cuts_group(channels, shard, version)


def _cuts_block(channels: int, shard: MatrixShard, block: tuple[int, int], version: str) -> bool:
    """A single GPU may hold any dense matrix, but experts need whole blocks even there."""
    if channels % math.lcm(*block) == 0:
        return False
    if not shard.is_expert:
        return shard.rank != shard.whole
    rules = load_split_rules()
    if not holds(rules.refined_experts, shard.quantization.method, version):
        return True
    return math.gcd(*block, channels, shard.hidden_size) < rules.smallest_refined_block


def _cuts_group(channels: int, shard: MatrixShard, version: str) -> bool:
    """Where a rank may hold a part of a group, the whole matrix still needs whole groups.

    Most methods pad floats.
    """
    quantization, group = shard.quantization, shard.quantization.group_size
    if group is None or channels % group == 0:
        return False
    rules = load_split_rules()
    if quantization.is_float:
        return not shard.is_expert and holds(rules.whole_float_groups, quantization.method, version)
    may_cut = rules.may_cut_groups(
        quantization.method,
        version,
        channels,
        experts=shard.is_expert,
        half_precision=shard.half_precision,
    )
    return not may_cut or shard.whole.columns % group != 0


def _refuse(layout: Layout, cut: CutShard) -> IllegalParallelism:
    shard, quantization = cut.shard, cut.shard.quantization
    what = (
        f"blocks of {quantization.block[0]}"
        if quantization.block
        else f"groups of {quantization.group_size}"
    )
    layer = "experts" if shard.is_expert else shard.rank.name
    alternatives = ["expert parallelism"] if shard.is_expert else []

    def passes(size: int) -> bool:
        cuts = _cuts_of(layout.with_tensor(size))
        return not any(other.shard.rank.name == shard.rank.name for other in cuts)

    return layout.refuse(
        "QuantizationBlock",
        f"TP {layout.tensor} leaves {cut.channels} channels a GPU in {layer}, which is not"
        f" divisible by the {what} weights that share a scale",
        passes,
        *alternatives,
        "a 16-bit checkpoint",
    )
