"""Bytes of one matrix in every format, against what vLLM 0.32.0's layers allocate."""

from dataclasses import replace

import pytest

from tonnage.catalog.vllm.releases import RowPadding
from tonnage.checkpoint.model import Quantization
from tonnage.fit.weights.matrix import Matrix, WeightPart
from tonnage.fit.weights.precision import Residence, matrix_bytes

HOPPER = Residence("sm_90", "0.32.0")


def linear(quantization: Quantization | None, rows: int = 4096, columns: int = 14336) -> Matrix:
    return Matrix(WeightPart.MLP, "mlp.down_proj", rows, columns, quantization=quantization)


INT4 = Quantization("awq", 4, group_size=128, scale_bits=20, is_float=False)

# The down projection of an 8B Llama: 4096 x 14336. Shapes and dtypes of vLLM's own parameters.
FORMATS: list[tuple[str, Quantization | None, int]] = [
    ("16 bits", None, 2 * 4096 * 14336),
    ("FP8 in blocks: [32, 112] float32", Quantization("fp8", 8, block=(128, 128)),
     4096 * 14336 + 32 * 112 * 4),
    ("FP8 by tensor: [1] float32", Quantization("fp8", 8, per_tensor=True), 4096 * 14336 + 4),
    ("FP8 by channel: [4096, 1] float32", Quantization("compressed-tensors", 8),
     4096 * 14336 + 4096 * 4),
    ("INT8 with zero points: [4096, 1] int8 more",
     Quantization("quark", 8, scale_bits=40, is_float=False), 4096 * 14336 + 4096 * 5),
    ("AWQ: qzeros [112, 512] int32, scales [112, 4096] 16-bit", INT4,
     4096 * 1792 * 4 + 112 * 512 * 4 + 112 * 4096 * 2),
    ("GPTQ in 8 bits: qzeros [112, 1024]",
     Quantization("gptq", 8, group_size=128, scale_bits=24, is_float=False),
     3584 * 4096 * 4 + 112 * 1024 * 4 + 112 * 4096 * 2),
    ("packed INT4: scales [4096, 112] 16-bit",
     Quantization("compressed-tensors", 4, group_size=128, scale_bits=16, is_float=False),
     4096 * 1792 * 4 + 4096 * 112 * 2),
    ("packed INT4 by channel",
     Quantization("compressed-tensors", 4, scale_bits=16, is_float=False),
     4096 * 1792 * 4 + 4096 * 2),
    ("NVFP4: [4096, 896] float8", Quantization("modelopt", 4, group_size=16, scale_bits=8),
     4096 * 7168 + 4096 * 896),
    ("MXFP4: [4096, 448] uint8", Quantization("quark", 4, group_size=32, scale_bits=8),
     4096 * 7168 + 4096 * 448),
    ("MXFP8: [4096, 448] uint8", Quantization("mxfp8", 8, group_size=32, scale_bits=8),
     4096 * 14336 + 4096 * 448),
]  # fmt: skip


@pytest.mark.parametrize(("what", "quantization", "want_bytes"), FORMATS)
def test_a_linear_layer_of_each_format(
    what: str, quantization: Quantization | None, want_bytes: int
) -> None:
    assert matrix_bytes(linear(quantization)) == want_bytes, what
    assert matrix_bytes(linear(quantization), residence=HOPPER) == want_bytes, what


def test_copies_layers_and_biases_multiply() -> None:
    one = linear(INT4)
    many = replace(one, copies=8, layers=3, biases=10)
    assert matrix_bytes(many) == 24 * (matrix_bytes(one) + 10 * 2)


def test_fused_matrices_have_a_scale_each() -> None:
    quantization = Quantization("fp8", 8, per_tensor=True)
    assert matrix_bytes(replace(linear(quantization, rows=8192), stacked=2)) == 8192 * 14336 + 2 * 4


def experts(quantization: Quantization, inner: int, hidden: int = 2048) -> tuple[Matrix, Matrix]:
    """Gate and up projection, and down projection, of one expert."""
    part = WeightPart.EXPERTS
    up = Matrix(
        part, "mlp.experts.0.down_proj", 2 * inner, hidden, quantization=quantization, stacked=2
    )
    return up, Matrix(part, "mlp.experts.0.down_proj", hidden, inner, quantization=quantization)


def scales(matrix: Matrix, weight_bytes: int, residence: Residence | None = None) -> int:
    return matrix_bytes(matrix, residence=residence) - weight_bytes


def test_blocks_of_experts_are_refined_where_a_share_cuts_them() -> None:
    """768 over eight ranks is 96, of which 32 divides 128."""
    up, down = experts(Quantization("fp8", 8, block=(128, 128)), inner=96)
    assert scales(up, 192 * 2048) == 6 * 64 * 4
    assert scales(down, 2048 * 96) == 64 * 3 * 4
    whole, _ = experts(Quantization("fp8", 8, block=(128, 128)), inner=768)
    assert scales(whole, 1536 * 2048) == 12 * 16 * 4


def test_groups_of_integers_are_refined_in_experts_only() -> None:
    """768 over four ranks is 192, which groups of 64 divide: scales [2048, 3]."""
    _, down = experts(INT4, inner=192)
    assert scales(down, 2048 * 96) == 2048 * 3 * 20 // 8
    dense = replace(down, part=WeightPart.MLP)
    assert scales(dense, 2048 * 96) == 2048 * 2 * 20 // 8


def test_kernels_for_refined_groups_hold_no_empty_zero_points() -> None:
    symmetric = replace(INT4, method="gptq", symmetric=True)
    _, cut = experts(symmetric, inner=192)
    assert scales(cut, 2048 * 96) == 2048 * 3 * 2
    _, whole = experts(symmetric, inner=256)
    assert scales(whole, 2048 * 128) == 2048 * 2 * 20 // 8


MXFP4 = Quantization("mxfp4", 4, group_size=32, scale_bits=8)


def test_hopper_holds_swizzled_scales_and_once_the_originals_too() -> None:
    """gpt-oss: [5760, 90] scales are padded to whole 256 rows and, since 0.26, fours of columns."""
    up, _ = experts(MXFP4, inner=2880, hidden=2880)
    weight_bytes = 5760 * 1440
    assert scales(up, weight_bytes, Residence("sm_90", "0.14.1")) == 2 * 5888 * 90
    assert scales(up, weight_bytes, Residence("sm_90", "0.25.0")) == 5888 * 90
    assert scales(up, weight_bytes, Residence("sm_90", "0.32.0")) == 5888 * 92
    assert scales(up, weight_bytes, Residence("sm_80", "0.32.0")) == 5760 * 90
    assert scales(up, weight_bytes) == 5760 * 90, "on disk"


def test_biases_of_experts_are_float32_for_triton() -> None:
    up, _ = experts(MXFP4, inner=2880, hidden=2880)
    biased = replace(up, biases=5760)
    for arch, size in (("sm_90", 4), ("sm_80", 2), ("sm_100", 4)):
        residence = Residence(arch, "0.32.0")
        added = matrix_bytes(biased, residence=residence) - matrix_bytes(up, residence=residence)
        assert added == 5760 * size, arch


def test_ampere_spreads_scales_of_blocks_over_rows() -> None:
    blocks, tensor = (
        linear(Quantization("fp8", 8, block=(128, 128))),
        linear(Quantization("fp8", 8, per_tensor=True)),
    )
    ampere = Residence("sm_80", "0.32.0")
    assert scales(blocks, 4096 * 14336, ampere) == 4096 * 112 * 2
    assert scales(tensor, 4096 * 14336, ampere) == 4096 * 2


def test_blackwell_pads_scales_of_nvfp4() -> None:
    odd = linear(Quantization("modelopt", 4, group_size=16, scale_bits=8), rows=200, columns=160)
    assert scales(odd, 200 * 80, Residence("sm_100", "0.32.0")) == 256 * 12
    assert scales(odd, 200 * 80, HOPPER) == 200 * 10


def test_rocm_appends_to_rows_of_fp8_and_of_unquantised_experts() -> None:
    rocm = Residence("gfx942", "0.32.0", RowPadding(bytes=256, every=512))
    fp8 = linear(Quantization("compressed-tensors", 8))
    grown = matrix_bytes(fp8, residence=rocm) - matrix_bytes(fp8)
    assert grown == 4096 * 256
    assert matrix_bytes(linear(None), residence=rocm) == matrix_bytes(linear(None))
    plain = replace(linear(None), part=WeightPart.EXPERTS)
    assert matrix_bytes(plain, residence=rocm) - matrix_bytes(plain) == 4096 * 256
