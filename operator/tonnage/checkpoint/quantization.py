"""How a checkpoint's linear layers are quantised: `quantization_config` in all its dialects."""

from typing import Final

from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import CheckpointError, Quantization

_UNKNOWN_BITS: Final = 16
"""A method that is not known counts as unquantised: too much memory rather than too little."""


def read_quantization(config: ConfigFields) -> Quantization | None:
    """How the linear layers are stored, None for a 16-bit checkpoint. Raises CheckpointError."""
    given = config.nested("quantization_config", "compression_config")
    if given is None:
        return None
    # hf_quant_config.json of ModelOpt has everything one level deeper and names no method.
    inner = given.nested("quantization")
    method = (given.text("quant_method") or ("modelopt" if inner else "")).lower()
    if not method:
        raise CheckpointError("quantization_config.quant_method is missing: expected a method")
    dialect = inner or given
    stored = _STORED.get(method, _read_packed)(method, dialect)
    return Quantization(
        method=method,
        weight_bits=stored.weight_bits,
        block=stored.block,
        group_size=stored.group_size,
        scale_bits=stored.scale_bits,
        is_float=stored.is_float,
        desc_act=stored.desc_act,
        experts_only=stored.experts_only,
        kv_cache_bits=_read_kv_cache_bits(given, dialect),
    )


def read_ignored(config: ConfigFields) -> tuple[str, ...]:
    """Names and patterns of the layers that a quantised checkpoint keeps in 16 bits."""
    given = config.nested("quantization_config", "compression_config")
    if given is None:
        return ()
    dialect = given.nested("quantization") or given
    return dialect.names("modules_to_not_convert", "ignore", "exclude_modules", "exclude")


def _read_kv_cache_bits(given: ConfigFields, dialect: ConfigFields) -> int | None:
    """Element size of the KV cache that the checkpoint has scales for."""
    scheme = given.value("kv_cache_scheme")
    if isinstance(scheme, str):
        return 8 if scheme.upper() == "FP8" else None
    if scheme is not None:
        scheme_fields = given.nested("kv_cache_scheme")
        return None if scheme_fields is None else scheme_fields.positive("num_bits", default=8)
    algorithm = dialect.text("kv_cache_quant_algo")
    return 8 if (algorithm or "").upper() == "FP8" else None


def _read_fp8(method: str, given: ConfigFields) -> Quantization:
    """DeepSeek's and Qwen's FP8: one 32-bit scale a block of (rows, columns), or one a channel."""
    sizes = given.integers("weight_block_size")
    if not sizes:
        return Quantization(method, weight_bits=8)
    if len(sizes) != 2 or 0 in sizes:
        raise given.wrong("weight_block_size", sizes, "two positive integers")
    return Quantization(method, weight_bits=8, block=(sizes[0], sizes[1]))


def _read_compressed_tensors(method: str, given: ConfigFields) -> Quantization:
    """compressed-tensors: groups of layers with a scheme each; the most bits count."""
    groups = given.nested("config_groups")
    schemes = [] if groups is None else [group.nested("weights") for group in groups.children()]
    read = [_read_scheme(method, scheme) for scheme in schemes if scheme is not None]
    if not read:
        raise CheckpointError(
            "quantization_config.config_groups has no group with weights: expected one"
        )
    return max(read, key=lambda scheme: scheme.weight_bits)


def _read_scheme(method: str, weights: ConfigFields) -> Quantization:
    bits = weights.positive("num_bits", limit=32)
    is_float = (weights.text("type") or "int") == "float"
    group_size = _read_group_size(weights)
    block = weights.integers("block_structure")
    if bits == 4 and is_float:
        return Quantization(method, bits, group_size=group_size or 16, scale_bits=8)
    zero_bits = 0 if weights.flag("symmetric", default=True) else bits
    return Quantization(
        method,
        bits,
        block=(block[0], block[1]) if len(block) == 2 and 0 not in block else None,
        group_size=group_size,
        scale_bits=32 if bits == 8 and group_size is None else 16 + zero_bits,
        is_float=is_float,
    )


def _read_packed(method: str, given: ConfigFields) -> Quantization:
    """AWQ, GPTQ, AutoRound and methods that are not known: bits and group size at the top.

    Each group has a 16-bit scale and a zero point of the weights' size.
    """
    bits = given.positive("bits", "w_bit", "nbits", "weight_bits", default=_UNKNOWN_BITS, limit=32)
    group_size = _read_group_size(given)
    return Quantization(
        method,
        bits,
        group_size=group_size,
        scale_bits=16 + bits,
        is_float=bits == _UNKNOWN_BITS,
        desc_act=given.flag("desc_act") and group_size is not None,
    )


def _read_group_size(given: ConfigFields) -> int | None:
    """Weights along the input that share a scale; -1 stands for the whole channel."""
    if given.value("group_size") == -1:
        return None
    return given.optional_positive("group_size", "q_group_size")


def _read_mxfp4(method: str, given: ConfigFields) -> Quantization:
    """OCP MXFP4 of gpt-oss: experts only, an 8-bit exponent every 32 weights."""
    return Quantization(method, weight_bits=4, group_size=32, scale_bits=8, experts_only=True)


def _read_mxfp8(method: str, given: ConfigFields) -> Quantization:
    """OCP MXFP8: an 8-bit exponent every 32 weights."""
    return Quantization(method, weight_bits=8, group_size=32, scale_bits=8)


def _read_modelopt(method: str, given: ConfigFields) -> Quantization:
    """NVIDIA ModelOpt, by the name of its algorithm."""
    algorithm = (given.text("quant_algo") or "").upper()
    if "NVFP4" in algorithm or (not algorithm and method == "modelopt_fp4"):
        return Quantization(method, 4, group_size=_read_group_size(given) or 16, scale_bits=8)
    if algorithm.startswith("MXFP8"):
        return _read_mxfp8(method, given)
    if algorithm.startswith("FP8"):
        block = (128, 128) if "PB" in algorithm else None
        return Quantization(method, 8, block=block)
    if algorithm.startswith("W4A16"):
        return Quantization(
            method, 4, group_size=_read_group_size(given), scale_bits=16, is_float=False
        )
    return Quantization(method, _UNKNOWN_BITS)


def _read_quark(method: str, given: ConfigFields) -> Quantization:
    """AMD Quark: one scheme for all layers, element type and group size."""
    scheme = given.nested("global_quant_config")
    weight = None if scheme is None else scheme.nested("weight")
    if weight is None:
        return Quantization(method, _UNKNOWN_BITS)
    dtype = weight.text("dtype") or ""
    group_size = _read_group_size(weight)
    if dtype.startswith("fp8"):
        return Quantization(method, 8, group_size=group_size)
    if dtype.startswith(("fp4", "mxfp4")):
        return Quantization(method, 4, group_size=group_size or 32, scale_bits=8)
    if dtype.startswith(("int4", "uint4")):
        return Quantization(method, 4, group_size=group_size, scale_bits=20, is_float=False)
    if dtype.startswith(("int8", "uint8")):
        return Quantization(method, 8, group_size=group_size, is_float=False)
    return Quantization(method, _UNKNOWN_BITS)


def _read_bitsandbytes(method: str, given: ConfigFields) -> Quantization:
    """bitsandbytes: NF4 with a 32-bit scale every 64 weights, or 8 bits with one a channel."""
    if given.flag("load_in_4bit", "_load_in_4bit"):
        return Quantization(method, 4, group_size=64)
    return Quantization(method, 8, is_float=False)


_STORED: Final = {
    "fp8": _read_fp8,
    "fbgemm_fp8": _read_fp8,
    "deepseek_v4_fp8": _read_fp8,
    "compressed-tensors": _read_compressed_tensors,
    "mxfp4": _read_mxfp4,
    "gpt_oss_mxfp4": _read_mxfp4,
    "mxfp8": _read_mxfp8,
    "modelopt": _read_modelopt,
    "modelopt_fp4": _read_modelopt,
    "modelopt_mxfp8": _read_modelopt,
    "quark": _read_quark,
    "bitsandbytes": _read_bitsandbytes,
}
"""Readers by method; any other method is read as AWQ and GPTQ are."""
