"""How many tokens a request may have in SGLang.

Source: SGLang 0.5.23, sglang/srt/configs/model_config.py _derive_context_length.
"""

from typing import Final

from tonnage.checkpoint.model import ModelShape
from tonnage.fit.context import format_too_long

_WITHOUT_LENGTH: Final = 2048
"""For a config without a length (sglang/srt/utils/hf_transformers/common.py get_context_length)."""


def sglang_context_limit(shape: ModelShape) -> int:
    """The largest --context-length that SGLang accepts, and its default."""
    return _WITHOUT_LENGTH if shape.default_context is None else shape.max_position_embeddings


def sglang_too_long(shape: ModelShape, context_length: int) -> str | None:
    """A message if the context is longer than the model was made for, else None."""
    limit = sglang_context_limit(shape)
    if context_length <= limit:
        return None
    return format_too_long(context_length, limit, "SGLang")
