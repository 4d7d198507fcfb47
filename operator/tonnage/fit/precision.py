"""In which precision weights lie in memory, and what a matrix costs in it."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import gcd
from typing import Final

from tonnage.catalog.engine import EngineRelease, RowPadding
from tonnage.catalog.formats import AS_STORED, UNQUANTISED, KernelLayout, kernel_layout
from tonnage.checkpoint.model import ModelShape, Quantization
from tonnage.fit.matrix import Matrix, WeightPart
from tonnage.fit.model import EngineOptions

COMPUTE_BYTES: Final = 2
"""vLLM computes in 16 bits; a float32 checkpoint is loaded as such (vllm/config/model.py)."""


def weight_format(quantization: Quantization | None) -> str:
    """The format of the weights whatever method wrote it, as compatibility rules name it."""
    if quantization is None or quantization.weight_bits == 16:
        return "16-bit"
    bits, group = quantization.weight_bits, quantization.group_size
    if not quantization.is_float:
        return f"int{bits}"
    if bits == 4:
        return "nvfp4" if group == 16 else "mxfp4"
    if group == 32 and quantization.scale_bits == 8:
        return "mxfp8"
    return "fp8-block" if quantization.block else "fp8"


def loaded_quantization(
    shape: ModelShape, options: EngineOptions, arch: str, release: EngineRelease
) -> Quantization | None:
    """How the weights lie in a device's memory; None for 16 bits.

    A checkpoint keeps its precision, unless the device has no kernels and vLLM expands it; a
    16-bit checkpoint gets that of `--quantization` while it is loaded.
    """
    stored = shape.quantization
    if stored is not None:
        expanded = any(
            entry.weight_format == weight_format(stored)
            and any(fnmatchcase(arch, pattern) for pattern in entry.archs)
            for entry in release.dequantized_at_load
        )
        return None if expanded else stored
    return online_quantization(options, release)


def online_quantization(options: EngineOptions, release: EngineRelease) -> Quantization | None:
    """What `--quantization` makes of a 16-bit checkpoint while it is loaded, None for nothing."""
    encoding = release.online_quantization.get(options.quantization)
    if encoding is None:
        return None
    return Quantization(
        method=options.quantization,
        weight_bits=encoding.weight_bits,
        block=encoding.block,
        group_size=encoding.group_size,
        scale_bits=encoding.scale_bits,
    )


@dataclass(frozen=True, slots=True)
class Residence:
    """Where weights come to lie, which decides how kernels want them.

    `row_padding` is what ROCm appends to rows, None elsewhere.
    """

    arch: str
    version: str
    row_padding: RowPadding | None = None

    def layout(self, stored: Quantization | None) -> KernelLayout:
        """How weights stored so lie there; None are experts in 16 bits."""
        if stored is None:
            return kernel_layout(UNQUANTISED, UNQUANTISED, self.arch, self.version)
        return kernel_layout(weight_format(stored), stored.method, self.arch, self.version)


def matrix_bytes(
    matrix: Matrix, element_bytes: int = COMPUTE_BYTES, residence: Residence | None = None
) -> int:
    """Bytes of all copies of a matrix with scales and biases.

    `element_bytes` is the size of an unquantised weight. Without a `residence` the matrix is
    measured as it lies on disk.
    """
    padding = residence.row_padding if residence else None
    stored, bias_bytes = matrix.stored, element_bytes
    if stored is None:
        each = _plain_bytes(matrix, matrix.element_bytes or element_bytes, padding)
    else:
        layout = residence.layout(stored) if residence else AS_STORED
        each = _packed_bytes(matrix, stored, padding) + _scale_bytes(matrix, stored, layout)
        bias_bytes = layout.bias_bytes or element_bytes
    return matrix.layers * matrix.copies * (each + matrix.biases * bias_bytes)


def _plain_bytes(matrix: Matrix, element_bytes: int, padding: RowPadding | None) -> int:
    applies = padding if matrix.part is WeightPart.EXPERTS else None
    return matrix.rows * _row_bytes(matrix.columns * element_bytes, applies)


def _packed_bytes(matrix: Matrix, stored: Quantization, padding: RowPadding | None) -> int:
    row = -(-matrix.columns * stored.weight_bits // 8)
    applies = padding if weight_format(stored) == "fp8" else None
    return matrix.rows * _row_bytes(row, applies)


def _row_bytes(row: int, padding: RowPadding | None) -> int:
    if padding is None or row % padding.every:
        return row
    return row + padding.bytes


def _scale_bytes(matrix: Matrix, stored: Quantization, layout: KernelLayout) -> int:
    """Scales and zero points, as many rows and columns of them as the scheme and kernels want."""
    rows, columns = _scale_shape(matrix, stored)
    bits = _scale_bits(matrix, stored)
    if layout.row_scale_bits is not None:
        rows, bits = matrix.rows, layout.row_scale_bits
    rows, columns = _rounded(rows, layout.scale_rows), _rounded(columns, layout.scale_columns)
    return layout.scale_copies * -(-rows * columns * bits // 8)


def _scale_bits(matrix: Matrix, stored: Quantization) -> int:
    """Bits of a scale with its zero point; the kernels for refined groups want no empty ones.

    Source: vllm/model_executor/layers/quantization/moe_wna16.py create_weights of 0.32.0.
    """
    group = stored.group_size
    if group is None or not stored.symmetric or _refined(matrix, (group, group))[1] == group:
        return stored.scale_bits
    return stored.scale_bits - stored.weight_bits


def _scale_shape(matrix: Matrix, stored: Quantization) -> tuple[int, int]:
    """One scale a block, a group along the input, an output channel, or for all."""
    if stored.block is not None:
        high, wide = _refined(matrix, stored.block)
        each = matrix.rows // matrix.stacked
        return matrix.stacked * -(-each // high), -(-matrix.columns // wide)
    if stored.group_size is not None:
        group = stored.group_size
        wide = group if stored.is_float else _refined(matrix, (group, group))[1]
        return matrix.rows, -(-matrix.columns // wide)
    return (matrix.stacked if stored.per_tensor else matrix.rows), 1


def _refined(matrix: Matrix, block: tuple[int, int]) -> tuple[int, int]:
    """The block of one scale; that of experts is refined where a rank's share cuts it.

    It becomes what divides the block and both sizes of the expert. Sources: vLLM 0.32.0,
    vllm/model_executor/layers/fused_moe/oracle/fp8.py refine_fp8_moe_block_shape and
    layers/quantization/moe_wna16.py create_weights, for groups of integers.
    """
    each = matrix.rows // matrix.stacked
    if matrix.part is not WeightPart.EXPERTS or not (each % block[0] or matrix.columns % block[1]):
        return block
    refined = gcd(*block, each, matrix.columns)
    return (refined, refined)


def _rounded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
