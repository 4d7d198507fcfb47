"""How long a request may be, by what a config.json says of it.

Source: vLLM 0.6.3 to 0.33.0, vllm/config/model.py _get_and_verify_max_len and, since 0.14,
vllm/transformers_utils/model_arch_config_convertor.py derive_max_model_len_and_key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tonnage.checkpoint.fields import MAX_COUNT, ConfigFields
from tonnage.checkpoint.model import CheckpointError

_NAMES: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""Names of the longest context; the smallest one counts."""

_ABOVE_ALL: Final = "model_max_length"
"""What stands in place of the other names (Cohere)."""

_ASSUMED: Final = 2048
"""What vLLM takes for a model whose config does not say."""

_YARN: Final = frozenset({"yarn", "deepseek_yarn", "deepseek_llama_scaling", "telechat3-yarn"})
_LONG_ROPE: Final = frozenset({"longrope", "su"})
_SCALED_ALREADY: Final = _YARN | _LONG_ROPE | {"llama3"}
"""Kinds of scaling whose factor the names above contain; those of other kinds they do not."""

_SCALED_FAMILY: Final = "gemma3"
"""Model types with this in their name have scaled whatever the kind."""


@dataclass(frozen=True, slots=True)
class ContextLengths:
    """Tokens of one request.

    `longest` is what --max-model-len may be, `default` what counts without it: with LongRoPE the
    length before it was stretched, None where the config says nothing and `longest` is what vLLM
    assumes. `multiplied` is what releases take for
    both that multiply the original length with the factor of YaRN, None without YaRN.
    """

    longest: int
    default: int | None
    multiplied: int | None = None


def read_context_lengths(text: ConfigFields) -> ContextLengths:
    """The lengths of a language model's config.

    Raises CheckpointError for a length that is none and for scaling that cannot be.
    """
    named = [found for name in _NAMES if (found := text.optional_positive(name)) is not None]
    said = text.optional_positive(_ABOVE_ALL) or min(named, default=None)
    if said is None:
        return ContextLengths(_ASSUMED, None)
    scalings = tuple(_scalings(text))
    factor = 1.0
    if _SCALED_FAMILY not in (text.text("model_type") or ""):
        factors = (s.number("factor", default=1.0) for s in scalings if not _is(s, _SCALED_ALREADY))
        factor = next((found for found in factors if found != 1), 1.0)
    longest = default = _bounded(said * factor)
    if any(_is(scaling, _LONG_ROPE) for scaling in scalings):
        default = text.positive("original_max_position_embeddings", default=longest)
    stretched = next((s for s in scalings if _is(s, _YARN)), None)
    return ContextLengths(longest, default, None if stretched is None else _yarn(stretched, said))


def _scalings(text: ConfigFields) -> Iterator[ConfigFields]:
    """What the config says of rotary embeddings, for each kind of layers where they differ."""
    given = text.nested("rope_parameters", "rope_scaling")
    if given is not None:
        yield from given.children() or (given,)


def _yarn(scaling: ConfigFields, said: int) -> int:
    original = scaling.positive("original_max_position_embeddings", default=said)
    return _bounded(original * scaling.number("factor", default=1.0))


def _is(scaling: ConfigFields, kinds: frozenset[str]) -> bool:
    return (scaling.text("rope_type", "type") or "default") in kinds


def _bounded(tokens: float) -> int:
    if not 1 <= tokens <= MAX_COUNT:
        raise CheckpointError(f"rope_scaling stretches the context to {tokens:.0f} tokens")
    return int(tokens)
