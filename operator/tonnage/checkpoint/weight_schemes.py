"""One scheme of storing weights, in the words of each quantisation method.

Sources: vLLM 0.32.0, vllm/model_executor/layers/quantization/<method>.py, `create_weights` of the
linear methods, whose scales are what `scale_bits` counts.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Quantization

UNKNOWN_BITS: Final = 16
"""What is not known counts as unquantised: too much memory rather than too little."""

SchemeReader = Callable[[str, ConfigFields], Quantization]
"""Reads the scheme of a method from the fields that describe it."""


def read_fp8(method: str, given: ConfigFields) -> Quantization:
    """DeepSeek's and Qwen's FP8: one 32-bit scale a block of (rows, columns), or one a tensor."""
    sizes = given.integers("weight_block_size")
    if not sizes:
        return Quantization(method, weight_bits=8, per_tensor=True)
    if len(sizes) != 2 or 0 in sizes:
        raise given.wrong("weight_block_size", sizes, "two positive integers")
    return Quantization(method, weight_bits=8, block=(sizes[0], sizes[1]))


def read_channel_fp8(method: str, given: ConfigFields) -> Quantization:
    """FBGEMM's and PTPC's FP8: one 32-bit scale an output channel."""
    return Quantization(method, weight_bits=8)


def read_weight_arguments(method: str, weights: ConfigFields) -> Quantization:
    """The `weights` of a group of compressed-tensors, and of ModelOpt's copy of them."""
    bits = weights.positive("num_bits", limit=32)
    is_float = (weights.text("type") or "int") == "float"
    group_size = read_group_size(weights)
    block = weights.integers("block_structure")
    if bits == 4 and is_float:  # 16 share a scale in NVFP4, 32 in MXFP4
        return Quantization(method, bits, group_size=group_size or 16, scale_bits=8)
    if bits == 8 and is_float and group_size is not None:
        return read_mxfp8(method, weights)
    zero_bits = 0 if weights.flag("symmetric", default=True) else bits
    return Quantization(
        method,
        bits,
        block=(block[0], block[1]) if len(block) == 2 and 0 not in block else None,
        group_size=group_size,
        scale_bits=32 if bits == 8 and group_size is None else 16 + zero_bits,
        is_float=is_float,
        per_tensor=weights.text("strategy") == "tensor",
    )


def read_packed(method: str, given: ConfigFields) -> Quantization:
    """AWQ, GPTQ, AutoRound and their like: bits and group size at the top.

    Each group has a 16-bit scale and a zero point of the weights' size.
    """
    bits = given.positive("bits", "w_bit", "nbits", "weight_bits", default=UNKNOWN_BITS, limit=32)
    if (given.text("data_type") or "").startswith(("mx_fp", "fp")):
        return _read_auto_round_float(method, given, bits)
    group_size = read_group_size(given)
    return Quantization(
        method,
        bits,
        group_size=group_size,
        scale_bits=16 + bits,
        is_float=bits == UNKNOWN_BITS,
        desc_act=given.flag("desc_act") and group_size is not None,
        symmetric=given.value("sym") is True,
    )


def _read_auto_round_float(method: str, given: ConfigFields, bits: int) -> Quantization:
    """AutoRound's formats of floating point: MXFP4, MXFP8, and FP8 in blocks."""
    if (given.text("data_type") or "").startswith("mx_fp"):
        return Quantization(method, bits, group_size=32, scale_bits=8)
    if isinstance(given.value("group_size"), list):
        rows, columns = (*given.integers("group_size"), 0, 0)[:2]
        return Quantization(method, bits, block=(rows or 128, columns or 128))
    return Quantization(method, bits)


def read_unknown(method: str, given: ConfigFields) -> Quantization:
    """A method whose fields nobody here can read."""
    return Quantization(method, UNKNOWN_BITS)


def read_group_size(given: ConfigFields) -> int | None:
    """Weights along the input that share a scale; -1 stands for the whole channel."""
    if given.value("group_size") == -1:
        return None
    return given.optional_positive("group_size", "q_group_size")


def read_mxfp4(method: str, given: ConfigFields) -> Quantization:
    """OCP MXFP4 of gpt-oss: experts only, an 8-bit exponent every 32 weights."""
    return Quantization(method, weight_bits=4, group_size=32, scale_bits=8, experts_only=True)


def read_mxfp8(method: str, given: ConfigFields) -> Quantization:
    """OCP MXFP8: an 8-bit exponent every 32 weights."""
    return Quantization(method, weight_bits=8, group_size=32, scale_bits=8)


def read_fp_quant(method: str, given: ConfigFields) -> Quantization:
    """FP-Quant: NVFP4 or MXFP4."""
    group_size = 16 if given.text("forward_dtype") == "nvfp4" else 32
    return Quantization(method, weight_bits=4, group_size=group_size, scale_bits=8)


def read_experts_int8(method: str, given: ConfigFields) -> Quantization:
    """Experts in INT8 with one 32-bit scale a channel, all else in 16 bits."""
    return Quantization(method, weight_bits=8, is_float=False, experts_only=True)


def read_modelopt(method: str, given: ConfigFields) -> Quantization:
    """NVIDIA ModelOpt, by the name of its algorithm."""
    algorithm = (given.text("quant_algo") or "").upper()
    if "NVFP4" in algorithm or (not algorithm and method == "modelopt_fp4"):
        return Quantization(method, 4, group_size=read_group_size(given) or 16, scale_bits=8)
    if algorithm.startswith("MXFP8") or (not algorithm and method.endswith("mxfp8")):
        return read_mxfp8(method, given)
    if algorithm.startswith("FP8"):
        blocks, channels = "PB" in algorithm, "PER_CHANNEL" in algorithm
        return Quantization(
            method, 8, block=(128, 128) if blocks else None, per_tensor=not (blocks or channels)
        )
    if algorithm.startswith(("W4A16", "W4A8")):
        return Quantization(
            method, 4, group_size=read_group_size(given), scale_bits=16, is_float=False
        )
    return Quantization(method, UNKNOWN_BITS)


def read_quark_layer(method: str, scheme: ConfigFields | None) -> Quantization:
    """AMD Quark: the weights and inputs of one layer, or of all."""
    weight = None if scheme is None else scheme.nested("weight")
    if scheme is None or weight is None:
        return Quantization(method, UNKNOWN_BITS)
    inputs = scheme.nested("input_tensors")
    activations = None if inputs is None else _read_quark_activations(inputs)
    return replace(_read_quark_weights(method, weight), activations=activations)


def read_quark(method: str, given: ConfigFields) -> Quantization:
    """AMD Quark: one scheme for all layers that have none of their own."""
    return read_quark_layer(method, given.nested("global_quant_config"))


def _read_quark_activations(inputs: ConfigFields) -> str | None:
    """`fp8` for fp8_e4m3 and `int8` for int8, None where the inputs keep their precision."""
    dtype = inputs.text("dtype") or ""
    return next((known for known in ("fp8", "int8", "fp4") if dtype.startswith(known)), None)


def _read_quark_weights(method: str, weight: ConfigFields) -> Quantization:
    dtype, group_size = weight.text("dtype") or "", read_group_size(weight)
    per_tensor = weight.text("qscheme") == "per_tensor"
    if dtype.startswith("fp8"):
        return Quantization(method, 8, group_size=group_size, per_tensor=per_tensor)
    if dtype.startswith(("fp4", "mxfp4")):
        return Quantization(method, 4, group_size=group_size or 32, scale_bits=8)
    if dtype.startswith(("int4", "uint4")):
        return Quantization(method, 4, group_size=group_size, scale_bits=20, is_float=False)
    if dtype.startswith(("int8", "uint8")):  # with an 8-bit zero point each
        return Quantization(method, 8, group_size=group_size, scale_bits=40, is_float=False)
    return Quantization(method, UNKNOWN_BITS)


def read_bitsandbytes(method: str, given: ConfigFields) -> Quantization:
    """bitsandbytes: NF4 with a 32-bit scale every 64 weights, or 8 bits with one a channel."""
    if given.flag("load_in_4bit", "_load_in_4bit"):
        return Quantization(method, 4, group_size=64)
    return Quantization(method, 8, is_float=False)


def read_torchao(method: str, given: ConfigFields) -> Quantization:
    """torchao, by the name of its configuration class."""
    types = given.nested("quant_type")
    inner = None if types is None else types.nested("default")
    name = (inner.text("_type") or "" if inner else "").lower()
    if name.startswith("float8"):
        return Quantization(method, 8)
    if name.startswith("int8"):
        return Quantization(method, 8, is_float=False)
    if name.startswith("int4"):
        return Quantization(method, 4, group_size=128, scale_bits=32, is_float=False)
    return Quantization(method, UNKNOWN_BITS)


_PACKED: Final = (
    "aqlm",
    "auto-round",
    "auto_awq",
    "auto_gptq",
    "awq",
    "awq_marlin",
    "bitblas",
    "gptq",
    "gptq_bitblas",
    "gptq_marlin",
    "gptq_marlin_24",
    "hqq",
    "inc",
    "marlin",
    "moe_wna16",
    "qqq",
    "rtn",
)

SCHEME_READERS: Final[Mapping[str, SchemeReader]] = {
    **dict.fromkeys(_PACKED, read_packed),
    "fp8": read_fp8,
    "fbgemm_fp8": read_channel_fp8,
    "ptpc_fp8": read_channel_fp8,
    "deepseek_v4_fp8": read_fp8,
    "mxfp4": read_mxfp4,
    "gpt_oss_mxfp4": read_mxfp4,
    "mxfp8": read_mxfp8,
    "fp_quant": read_fp_quant,
    "experts_int8": read_experts_int8,
    "modelopt": read_modelopt,
    "modelopt_fp4": read_modelopt,
    "modelopt_mxfp8": read_modelopt,
    "quark": read_quark,
    "bitsandbytes": read_bitsandbytes,
    "torchao": read_torchao,
}
"""Readers by method, for methods with one scheme."""
