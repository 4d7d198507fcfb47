"""In which precision weights lie in memory, and what a matrix costs in it."""

from fnmatch import fnmatchcase
from typing import Final

from tonnage.catalog.engine import EngineRelease, RowPadding
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


def matrix_bytes(
    matrix: Matrix,
    element_bytes: int = COMPUTE_BYTES,
    padding: RowPadding | None = None,
) -> int:
    """Bytes of all copies of a matrix with scales and biases.

    `element_bytes` is the size of an unquantised weight, `padding` what ROCm appends to rows.
    """
    own = matrix.element_bytes or element_bytes
    if matrix.stored is None:
        each = _plain_bytes(matrix, own, padding)
    else:
        each = _packed_bytes(matrix, matrix.stored, padding)
    return matrix.layers * matrix.copies * (each + matrix.biases * element_bytes)


def _plain_bytes(matrix: Matrix, element_bytes: int, padding: RowPadding | None) -> int:
    applies = padding if matrix.part is WeightPart.EXPERTS else None
    return matrix.rows * _row_bytes(matrix.columns * element_bytes, applies)


def _packed_bytes(matrix: Matrix, stored: Quantization, padding: RowPadding | None) -> int:
    row = -(-matrix.columns * stored.weight_bits // 8)
    applies = padding if weight_format(stored) == "fp8" else None
    return matrix.rows * _row_bytes(row, applies) + _scale_bytes(matrix, stored)


def _row_bytes(row: int, padding: RowPadding | None) -> int:
    if padding is None or row % padding.every:
        return row
    return row + padding.bytes


def _scale_bytes(matrix: Matrix, stored: Quantization) -> int:
    """Scales and zero points: one a block, a group along the input, or an output channel."""
    if stored.block is not None:
        scales = -(-matrix.rows // stored.block[0]) * -(-matrix.columns // stored.block[1])
    elif stored.group_size is not None:
        scales = matrix.rows * -(-matrix.columns // stored.group_size)
    else:
        scales = matrix.rows
    return -(-scales * stored.scale_bits // 8)
