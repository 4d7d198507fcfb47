"""How a checkpoint's linear layers are quantised: `quantization_config` in all its dialects."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import CheckpointError, Quantization
from tonnage.checkpoint.module_formats import FormatRule, ModuleFormats
from tonnage.checkpoint.module_names import ModuleNames
from tonnage.checkpoint.module_rules import Schemes, read_schemes

_IGNORED: Final = (
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude_modules",
    "exclude",
    "llm_int8_skip_modules",
)
"""Where the methods list the layers that keep 16 bits."""


_TOWER: Final = re.compile(r"visual|vision|audio|vit")
"""In the name of an encoder."""


def read_module_formats(config: ConfigFields) -> ModuleFormats:
    """How each linear layer is stored. Raises CheckpointError naming field and expectation."""
    schemes = _read_schemes(config)
    if schemes is None:
        return ModuleFormats()
    ignored = _read_ignored(config)
    kept: FormatRule = (ModuleNames(ignored), None)
    return ModuleFormats(
        schemes.main,
        rules=(kept, *_expert_rules(config, schemes.main), *schemes.rules),
        otherwise=schemes.otherwise,
        head=schemes.head,
        drafts_kept=any(_names_drafts(entry) for entry in ignored),
        towers=_towers_format(schemes, ignored),
    )


def _towers_format(schemes: Schemes, ignored: Sequence[str]) -> Quantization | None:
    """How the layers of encoders are stored.

    FP8 knows exceptions by their full names only (vLLM 0.32.0, quantization/utils/quant_utils.py
    is_layer_skipped): the name of a tower as a whole leaves its layers quantised. The patterns of
    other methods speak of towers wherever there are any.
    """
    if schemes.main.method != "fp8":
        return None
    # The tower and a part of it: what stands before the last dot names the tower.
    kept = any(_TOWER.search(entry.rpartition(".")[0]) is not None for entry in ignored)
    return None if kept else schemes.main


def _names_drafts(entry: str) -> bool:
    """Whether an ignored name stands for all layers that predict ahead, as Qwen names them."""
    return entry.removeprefix("re:").lstrip("^.*").startswith("mtp")


def _read_ignored(config: ConfigFields) -> tuple[str, ...]:
    """Names and patterns of the layers that a quantised checkpoint keeps in 16 bits."""
    given = _given(config)
    if given is None:
        return ()
    dialect = given.nested("quantization") or given
    return dialect.names(*_IGNORED)


def _given(config: ConfigFields) -> ConfigFields | None:
    return config.nested("quantization_config", "compression_config")


def _read_schemes(config: ConfigFields) -> Schemes | None:
    given = _given(config)
    if given is None:
        return None
    inner = given.nested("quantization")
    method = (given.text("quant_method") or _unnamed_method(given)).lower()
    if not method:
        raise CheckpointError("quantization_config.quant_method is missing: expected a method")
    dialect = inner or given
    return _with_cache(read_schemes(method, dialect), _read_kv_cache_bits(given, dialect))


def _unnamed_method(given: ConfigFields) -> str:
    """ModelOpt's files name their producer or algorithm; some releases of it name no method.

    hf_quant_config.json has all but the producer one level deeper.
    """
    by_modelopt = "quantization" in given or "quant_algo" in given
    return "modelopt" if by_modelopt else ""


def _with_cache(schemes: Schemes, kv_cache_bits: int | None) -> Schemes:
    """The schemes with the KV cache that the checkpoint declares beside all of them."""
    if kv_cache_bits is None:
        return schemes

    def declare(stored: Quantization | None) -> Quantization | None:
        return None if stored is None else replace(stored, kv_cache_bits=kv_cache_bits)

    return Schemes(
        main=replace(schemes.main, kv_cache_bits=kv_cache_bits),
        rules=tuple((names, declare(stored)) for names, stored in schemes.rules),
        otherwise=declare(schemes.otherwise),
        head=declare(schemes.head),
    )


def _expert_rules(config: ConfigFields, main: Quantization) -> tuple[FormatRule, ...]:
    """DeepSeek-V4 stores its experts in MXFP4 beside FP8 unless it says otherwise.

    It says so outside of the scheme. Source: vllm/models/deepseek_v4/quant_config.py of 0.32.0.
    """
    usual = "fp4" if config.text("model_type") == "deepseek_v4" else None
    if (config.text("expert_dtype") or usual) != "fp4":
        return ()
    stored = Quantization(main.method, weight_bits=4, group_size=32, scale_bits=8)
    return ((ModuleNames(["mlp.experts"]), stored),)


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
