"""How many tokens a request may have in a release of vLLM.

Source: vllm/config/model.py _get_and_verify_max_len.
"""

import json
from dataclasses import replace
from typing import Final

from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.config.context import read_context_lengths
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.model import EngineOptions

_LENGTH: Final = "max_position_embeddings"
_ALLOWS_LONGER: Final = "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"


def override_context(shape: ModelShape, overrides: str) -> ModelShape:
    """The shape with the fields of `EngineOptions.context_overrides` in its config.json.

    Raises CheckpointError for out-of-range lengths and scaling factors.
    """
    if not overrides:
        return shape
    stated = {} if shape.default_context is None else {_LENGTH: shape.max_position_embeddings}
    config = {"model_type": shape.model_type, **stated, **json.loads(overrides)}
    context = read_context_lengths(ConfigFields(config))
    positions = max(context.longest, context.multiplied or 0)
    return replace(
        shape,
        max_position_embeddings=context.longest,
        default_context=context.default,
        multiplied_context=context.multiplied,
        rope_caches=tuple(
            replace(cache, positions=max(cache.positions, positions)) for cache in shape.rope_caches
        ),
    )


def default_context(shape: ModelShape, release: EngineRelease) -> int:
    """Tokens that vLLM uses without --max-model-len.

    Models with LongRoPE start with less than their maximum. A config without a length gets vLLM's
    default.
    """
    has_yarn = shape.multiplied_context is not None
    if has_yarn or shape.default_context is None or not release.shortens_longrope:
        return _longest(shape, release)
    return shape.default_context


def context_limit(shape: ModelShape, options: EngineOptions, release: EngineRelease) -> int | None:
    """The largest --max-model-len that vLLM accepts, None without a limit.

    There is no limit if the config has no context length, or if the environment allows longer ones.
    """
    if shape.default_context is None or _ALLOWS_LONGER in options.stated:
        return None
    return _longest(shape, release)


def tell_too_long(shape: ModelShape, options: EngineOptions, release: EngineRelease) -> str | None:
    """A message if the context is longer than the model was made for, else None."""
    limit = context_limit(shape, options, release)
    if limit is None or options.max_model_len <= limit:
        return None
    return format_too_long(options.max_model_len, limit, "vLLM")


def format_too_long(tokens: int, limit: int, engine: str) -> str:
    """The message about a context that the engine refuses."""
    return (
        f"{tokens} tokens is more than the {limit} tokens that the model was made for; {engine}"
        " refuses to start"
    )


def _longest(shape: ModelShape, release: EngineRelease) -> int:
    if release.multiplies_yarn and shape.multiplied_context is not None:
        return shape.multiplied_context
    return shape.max_position_embeddings
