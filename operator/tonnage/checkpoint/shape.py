"""Parse a model's config.json into its shape."""

import re
from collections.abc import Mapping
from typing import Final

from tonnage.catalog.load import load_catalog
from tonnage.catalog.models.config_defaults import load_config_defaults
from tonnage.catalog.models.families import Families, Family
from tonnage.checkpoint.config.attention import read_hidden_size
from tonnage.checkpoint.config.context import read_context_lengths
from tonnage.checkpoint.config.mixers import parse_dtype
from tonnage.checkpoint.config.rope import read_rope_caches
from tonnage.checkpoint.decoder import read_layer_stack
from tonnage.checkpoint.encoders.encoders import read_encoders
from tonnage.checkpoint.fields import ConfigFields, parse_object
from tonnage.checkpoint.model import (
    CheckpointError,
    DecoderLayer,
    DType,
    Encoder,
    ModelShape,
    RopeCache,
    UnsupportedArchitectureError,
)
from tonnage.checkpoint.mtp import read_mtp_layers
from tonnage.checkpoint.quantization.linear_formats import read_module_formats
from tonnage.checkpoint.quantization.module_formats import ModuleFormats

MAX_CONFIG_BYTES: Final = 4 * 1024 * 1024
"""Largest config.json in bytes; those of published models stay below 100 KB."""

MAX_LAYERS: Final = 512
"""Most layers a model may have; published models stay below 150."""

_TEXT_CONFIGS: Final = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where multimodal models nest the config of their language model."""


_POSITIONS: Final = (
    "model_max_length",  # Cohere
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
)
"""Names of the number of tabulated positions, in order of precedence."""


def parse_config_text(text: str | bytes) -> ModelShape:
    """Return the shape that the text of a config.json describes.

    Infinity and NaN, which transformers writes where a state space has no limit, count as null.
    Raises CheckpointError unless the text is a JSON object of at most MAX_CONFIG_BYTES without
    duplicate keys, and what `parse_config` raises.
    """
    return parse_config(parse_object(text, "config.json", MAX_CONFIG_BYTES))


def parse_config(config: Mapping[str, object]) -> ModelShape:
    """Return the shape that a config.json describes.

    Raises CheckpointError naming field, value and expectation, UnsupportedArchitectureError for
    models that are not decoder-only transformers or that Tonnage cannot size.
    """
    root = ConfigFields(config)
    architecture = _read_architecture(root)
    text_config = _with_defaults(_with_block_configs(_find_text_config(root)))
    families = load_catalog().architectures.families
    layers = text_config.positive(
        "num_hidden_layers",
        "n_layer",
        "n_layers",
        "num_layers",
        default=len(text_config.names("layers_block_type")) or None,  # Nemotron-H
        limit=MAX_LAYERS,
    )
    quantized = root if "quantization_config" in root else text_config
    formats = read_module_formats(quantized)
    stack = read_layer_stack(text_config, layers, families, formats)
    family = families.of(text_config.text("model_type") or "")
    hidden_size = read_hidden_size(text_config)
    positions = text_config.positive(*_POSITIONS, default=2048)
    context = read_context_lengths(text_config)
    encoders = _read_encoders(architecture, root, hidden_size, formats)
    return ModelShape(
        architecture=architecture,
        model_type=text_config.text("model_type") or root.text("model_type") or "",
        dtype=_read_dtype(root, text_config),
        hidden_size=hidden_size,
        vocab_size=text_config.positive("vocab_size", "padded_vocab_size"),
        tie_word_embeddings=_ties_embeddings(root, text_config, families),
        max_position_embeddings=context.longest,
        layer_kinds=stack.kinds,
        layer_order=stack.order,
        quantization=formats.main,
        lm_head=formats.head,
        draft_layers=read_mtp_layers(text_config, hidden_size, stack, formats, family),
        encoders=encoders,
        rope_caches=_read_rope_caches(architecture, text_config, positions, stack.kinds),
        position_embeddings=_count_position_rows(positions, family),
        stream_projections=2 * max(0, text_config.count("altup_num_inputs") - 1),  # Gemma 3n
        residual_streams=text_config.positive("hc_mult", default=1),  # DeepSeek-V4
        default_context=context.default,
        multiplied_context=context.multiplied,
        estimated=_explain_estimate(architecture, encoders),
    )


def _read_encoders(
    architecture: str, root: ConfigFields, hidden_size: int, formats: ModuleFormats
) -> tuple[Encoder, ...]:
    """Return the encoders, none for a class that builds only the language model."""
    architectures = load_catalog().architectures
    if architecture in architectures.text_only:
        return ()
    return read_encoders(root, hidden_size, architectures.families, formats)


def _read_rope_caches(
    architecture: str, text_config: ConfigFields, positions: int, kinds: tuple[DecoderLayer, ...]
) -> tuple[RopeCache, ...]:
    """Return the cosine and sine tables; models that run transformers' code have none."""
    architectures = load_catalog().architectures
    if architectures.runs_transformers_code(architecture):
        return ()
    family = architectures.families.of(text_config.text("model_type") or "")
    return read_rope_caches(text_config, positions, kinds, family)


def _count_position_rows(positions: int, family: Family) -> int:
    """Return the rows of a learned position table, 0 without one."""
    return 0 if family.position_rows is None else positions + family.position_rows


def _explain_estimate(architecture: str, encoders: tuple[Encoder, ...]) -> str | None:
    """Return why the shape is an estimate, None for a known class."""
    if not load_catalog().architectures.known(architecture):
        return (
            f"{architecture} is not known: it counts as a decoder with the layers that its "
            "config.json names, each as large as usual, and with keys and values for the whole "
            "context, or for the window it names"
        )
    if any(encoder.estimated for encoder in encoders):
        return (
            f"an encoder of {architecture} is of a kind that is not known: it counts as one of the "
            "usual form, whole on every GPU"
        )
    return None


def _read_architecture(root: ConfigFields) -> str:
    names = root.names("architectures")
    if not names:
        raise CheckpointError(
            "architectures is missing: expected a list with the model's class, "
            'for example ["LlamaForCausalLM"]'
        )
    name = names[0]
    if not re.fullmatch(r"\w{1,128}", name):
        raise root.invalid("architectures", names, "the name of a model class")
    reason = load_catalog().architectures.unplannable(name)
    if root.flag("is_encoder_decoder"):
        reason = (
            "it has an encoder that a decoder attends to, whose memory Tonnage cannot calculate"
        )
    if reason is not None:
        raise UnsupportedArchitectureError(f"architecture {name} cannot be planned: {reason}")
    return name


def _find_text_config(root: ConfigFields) -> ConfigFields:
    """Return the language model's config: the root config, or one nested in a multimodal config.

    A nested config without a `model_type` has that of the root config (MiniMax-M3).
    """
    if "hidden_size" in root and "num_hidden_layers" in root:
        return root
    nested = root.nested(*_TEXT_CONFIGS)
    if nested is None:
        return root
    text_config = nested.nested("text_config") or nested
    if "model_type" in text_config or "model_type" not in root:
        return text_config
    return text_config.with_value("model_type", root.value("model_type"))


def _with_defaults(text_config: ConfigFields) -> ConfigFields:
    """Return the config with the defaults that transformers has for its `model_type`."""
    return text_config.completed_by(load_config_defaults().of(text_config.text("model_type") or ""))


def _with_block_configs(text_config: ConfigFields) -> ConfigFields:
    """Return the config with the fields of its nested block configs added (DBRX)."""
    for name in ("attn_config", "ffn_config"):
        block = text_config.nested(name)
        if block is not None:
            text_config = block.overridden_by(text_config)
    return text_config


def _ties_embeddings(root: ConfigFields, text_config: ConfigFields, families: Families) -> bool:
    """Return whether the output head shares the embeddings; the root config takes precedence."""
    family = families.of(text_config.text("model_type") or root.text("model_type") or "")
    default = text_config.flag("tie_word_embeddings", default=family.tied)
    return root.flag("tie_word_embeddings", default=default) and not family.own_head


def _read_dtype(root: ConfigFields, text_config: ConfigFields) -> DType:
    """Return the element type of unquantised tensors, bfloat16 by default."""
    name = root.text("torch_dtype", "dtype") or text_config.text("torch_dtype", "dtype") or "auto"
    return parse_dtype(root, "torch_dtype", name)
