"""From a model's config.json to its shape."""

import json
import re
from collections.abc import Mapping
from typing import Final

from tonnage.catalog.architectures import Families
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.experts import find_expert_layers, read_experts
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.layers import read_layer_kinds
from tonnage.checkpoint.model import (
    CheckpointError,
    DType,
    LatentAttention,
    LinearAttention,
    ModelShape,
    SparseIndexer,
    UnsupportedArchitectureError,
)
from tonnage.checkpoint.quantization import read_quantization
from tonnage.checkpoint.vision import count_vision_parameters

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
    hidden_size = text.positive("hidden_size", "n_embd", "d_model")
    heads = text.positive("num_attention_heads", "n_head", "n_heads")
    intermediate_size = _read_intermediate_size(text, hidden_size)
    kinds = read_layer_kinds(text, layers, families)
    model_type = text.text("model_type") or whole.text("model_type") or ""
    experts = read_experts(text, layers, intermediate_size)
    expert_layers = find_expert_layers(text, layers) if experts else frozenset[int]()
    quantized = whole if "quantization_config" in whole else text
    return ModelShape(
        architecture=architecture,
        model_type=model_type,
        dtype=_read_dtype(whole, text),
        layers=layers,
        hidden_size=hidden_size,
        intermediate_size=text.positive("intermediate_size_mlp", default=intermediate_size),
        attention_heads=heads,
        kv_heads=_read_kv_heads(text, heads),
        head_dim=_read_head_dim(text, hidden_size, heads),
        vocab_size=text.positive("vocab_size"),
        tie_word_embeddings=_read_tied(whole, text, families),
        max_position_embeddings=text.positive(
            "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", default=2048
        ),
        latent_attention=_read_latent_attention(text),
        experts=experts,
        sliding_window=kinds.window,
        sliding_layers=kinds.sliding,
        linear_layers=kinds.linear,
        quantization=read_quantization(quantized, layers, expert_layers),
        gated_mlp=model_type not in families.ungated,
        linear_attention=_read_linear_attention(text) if kinds.linear else None,
        indexer=_read_indexer(text, layers),
        global_kv_heads=text.optional_positive("num_global_key_value_heads"),
        global_head_dim=text.optional_positive("global_head_dim"),
        attention_gate=text.flag("attn_output_gate", default=model_type == "qwen3_next"),
        nextn_layers=text.count("num_nextn_predict_layers", "mtp_num_hidden_layers"),
        vision_parameters=count_vision_parameters(whole),
    )


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


def _read_intermediate_size(text: ConfigFields, hidden_size: int) -> int:
    """Size of the MLP; where it is not given, the experts' or four times the hidden size.

    Llama 4 means its experts and names the size of dense layers apart.
    """
    given = text.optional_positive("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
    experts = text.optional_positive("moe_intermediate_size")
    return given or experts or 4 * hidden_size


def _read_kv_heads(text: ConfigFields, heads: int) -> int:
    default = 1 if text.flag("multi_query") else heads
    kv_heads = text.positive("num_key_value_heads", "num_kv_heads", "n_head_kv", default=default)
    if kv_heads > heads or heads % kv_heads:
        raise text.wrong(
            "num_key_value_heads", kv_heads, f"a divisor of {heads}, the attention heads"
        )
    return kv_heads


def _read_head_dim(text: ConfigFields, hidden_size: int, heads: int) -> int:
    given = text.optional_positive("head_dim")
    if given is None and hidden_size < heads:
        raise text.wrong("hidden_size", hidden_size, f"at least {heads}, the attention heads")
    return given or hidden_size // heads


def _read_tied(whole: ConfigFields, text: ConfigFields, families: Families) -> bool:
    """Whether the embeddings double as output head; the outer config decides, then the family."""
    family = text.text("model_type") or whole.text("model_type") or ""
    inner = text.flag("tie_word_embeddings", default=family in families.tied)
    return whole.flag("tie_word_embeddings", default=inner)


def _read_dtype(whole: ConfigFields, text: ConfigFields) -> DType:
    """Element type of unquantised tensors; bfloat16 where the config is silent."""
    name = whole.text("torch_dtype", "dtype") or text.text("torch_dtype", "dtype") or "auto"
    return _as_dtype(whole, "torch_dtype", name)


def _as_dtype(fields: ConfigFields, field: str, name: str) -> DType:
    known = {"auto": "bfloat16", "float": "float32", "half": "float16"}
    short = name.removeprefix("torch.")
    short = known.get(short, short)
    if short not in set(DType):
        raise fields.wrong(field, name, " or ".join(DType))
    return DType(short)


def _read_latent_attention(text: ConfigFields) -> LatentAttention | None:
    rank = text.optional_positive("kv_lora_rank")
    if rank is None:
        return None
    return LatentAttention(
        kv_lora_rank=rank,
        qk_rope_head_dim=text.positive("qk_rope_head_dim"),
        qk_nope_head_dim=text.positive("qk_nope_head_dim"),
        v_head_dim=text.positive("v_head_dim"),
        q_lora_rank=text.optional_positive("q_lora_rank"),
    )


def _read_linear_attention(text: ConfigFields) -> LinearAttention:
    state = text.text("mamba_ssm_dtype")
    return LinearAttention(
        key_heads=text.positive("linear_num_key_heads"),
        value_heads=text.positive("linear_num_value_heads"),
        key_head_dim=text.positive("linear_key_head_dim"),
        value_head_dim=text.positive("linear_value_head_dim"),
        conv_kernel=text.positive("linear_conv_kernel_dim"),
        state_dtype=None if state is None else _as_dtype(text, "mamba_ssm_dtype", state),
    )


def _read_indexer(text: ConfigFields, layers: int) -> SparseIndexer | None:
    """The indexer of sparse latent attention; GLM-5.2 shares one between several layers."""
    if "index_n_heads" not in text or "kv_lora_rank" not in text:
        return None
    types = text.names("indexer_types")[:layers]
    return SparseIndexer(
        layers=sum(kind == "full" for kind in types) if types else layers,
        heads=text.positive("index_n_heads"),
        head_dim=text.positive("index_head_dim"),
    )
