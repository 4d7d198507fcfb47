"""The precision of weights in memory, and the bytes of a matrix in it."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import gcd
from typing import Final

from tonnage.catalog.vllm.releases import EngineRelease, RowPadding
from tonnage.catalog.vllm.weight_formats import AS_STORED, UNQUANTISED, KernelLayout, kernel_layout
from tonnage.checkpoint.model import ModelShape, Quantization
from tonnage.fit.model import EngineOptions
from tonnage.fit.weights.matrix import Matrix, WeightPart

COMPUTE_BYTES: Final = 2
"""vLLM computes in 16 bits, and loads a float32 checkpoint in 16 bits (vllm/config/model.py)."""


def weight_format(quantization: Quantization | None) -> str:
    """The name of the weights' format in compatibility rules, whichever method wrote it."""
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
    """The quantisation of the weights in a device's memory; None for 16 bits.

    A checkpoint keeps its precision, unless the device has no kernels for it and vLLM expands it.
    vLLM quantises a 16-bit checkpoint with `--quantization` while it loads it.
    """
    if shape.quantization is not None:
        expanded = any(
            entry.weight_format == weight_format(shape.quantization)
            and any(fnmatchcase(arch, pattern) for pattern in entry.archs)
            for entry in release.dequantized_at_load
        )
        return None if expanded else shape.quantization
    return online_quantization(options, release)


def online_quantization(options: EngineOptions, release: EngineRelease) -> Quantization | None:
    """The quantisation that `--quantization` gives a 16-bit checkpoint while loading, or None."""
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
    """The device architecture and release, which decide the layout that kernels need.

    `row_padding` is the padding that ROCm appends to rows, None elsewhere.
    """

    arch: str
    version: str
    row_padding: RowPadding | None = None

    def layout(self, quantization: Quantization | None) -> KernelLayout:
        """The layout of weights with this quantisation; None stands for experts in 16 bits."""
        if quantization is None:
            return kernel_layout(UNQUANTISED, UNQUANTISED, self.arch, self.version)
        return kernel_layout(
            weight_format(quantization), quantization.method, self.arch, self.version
        )


def matrix_bytes(
    matrix: Matrix, element_bytes: int = COMPUTE_BYTES, residence: Residence | None = None
) -> int:
    """Bytes of all copies of a matrix with scales and biases.

    `element_bytes` is the size of an unquantised weight. Without a `residence` the result is the
    size on disk.
    """
    padding = residence.row_padding if residence else None
    quantization, bias_bytes = matrix.quantization, element_bytes
    if quantization is None:
        copy_bytes = _plain_bytes(matrix, matrix.element_bytes or element_bytes, padding)
    else:
        layout = residence.layout(quantization) if residence else AS_STORED
        copy_bytes = _packed_bytes(matrix, quantization, padding) + _scale_bytes(
            matrix, quantization, layout
        )
        bias_bytes = layout.bias_bytes or element_bytes
    return matrix.layers * matrix.copies * (copy_bytes + matrix.biases * bias_bytes)


def _plain_bytes(matrix: Matrix, element_bytes: int, padding: RowPadding | None) -> int:
    applies = padding if matrix.part is WeightPart.EXPERTS else None
    return matrix.rows * _row_bytes(matrix.columns * element_bytes, applies)


def _packed_bytes(matrix: Matrix, quantization: Quantization, padding: RowPadding | None) -> int:
    row = -(-matrix.columns * quantization.weight_bits // 8)
    applies = padding if weight_format(quantization) == "fp8" else None
    return matrix.rows * _row_bytes(row, applies)


def _row_bytes(row: int, padding: RowPadding | None) -> int:
    if padding is None or row % padding.every:
        return row
    return row + padding.bytes


def _scale_bytes(matrix: Matrix, quantization: Quantization, layout: KernelLayout) -> int:
    """Bytes of scales and zero points, rounded up to the rows and columns that kernels need."""
    rows, columns = _scale_shape(matrix, quantization)
    bits = _scale_bits(matrix, quantization)
    if layout.row_scale_bits is not None:
        rows, bits = matrix.rows, layout.row_scale_bits
    rows, columns = _round_up(rows, layout.scale_rows), _round_up(columns, layout.scale_columns)
    return layout.scale_copies * -(-rows * columns * bits // 8)


def _scale_bits(matrix: Matrix, quantization: Quantization) -> int:
    """Bits of a scale with its zero point; kernels for refined groups omit empty zero points.

    Source: vllm/model_executor/layers/quantization/moe_wna16.py create_weights of 0.32.0.
    """
    group = quantization.group_size
    if (
        group is None
        or not quantization.symmetric
        or _refine_block(matrix, (group, group))[1] == group
    ):
        return quantization.scale_bits
    return quantization.scale_bits - quantization.weight_bits


def _scale_shape(matrix: Matrix, quantization: Quantization) -> tuple[int, int]:
    """One scale per block, per group along the input, per output channel, or per matrix."""
    if quantization.block is not None:
        block_rows, block_columns = _refine_block(matrix, quantization.block)
        fused_rows = matrix.rows // matrix.stacked
        return matrix.stacked * -(-fused_rows // block_rows), -(-matrix.columns // block_columns)
    if quantization.group_size is not None:
        group = quantization.group_size
        block_columns = group if quantization.is_float else _refine_block(matrix, (group, group))[1]
        return matrix.rows, -(-matrix.columns // block_columns)
    return (matrix.stacked if quantization.per_tensor else matrix.rows), 1


def _refine_block(matrix: Matrix, block: tuple[int, int]) -> tuple[int, int]:
    """The block of one scale, refined for experts if a rank's shard cuts it.

    A refined block has the greatest common divisor of the block and both sizes of the expert.
    Sources: vLLM 0.32.0, vllm/model_executor/layers/fused_moe/oracle/fp8.py
    refine_fp8_moe_block_shape and layers/quantization/moe_wna16.py create_weights, for groups of
    integers.
    """
    fused_rows = matrix.rows // matrix.stacked
    if matrix.part is not WeightPart.EXPERTS or not (
        fused_rows % block[0] or matrix.columns % block[1]
    ):
        return block
    size = gcd(*block, fused_rows, matrix.columns)
    return (size, size)


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
