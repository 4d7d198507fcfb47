"""Read one weight scheme from the fields of a quantisation method.

Sources: vLLM 0.32.0, vllm/model_executor/layers/quantization/<method>.py, `create_weights` of the
linear methods, whose scales `scale_bits` counts.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Quantization

UNKNOWN_BITS: Final = 16
"""Unknown schemes count as unquantised: an estimate with too much memory is safer."""

SchemeReader = Callable[[str, ConfigFields], Quantization]
"""Reads the scheme of a method from the fields that describe it."""


def read_fp8(method: str, config: ConfigFields) -> Quantization:
    """Read DeepSeek's and Qwen's FP8: a 32-bit scale per block of (rows, columns) or per tensor."""
    sizes = config.integers("weight_block_size")
    if not sizes:
        return Quantization(method, weight_bits=8, per_tensor=True)
    if len(sizes) != 2 or 0 in sizes:
        raise config.invalid("weight_block_size", sizes, "two positive integers")
    return Quantization(method, weight_bits=8, block=(sizes[0], sizes[1]))


def read_channel_fp8(method: str, config: ConfigFields) -> Quantization:
    """Read FBGEMM's and PTPC's FP8: a 32-bit scale per output channel."""
    return Quantization(method, weight_bits=8)


def read_weight_arguments(method: str, weights: ConfigFields) -> Quantization:
    """Read the `weights` of a compressed-tensors group, or of ModelOpt's copy of the format."""
    bits = weights.positive("num_bits", limit=32)
    is_float = (weights.text("type") or "int") == "float"
    group_size = read_group_size(weights)
    block = weights.integers("block_structure")
    if bits == 4 and is_float:  # 16 weights share a scale in NVFP4, 32 in MXFP4
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


def read_packed(method: str, config: ConfigFields) -> Quantization:
    """Read AWQ, GPTQ, AutoRound and similar methods: bits and group size at the top level.

    Each group has a 16-bit scale and a zero point with the bits of a weight.
    """
    bits = config.positive("bits", "w_bit", "nbits", "weight_bits", default=UNKNOWN_BITS, limit=32)
    if (config.text("data_type") or "").startswith(("mx_fp", "fp")):
        return _read_auto_round_float(method, config, bits)
    group_size = read_group_size(config)
    return Quantization(
        method,
        bits,
        group_size=group_size,
        scale_bits=16 + bits,
        is_float=bits == UNKNOWN_BITS,
        desc_act=config.flag("desc_act") and group_size is not None,
        symmetric=config.value("sym") is True,
    )


def _read_auto_round_float(method: str, config: ConfigFields, bits: int) -> Quantization:
    """Read AutoRound's floating-point formats: MXFP4, MXFP8, and FP8 in blocks."""
    if (config.text("data_type") or "").startswith("mx_fp"):
        return Quantization(method, bits, group_size=32, scale_bits=8)
    if isinstance(config.value("group_size"), list):
        rows, columns = (*config.integers("group_size"), 0, 0)[:2]
        return Quantization(method, bits, block=(rows or 128, columns or 128))
    return Quantization(method, bits)


def read_unknown(method: str, config: ConfigFields) -> Quantization:
    """Return the scheme of an unknown method."""
    return Quantization(method, UNKNOWN_BITS)


def read_group_size(config: ConfigFields) -> int | None:
    """Return the weights along the input that share a scale, None for -1, the whole channel."""
    if config.value("group_size") == -1:
        return None
    return config.optional_positive("group_size", "q_group_size")


def read_mxfp4(method: str, config: ConfigFields) -> Quantization:
    """Read OCP MXFP4 of gpt-oss: experts only, an 8-bit exponent per 32 weights."""
    return Quantization(method, weight_bits=4, group_size=32, scale_bits=8, experts_only=True)


def read_mxfp8(method: str, config: ConfigFields) -> Quantization:
    """Read OCP MXFP8: an 8-bit exponent per 32 weights."""
    return Quantization(method, weight_bits=8, group_size=32, scale_bits=8)


def read_fp_quant(method: str, config: ConfigFields) -> Quantization:
    """Read FP-Quant: NVFP4 or MXFP4."""
    group_size = 16 if config.text("forward_dtype") == "nvfp4" else 32
    return Quantization(method, weight_bits=4, group_size=group_size, scale_bits=8)


def read_experts_int8(method: str, config: ConfigFields) -> Quantization:
    """Read INT8 experts with a 32-bit scale per channel; other layers have 16 bits."""
    return Quantization(method, weight_bits=8, is_float=False, experts_only=True)


def read_modelopt(method: str, config: ConfigFields) -> Quantization:
    """Read NVIDIA ModelOpt by the name of its algorithm."""
    algorithm = (config.text("quant_algo") or "").upper()
    if "NVFP4" in algorithm or (not algorithm and method == "modelopt_fp4"):
        return Quantization(method, 4, group_size=read_group_size(config) or 16, scale_bits=8)
    if algorithm.startswith("MXFP8") or (not algorithm and method.endswith("mxfp8")):
        return read_mxfp8(method, config)
    if algorithm.startswith("FP8"):
        blocks, channels = "PB" in algorithm, "PER_CHANNEL" in algorithm
        return Quantization(
            method, 8, block=(128, 128) if blocks else None, per_tensor=not (blocks or channels)
        )
    if algorithm.startswith(("W4A16", "W4A8")):
        return Quantization(
            method, 4, group_size=read_group_size(config), scale_bits=16, is_float=False
        )
    return Quantization(method, UNKNOWN_BITS)


def read_quark_layer(method: str, scheme: ConfigFields | None) -> Quantization:
    """Read AMD Quark: the weights and inputs of one layer, or of all."""
    weight = None if scheme is None else scheme.nested("weight")
    if scheme is None or weight is None:
        return Quantization(method, UNKNOWN_BITS)
    inputs = scheme.nested("input_tensors")
    activations = None if inputs is None else _read_quark_activations(inputs)
    return replace(_read_quark_weights(method, weight), activations=activations)


def read_quark(method: str, config: ConfigFields) -> Quantization:
    """Read AMD Quark's scheme for all layers without a scheme of their own."""
    return read_quark_layer(method, config.nested("global_quant_config"))


def _read_quark_activations(inputs: ConfigFields) -> str | None:
    """Return `fp8` for fp8_e4m3 and `int8` for int8, None for unquantised inputs."""
    dtype = inputs.text("dtype") or ""
    return next((format_ for format_ in ("fp8", "int8", "fp4") if dtype.startswith(format_)), None)


def _read_quark_weights(method: str, weight: ConfigFields) -> Quantization:
    dtype, group_size = weight.text("dtype") or "", read_group_size(weight)
    per_tensor = weight.text("qscheme") == "per_tensor"
    if dtype.startswith("fp8"):
        return Quantization(method, 8, group_size=group_size, per_tensor=per_tensor)
    if dtype.startswith(("fp4", "mxfp4")):
        return Quantization(method, 4, group_size=group_size or 32, scale_bits=8)
    if dtype.startswith(("int4", "uint4")):
        return Quantization(method, 4, group_size=group_size, scale_bits=20, is_float=False)
    if dtype.startswith(("int8", "uint8")):  # each scale has an 8-bit zero point
        return Quantization(method, 8, group_size=group_size, scale_bits=40, is_float=False)
    return Quantization(method, UNKNOWN_BITS)


def read_bitsandbytes(method: str, config: ConfigFields) -> Quantization:
    """Read bitsandbytes: NF4 with a 32-bit scale per 64 weights, or 8 bits with one per channel."""
    if config.flag("load_in_4bit", "_load_in_4bit"):
        return Quantization(method, 4, group_size=64)
    return Quantization(method, 8, is_float=False)


def read_torchao(method: str, config: ConfigFields) -> Quantization:
    """Read torchao by the name of its configuration class."""
    types = config.nested("quant_type")
    default = None if types is None else types.nested("default")
    name = (default.text("_type") or "" if default else "").lower()
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
"""Readers of a method's main scheme."""
