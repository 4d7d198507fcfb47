"""From a model's config.json to its shape."""

import json
import re
from collections.abc import Mapping
from typing import Final

from tonnage.catalog.architectures import Families
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.decoder import LayerStack, read_layer_stack
from tonnage.checkpoint.exclusions import Exclusions
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.mixers import as_dtype, read_hidden_size
from tonnage.checkpoint.model import (
    CheckpointError,
    DecoderLayer,
    DType,
    ModelShape,
    UnsupportedArchitectureError,
)
from tonnage.checkpoint.quantization import read_ignored, read_quantization
from tonnage.checkpoint.rope import read_rope_caches
from tonnage.checkpoint.towers import read_towers

MAX_CONFIG_BYTES: Final = 4 * 1024 * 1024
"""Largest config.json that is read; those of published models stay below 100 KB."""

MAX_LAYERS: Final = 512
"""Most layers a model may have; published models stay below 150."""

_TEXT_CONFIGS: Final = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where multimodal models keep the config of their language model."""


def parse_config_text(text: str | bytes) -> ModelShape:
    """Return the shape that the text of a config.json describes.

    Raises CheckpointError for what is no JSON object of at most MAX_CONFIG_BYTES, repeats a key or
    holds NaN or an infinity, and whatever `parse_config` raises.
    """
    if len(text) > MAX_CONFIG_BYTES:
        raise CheckpointError(f"config.json is larger than {MAX_CONFIG_BYTES} bytes")
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        config = json.loads(
            decoded, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant
        )
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
    text = _language_model(whole)
    families = load_catalog().architectures.families
    layers = text.positive(
        "num_hidden_layers", "n_layer", "n_layers", "num_layers", limit=MAX_LAYERS
    )
    quantized = whole if "quantization_config" in whole else text
    exclusions = Exclusions(read_ignored(quantized))
    stack = read_layer_stack(text, layers, families, exclusions)
    positions = text.positive(
        "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", default=2048
    )
    return ModelShape(
        architecture=architecture,
        model_type=text.text("model_type") or whole.text("model_type") or "",
        dtype=_read_dtype(whole, text),
        hidden_size=read_hidden_size(text),
        vocab_size=text.positive("vocab_size"),
        tie_word_embeddings=_read_tied(whole, text, families),
        max_position_embeddings=positions,
        layer_kinds=stack.kinds,
        layer_order=stack.order,
        quantization=read_quantization(quantized),
        draft_layers=_read_draft_layers(text, stack),
        towers=read_towers(whole),
        rope_caches=read_rope_caches(text, positions, stack.kinds),
    )


def _read_draft_layers(text: ConfigFields, stack: LayerStack) -> tuple[DecoderLayer, ...]:
    """Layers for multi-token prediction: as the last layer of the model is."""
    count = text.count("num_nextn_predict_layers", "mtp_num_hidden_layers")
    return (stack.kinds[stack.order[-1]],) * min(count, MAX_LAYERS)


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The object, refused when a key appears twice: readers disagree on which one counts."""
    unique: dict[str, object] = {}
    for name, value in pairs:
        if name in unique:
            raise CheckpointError(f"config.json has the key {name[:64]!r} twice")
        unique[name] = value
    return unique


def _refuse_constant(name: str) -> object:
    raise CheckpointError(f"config.json holds {name}: expected finite numbers")


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
    """The language model's part: the config itself, or what a multimodal config nests."""
    if "hidden_size" in whole and "num_hidden_layers" in whole:
        return whole
    nested = whole.nested(*_TEXT_CONFIGS)
    if nested is None:
        return whole
    return nested.nested("text_config") or nested


def _read_tied(whole: ConfigFields, text: ConfigFields, families: Families) -> bool:
    """Whether the embeddings double as output head; the outer config decides, then the family."""
    family = text.text("model_type") or whole.text("model_type") or ""
    inner = text.flag("tie_word_embeddings", default=family in families.tied)
    return whole.flag("tie_word_embeddings", default=inner)


def _read_dtype(whole: ConfigFields, text: ConfigFields) -> DType:
    """Element type of unquantised tensors; bfloat16 where the config is silent."""
    name = whole.text("torch_dtype", "dtype") or text.text("torch_dtype", "dtype") or "auto"
    return as_dtype(whole, "torch_dtype", name)
