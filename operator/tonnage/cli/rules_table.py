"""Precisions by architecture, as the compatibility rules of the default release have them."""

from collections.abc import Mapping
from typing import Any, Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.config import parse_config
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.compatibility import judge_compatibility
from tonnage.fit.model import EngineOptions

_MODEL: Final = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
_MAX_MODEL_LEN: Final = 8192


def _compressed(bits: int, activations: Mapping[str, Any] | None) -> Mapping[str, Any]:
    weights = {"num_bits": bits, "type": "int", "group_size": 128 if bits == 4 else None}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights, "input_activations": activations}},
    }


_COLUMNS: Final[Mapping[str, tuple[Mapping[str, Any] | None, str]]] = {
    "16-bit": (None, "auto"),
    "FP8": ({"quant_method": "fp8"}, "auto"),
    "FP8 in blocks": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "auto"),
    "W8A8-INT8": (_compressed(8, {"num_bits": 8, "type": "int"}), "auto"),
    "W4A16 (AWQ, GPTQ)": ({"quant_method": "awq", "bits": 4, "group_size": 128}, "auto"),
    "W4A8-FP8": (_compressed(4, {"num_bits": 8, "type": "float"}), "auto"),
    "MXFP4": ({"quant_method": "mxfp4"}, "auto"),
    "MXFP8": ({"quant_method": "mxfp8"}, "auto"),
    "NVFP4": ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "auto"),
    "FP8 KV cache": (None, "fp8"),
}
"""What each column shows: the checkpoint's quantisation and the type of the KV cache."""


def precision_table(catalog: Catalog) -> str:
    """A Markdown table: architectures of the catalogue against precisions, for a dense model."""
    by_arch: dict[str, list[Accelerator]] = {}
    for accelerator in catalog.accelerators.values():
        if accelerator.supported:
            by_arch.setdefault(accelerator.arch, []).append(accelerator)
    lines = [
        f"| architecture | {' | '.join(_COLUMNS)} |",
        f"|---|{'---|' * len(_COLUMNS)}",
    ]
    for arch, (first, *_) in sorted(by_arch.items()):
        cells = [_cell(first, *column, catalog) for column in _COLUMNS.values()]
        lines.append(f"| `{arch}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(
    accelerator: Accelerator,
    stored: Mapping[str, Any] | None,
    kv_cache_dtype: str,
    catalog: Catalog,
) -> str:
    quantization = {} if stored is None else {"quantization_config": stored}
    options = EngineOptions(
        f"v{catalog.default_release}", _MAX_MODEL_LEN, kv_cache_dtype=kv_cache_dtype
    )
    judged = judge_compatibility(
        Checkpoint(parse_config({**_MODEL, **quantization})), accelerator, options, (), catalog
    )
    if judged.refusals:
        return "refused"
    if not judged.settings.is_empty:
        return "setting"
    return "warned" if judged.warnings else "yes"
