"""Read the formats of a checkpoint's linear layers from `quantization_config` of any method."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import CheckpointError, Quantization
from tonnage.checkpoint.quantization.module_formats import FormatRule, ModuleFormats
from tonnage.checkpoint.quantization.module_names import ModuleNames
from tonnage.checkpoint.quantization.module_rules import Schemes, read_schemes

_IGNORED: Final = (
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude_modules",
    "exclude",
    "llm_int8_skip_modules",
)
"""Fields in which the methods list the layers that keep 16 bits."""


_ENCODER: Final = re.compile(r"visual|vision|audio|vit")
"""Matches the name of an encoder."""


def read_module_formats(config: ConfigFields) -> ModuleFormats:
    """Return the format of each linear layer.

    Raises CheckpointError naming field and expectation.
    """
    schemes = _read_schemes(config)
    if schemes is None:
        return ModuleFormats()
    ignored_layers = _read_ignored_layers(config)
    unquantized: FormatRule = (ModuleNames(ignored_layers), None)
    return ModuleFormats(
        schemes.main,
        rules=(unquantized, *_read_expert_rules(config, schemes.main), *schemes.rules),
        default=schemes.default,
        head=schemes.head,
        mtp_unquantized=any(_matches_mtp(entry) for entry in ignored_layers),
        encoders=_find_encoder_scheme(schemes, ignored_layers),
    )


def _find_encoder_scheme(schemes: Schemes, ignored_layers: Sequence[str]) -> Quantization | None:
    """Return the scheme of the encoders' layers.

    FP8 matches ignored layers only by their full names (vLLM 0.32.0,
    quantization/utils/quant_utils.py is_layer_skipped): the name of an encoder leaves its layers
    quantised. The patterns of other methods always include the encoders that a model has.
    """
    if schemes.main.method != "fp8":
        return None
    # A layer of an encoder: the part before the last dot names the encoder.
    is_ignored = any(
        _ENCODER.search(entry.rpartition(".")[0]) is not None for entry in ignored_layers
    )
    return None if is_ignored else schemes.main


def _matches_mtp(entry: str) -> bool:
    """Return whether an ignored name matches all MTP layers, by Qwen's names."""
    return entry.removeprefix("re:").lstrip("^.*").startswith("mtp")


def _read_ignored_layers(config: ConfigFields) -> tuple[str, ...]:
    """Return names and patterns of the layers that a quantised checkpoint keeps in 16 bits."""
    quantization = _find_quantization_config(config)
    if quantization is None:
        return ()
    scheme = quantization.nested("quantization") or quantization
    return scheme.names(*_IGNORED)


def _find_quantization_config(config: ConfigFields) -> ConfigFields | None:
    return config.nested("quantization_config", "compression_config")


def _read_schemes(config: ConfigFields) -> Schemes | None:
    quantization = _find_quantization_config(config)
    if quantization is None:
        return None
    # hf_quant_config.json nests all fields but the producer one level deeper.
    scheme = quantization.nested("quantization") or quantization
    method = (quantization.text("quant_method") or _infer_method(quantization)).lower()
    if not method:
        raise CheckpointError("quantization_config.quant_method is missing: expected a method")
    schemes = read_schemes(method, scheme)
    return _with_kv_cache_bits(schemes, _read_kv_cache_bits(quantization, scheme))


def _infer_method(quantization: ConfigFields) -> str:
    """Recognise ModelOpt by its fields; some of its releases omit the method."""
    is_modelopt = "quantization" in quantization or "quant_algo" in quantization
    return "modelopt" if is_modelopt else ""


def _with_kv_cache_bits(schemes: Schemes, kv_cache_bits: int | None) -> Schemes:
    """Return the schemes with the KV cache format that the checkpoint declares for all."""
    if kv_cache_bits is None:
        return schemes

    def update(scheme: Quantization | None) -> Quantization | None:
        return None if scheme is None else replace(scheme, kv_cache_bits=kv_cache_bits)

    return Schemes(
        main=replace(schemes.main, kv_cache_bits=kv_cache_bits),
        rules=tuple((names, update(scheme)) for names, scheme in schemes.rules),
        default=update(schemes.default),
        head=update(schemes.head),
    )


def _read_expert_rules(config: ConfigFields, main: Quantization) -> tuple[FormatRule, ...]:
    """Return the rule for DeepSeek-V4, whose experts are MXFP4 by default and other layers FP8.

    `expert_dtype` of the config changes this. Source: vllm/models/deepseek_v4/quant_config.py of
    0.32.0.
    """
    default = "fp4" if config.text("model_type") == "deepseek_v4" else None
    if (config.text("expert_dtype") or default) != "fp4":
        return ()
    scheme = Quantization(main.method, weight_bits=4, group_size=32, scale_bits=8)
    return ((ModuleNames(["mlp.experts"]), scheme),)


def _read_kv_cache_bits(quantization: ConfigFields, scheme: ConfigFields) -> int | None:
    """Return the element size of the KV cache that the checkpoint has scales for."""
    cache_scheme = quantization.value("kv_cache_scheme")
    if isinstance(cache_scheme, str):
        return 8 if cache_scheme.upper() == "FP8" else None
    if cache_scheme is not None:
        cache_fields = quantization.nested("kv_cache_scheme")
        return None if cache_fields is None else cache_fields.positive("num_bits", default=8)
    algorithm = scheme.text("kv_cache_quant_algo")
    return 8 if (algorithm or "").upper() == "FP8" else None
