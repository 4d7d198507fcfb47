"""Read what a LoRA adapter is from its adapter_config.json, and refuse what vLLM does not load."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.checkpoint.fields import ConfigFields, parse_object
from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.tensor_table import StoredTensor, TensorTable

ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"

MAX_ADAPTER_CONFIG_BYTES: Final = 256 * 1024
"""Largest adapter_config.json in bytes; published ones have some kilobytes."""

_ATTENTION_INPUT: Final = re.compile(
    r"base_model\.model\.(model\.)?layers\.\*\.self_attn\.[qkv]_proj\.lora_A(\.default)?\.weight"
)
"""Rows of the tensor table whose second dimension is the hidden size of a language model: PEFT
saves lora_A as [rank, inputs]. Encoders, which have other widths, are below another prefix."""

_LOADED: Final = re.compile(
    r"(.+\.)?(lora_[AB]\.weight|lora_embedding_[AB]|(score|classifier)\.(weight|bias))"
    r"|.+\.(embed_tokens|lm_head)\.base_layer\.weight"
    r"|(.+\.)?mtp\..+"
)
"""Tensors that vLLM loads, or leaves out: it fails at all others. Source: vLLM 0.32.0,
lora/utils.py parse_fine_tuned_lora_name and is_base_embedding_weights, and lora_skip_prefixes of
the model classes."""

_SHOWN_CHARS: Final = 120
_MAX_RANK: Final = 1 << 16
_MAX_PATTERNS: Final = 4096

_REFUSED: Final = {
    "use_dora": "DoRA",
    "lora_bias": "biases of LoRA layers",
    "alora_invocation_tokens": "activated LoRA",
    "layer_replication": "replicated layers",
    "use_bdlora": "block-diagonal LoRA",
    "use_qalora": "QA-LoRA",
    "trainable_token_indices": "retrained tokens",
}
"""Features of PEFT that vLLM does not load, by field. Source: vLLM 0.32.0, lora/peft_helper.py
_validate_features; so are the two lists below. It fails at the tensors of retrained tokens."""

_SAVED_MODULES: Final = frozenset({"classifier", "score"})
_PLAIN_INITS: Final = frozenset({"gaussian", "eva", "orthogonal", "mica", "lora_ga"})


@dataclass(frozen=True, slots=True)
class AdapterFacts:
    """What an adapter is.

    `rank` is the largest of its layers. `target_modules` are the names of the layers it changes, ()
    where the config has a pattern instead, or also other parts of the model. `base_model` is the
    model that it was trained on, None where it names none. `dtypes` are the safetensors dtypes of
    its tensors and `weights_bytes` their size, () and None without safetensors headers. `revision`
    is the commit, None without one.
    `hidden_size` is the width of the base model by the shapes of the tensors, None where they do
    not show it. `has_patterns`: some layers have a rank or a scale of their own. `config` is the
    text of adapter_config.json, for times when no Hub answers.
    """

    rank: int
    target_modules: tuple[str, ...] = ()
    base_model: str | None = None
    dtypes: tuple[str, ...] = ()
    weights_bytes: int | None = None
    revision: str | None = None
    hidden_size: int | None = None
    has_patterns: bool = False
    config: str | None = dataclasses.field(default=None, compare=False, repr=False)


def parse_adapter(
    config: str | bytes, tensors: TensorTable | None = None, revision: str | None = None
) -> AdapterFacts:
    """Return what the text of an adapter_config.json and the tensors of its weights describe.

    Raises CheckpointError naming the field, for invalid values and for what vLLM does not load.
    """
    fields = ConfigFields(parse_object(config, ADAPTER_CONFIG, MAX_ADAPTER_CONFIG_BYTES))
    _refuse_other_methods(fields)
    _refuse_features(fields)
    if not fields.value("target_modules") and not fields.value("target_parameters"):
        raise CheckpointError(f"{ADAPTER_CONFIG}: target_modules is missing")
    _refuse_scaling(fields)
    rows = tensors.rows if tensors else ()
    _refuse_tensors(rows)
    return AdapterFacts(
        rank=max(fields.positive("r", limit=_MAX_RANK), *_pattern_ranks(fields), 1),
        target_modules=_read_targets(fields),
        base_model=(fields.text("base_model_name_or_path") or "")[:512] or None,
        dtypes=tuple(sorted({row.dtype for row in rows})),
        weights_bytes=tensors.total_bytes if tensors else None,
        revision=revision,
        hidden_size=_read_hidden_size(rows),
        has_patterns=bool(fields.value("rank_pattern") or fields.value("alpha_pattern")),
        config=config if isinstance(config, str) else config.decode("utf-8-sig", errors="replace"),
    )


def _read_hidden_size(rows: Sequence[StoredTensor]) -> int | None:
    """The width that all adapted query, key and value projections of the decoder read."""
    widths = {
        row.shape[1] for row in rows if _ATTENTION_INPUT.fullmatch(row.name) and len(row.shape) == 2
    }
    return widths.pop() if len(widths) == 1 else None


def _refuse_other_methods(fields: ConfigFields) -> None:
    method = fields.text("peft_type")
    if method is not None and method.upper() != "LORA":
        raise fields.invalid("peft_type", method, "LORA")


def _refuse_features(fields: ConfigFields) -> None:
    for field, feature in _REFUSED.items():
        if fields.value(field):
            raise CheckpointError(f"{ADAPTER_CONFIG}: {field} is set: vLLM does not load {feature}")
    bias = fields.text("bias") or "none"
    if bias != "none":
        raise fields.invalid("bias", bias, "none: vLLM loads no biases of adapters")
    saved = fields.value("modules_to_save")
    if saved and not set(fields.names("modules_to_save")) <= _SAVED_MODULES:
        expected = "none, or classifier and score: vLLM loads no other whole layers"
        raise fields.invalid("modules_to_save", saved, expected)
    init = fields.value("init_lora_weights")
    if isinstance(init, str) and init.lower() not in _PLAIN_INITS:
        expected = (
            "an initialization that leaves the base model as it is; convert the adapter with"
            " path_initial_model_for_weight_conversion of PEFT"
        )
        raise fields.invalid("init_lora_weights", init, expected)


def _refuse_scaling(fields: ConfigFields) -> None:
    """vLLM has no default for lora_alpha, by which it scales the weights."""
    alpha = fields.value("lora_alpha")
    if not isinstance(alpha, int | float):
        raise fields.invalid("lora_alpha", alpha, "a number: vLLM has no default")


def _refuse_tensors(rows: Sequence[StoredTensor]) -> None:
    """Refuse whole layers, which PEFT saves next to the adapter without a field that says so, such
    as the embeddings of a vocabulary that was resized."""
    for row in rows:
        if not _LOADED.fullmatch(row.name):
            raise CheckpointError(
                f"{ADAPTER_WEIGHTS}: tensor {row.name[-_SHOWN_CHARS:]!r} is not one of a LoRA"
                " layer: vLLM loads no others; save the adapter without it, whole embeddings with"
                " save_embedding_layers=False"
            )


def _pattern_ranks(fields: ConfigFields) -> tuple[int, ...]:
    patterns = fields.value("rank_pattern")
    if patterns is None:
        return ()
    if not isinstance(patterns, Mapping) or len(patterns) > _MAX_PATTERNS:
        raise fields.invalid("rank_pattern", patterns, "ranks by the names of layers")
    ranks = tuple(patterns.values())
    for rank in ranks:
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 < rank <= _MAX_RANK:
            raise fields.invalid("rank_pattern", rank, f"ranks from 1 to {_MAX_RANK}")
    return ranks


def _read_targets(fields: ConfigFields) -> tuple[str, ...]:
    """The last parts of the names of the layers; () for a pattern, as all-linear, and with
    parameters or whole layers next to them."""
    others = fields.value("target_parameters") or fields.value("modules_to_save")
    if others or not isinstance(fields.value("target_modules"), list):
        return ()
    return tuple(sorted({name.rpartition(".")[2] for name in fields.names("target_modules")}))
