"""From a model's config.json to its shape."""

import json
import re
from collections.abc import Mapping
from typing import Final

from tonnage.catalog.config_defaults import load_config_defaults
from tonnage.catalog.families import Families, Family
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.attention import read_hidden_size
from tonnage.checkpoint.context import read_context_lengths
from tonnage.checkpoint.decoder import read_layer_stack
from tonnage.checkpoint.drafts import read_draft_layers
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.mixers import as_dtype
from tonnage.checkpoint.model import (
    CheckpointError,
    DecoderLayer,
    DType,
    ModelShape,
    RopeCache,
    Tower,
    UnsupportedArchitectureError,
)
from tonnage.checkpoint.module_formats import ModuleFormats
from tonnage.checkpoint.quantization import read_module_formats
from tonnage.checkpoint.rope import read_rope_caches
from tonnage.checkpoint.towers import read_towers

MAX_CONFIG_BYTES: Final = 4 * 1024 * 1024
"""Largest config.json that is read; those of published models stay below 100 KB."""

MAX_LAYERS: Final = 512
"""Most layers a model may have; published models stay below 150."""

_TEXT_CONFIGS: Final = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where multimodal models keep the config of their language model."""


_POSITIONS: Final = (
    "model_max_length",  # Cohere
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
)
"""Names of the positions that are tabulated, the one that counts first."""


def parse_config_text(text: str | bytes) -> ModelShape:
    """Return the shape that the text of a config.json describes.

    Infinity and NaN, which transformers writes where a state space has no limit, say nothing of the
    shape and count as null. Raises CheckpointError for what is no JSON object of at most
    MAX_CONFIG_BYTES or repeats a key, and whatever `parse_config` raises.
    """
    if len(text) > MAX_CONFIG_BYTES:
        raise CheckpointError(f"config.json is larger than {MAX_CONFIG_BYTES} bytes")
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        config = json.loads(decoded, object_pairs_hook=_unique_keys, parse_constant=lambda _: None)
    except CheckpointError:
        raise
    except RecursionError as error:
        raise CheckpointError("config.json is nested too deeply") from error
    except ValueError as error:  # malformed JSON, wrong encoding, an integer of thousands of digits
        why = str(error).partition(";")[0][:200]  # what follows is advice for programs
        raise CheckpointError(f"config.json is not valid JSON: {why}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"config.json holds a {type(config).__name__}: expected an object")
    return parse_config(config)


def parse_config(config: Mapping[str, object]) -> ModelShape:
    """Return the shape that a config.json describes.

    Raises CheckpointError naming field, value and expectation, UnsupportedArchitectureError for
    what is no decoder-only transformer or cannot be sized.
    """
    whole = ConfigFields(config)
    architecture = _read_architecture(whole)
    text = _completed(_flattened(_language_model(whole)))
    families = load_catalog().architectures.families
    layers = text.positive(
        "num_hidden_layers",
        "n_layer",
        "n_layers",
        "num_layers",
        default=len(text.names("layers_block_type")) or None,  # Nemotron-H
        limit=MAX_LAYERS,
    )
    quantized = whole if "quantization_config" in whole else text
    formats = read_module_formats(quantized)
    stack = read_layer_stack(text, layers, families, formats)
    family, hidden_size = families.of(text.text("model_type") or ""), read_hidden_size(text)
    positions, context = text.positive(*_POSITIONS, default=2048), read_context_lengths(text)
    towers = _read_towers(architecture, whole, hidden_size, formats)
    return ModelShape(
        architecture=architecture,
        model_type=text.text("model_type") or whole.text("model_type") or "",
        dtype=_read_dtype(whole, text),
        hidden_size=hidden_size,
        vocab_size=text.positive("vocab_size", "padded_vocab_size"),
        tie_word_embeddings=_read_tied(whole, text, families),
        max_position_embeddings=context.longest,
        layer_kinds=stack.kinds,
        layer_order=stack.order,
        quantization=formats.main,
        lm_head=formats.head,
        draft_layers=read_draft_layers(text, hidden_size, stack, formats, family),
        towers=towers,
        rope_caches=_read_rope_caches(architecture, text, positions, stack.kinds),
        position_embeddings=_read_position_rows(positions, family),
        stream_projections=2 * max(0, text.count("altup_num_inputs") - 1),  # Gemma 3n
        residual_streams=text.positive("hc_mult", default=1),  # DeepSeek-V4
        default_context=context.default,
        multiplied_context=context.multiplied,
        estimated=_read_doubt(architecture, towers),
    )


def _read_towers(
    architecture: str, whole: ConfigFields, hidden_size: int, formats: ModuleFormats
) -> tuple[Tower, ...]:
    """The encoders, none where the class is that of the language model alone."""
    architectures = load_catalog().architectures
    if architecture in architectures.text_only:
        return ()
    return read_towers(whole, hidden_size, architectures.families, formats)


def _read_rope_caches(
    architecture: str, text: ConfigFields, positions: int, kinds: tuple[DecoderLayer, ...]
) -> tuple[RopeCache, ...]:
    """Tables of cosines and sines; models that transformers' code runs compute them as they go."""
    architectures = load_catalog().architectures
    if architectures.runs_transformers_code(architecture):
        return ()
    family = architectures.families.of(text.text("model_type") or "")
    return read_rope_caches(text, positions, kinds, family)


def _read_position_rows(positions: int, family: Family) -> int:
    """Rows of a learned table of positions, 0 without one."""
    return 0 if family.position_rows is None else positions + family.position_rows


def _read_doubt(architecture: str, towers: tuple[Tower, ...]) -> str | None:
    """Why the shape is a guess, None for a class whose layers are known."""
    if not load_catalog().architectures.known(architecture):
        return (
            f"{architecture} is not known: it counts as a decoder with the layers that its "
            "config.json names, each as large as usual, and with keys and values for the whole "
            "context, or for the window it names"
        )
    if any(tower.estimated for tower in towers):
        return (
            f"an encoder of {architecture} is of a kind that is not known: it counts as one of the "
            "usual form, whole on every GPU"
        )
    return None


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The object, refused when a key appears twice: readers disagree on which one counts."""
    unique: dict[str, object] = {}
    for name, value in pairs:
        if name in unique:
            raise CheckpointError(f"config.json has the key {name[:64]!r} twice")
        unique[name] = value
    return unique


def _read_architecture(whole: ConfigFields) -> str:
    names = whole.names("architectures")
    if not names:
        raise CheckpointError(
            "architectures is missing: expected a list with the model's class, "
            'for example ["LlamaForCausalLM"]'
        )
    name = names[0]
    if not re.fullmatch(r"\w{1,128}", name):
        raise whole.wrong("architectures", names, "the name of a model class")
    reason = load_catalog().architectures.unplannable(name)
    if whole.flag("is_encoder_decoder"):
        reason = (
            "it has an encoder that a decoder attends to, whose memory Tonnage cannot calculate"
        )
    if reason is not None:
        raise UnsupportedArchitectureError(f"architecture {name} cannot be planned: {reason}")
    return name


def _language_model(whole: ConfigFields) -> ConfigFields:
    """The language model's part: the config itself, or what a multimodal config nests.

    A nested one that does not name its family is of the whole model's (MiniMax-M3).
    """
    if "hidden_size" in whole and "num_hidden_layers" in whole:
        return whole
    nested = whole.nested(*_TEXT_CONFIGS)
    if nested is None:
        return whole
    text = nested.nested("text_config") or nested
    if "model_type" in text or "model_type" not in whole:
        return text
    return text.having("model_type", whole.value("model_type"))


def _completed(text: ConfigFields) -> ConfigFields:
    """The fields with what transformers fills in for their family."""
    return text.completed_by(load_config_defaults().of(text.text("model_type") or ""))


def _flattened(text: ConfigFields) -> ConfigFields:
    """The fields with those of a block's own config beside them (DBRX)."""
    for name in ("attn_config", "ffn_config"):
        inner = text.nested(name)
        text = text if inner is None else inner.overridden_by(text)
    return text


def _read_tied(whole: ConfigFields, text: ConfigFields, families: Families) -> bool:
    """Whether the embeddings double as output head; the outer config decides, then the family."""
    family = text.text("model_type") or whole.text("model_type") or ""
    known = families.of(family)
    inner = text.flag("tie_word_embeddings", default=known.tied)
    return whole.flag("tie_word_embeddings", default=inner) and not known.own_head


def _read_dtype(whole: ConfigFields, text: ConfigFields) -> DType:
    """Element type of unquantised tensors; bfloat16 where the config is silent."""
    name = whole.text("torch_dtype", "dtype") or text.text("torch_dtype", "dtype") or "auto"
    return as_dtype(whole, "torch_dtype", name)
