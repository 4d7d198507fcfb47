"""Derive the longest context of a request from config.json.

Source: vLLM 0.6.3 to 0.33.0, vllm/config/model.py _get_and_verify_max_len and, since 0.14,
vllm/transformers_utils/model_arch_config_convertor.py derive_max_model_len_and_key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tonnage.checkpoint.fields import MAX_COUNT, ConfigFields
from tonnage.checkpoint.model import CheckpointError

_LENGTH_FIELDS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""Fields for the longest context; the smallest value counts."""

_OVERRIDING_FIELD: Final = "model_max_length"
"""The field that takes precedence over all others (Cohere)."""

_DEFAULT_LENGTH: Final = 2048
"""vLLM's default in tokens for a config without a length."""

_YARN: Final = frozenset({"yarn", "deepseek_yarn", "deepseek_llama_scaling", "telechat3-yarn"})
_LONG_ROPE: Final = frozenset({"longrope", "su"})
_PRESCALED_KINDS: Final = _YARN | _LONG_ROPE | {"llama3"}
"""Kinds of scaling whose factor the fields above include; of other kinds they do not."""

_PRESCALED_FAMILY: Final = "gemma3"
"""The fields of model types with this in their name include the factor of every kind."""


@dataclass(frozen=True, slots=True)
class ContextLengths:
    """Context lengths in tokens.

    `longest` is the maximum of --max-model-len, `default` its default: with LongRoPE the original
    length; None where the config has no length and `longest` is vLLM's default. `multiplied`
    replaces both in releases that multiply the original length by YaRN's factor, None without YaRN.
    """

    longest: int
    default: int | None
    multiplied: int | None = None


def read_context_lengths(text_config: ConfigFields) -> ContextLengths:
    """Return the context lengths of a language model's config.

    Raises CheckpointError for out-of-range lengths and scaling factors.
    """
    lengths = [
        length
        for name in _LENGTH_FIELDS
        if (length := text_config.optional_positive(name)) is not None
    ]
    stated_length = text_config.optional_positive(_OVERRIDING_FIELD) or min(lengths, default=None)
    if stated_length is None:
        return ContextLengths(_DEFAULT_LENGTH, None)
    scalings = tuple(_read_scalings(text_config))
    factor = 1.0
    if _PRESCALED_FAMILY not in (text_config.text("model_type") or ""):
        unapplied = (scaling for scaling in scalings if not _has_kind(scaling, _PRESCALED_KINDS))
        factors = (scaling.number("factor", default=1.0) for scaling in unapplied)
        factor = next((factor for factor in factors if factor != 1), 1.0)
    longest = default = _check_length(stated_length * factor)
    if any(_has_kind(scaling, _LONG_ROPE) for scaling in scalings):
        default = text_config.positive("original_max_position_embeddings", default=longest)
    yarn = next((scaling for scaling in scalings if _has_kind(scaling, _YARN)), None)
    multiplied = None if yarn is None else _multiply_yarn(yarn, stated_length)
    return ContextLengths(longest, default, multiplied)


def _read_scalings(text_config: ConfigFields) -> Iterator[ConfigFields]:
    """Yield the parameters of rotary embeddings, for each kind of layers where they differ."""
    parameters = text_config.nested("rope_parameters", "rope_scaling")
    if parameters is not None:
        yield from parameters.children() or (parameters,)


def _multiply_yarn(scaling: ConfigFields, stated_length: int) -> int:
    original = scaling.positive("original_max_position_embeddings", default=stated_length)
    return _check_length(original * scaling.number("factor", default=1.0))


def _has_kind(scaling: ConfigFields, kinds: frozenset[str]) -> bool:
    return (scaling.text("rope_type", "type") or "default") in kinds


def _check_length(tokens: float) -> int:
    if not 1 <= tokens <= MAX_COUNT:
        raise CheckpointError(f"rope_scaling stretches the context to {tokens:.0f} tokens")
    return int(tokens)
