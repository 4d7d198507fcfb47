"""Linear layers that a quantised checkpoint keeps in 16 bits.

Checkpoints list them as names, shell patterns or simple regular expressions. Regular expressions
of strangers are never run: the few forms that occur are rewritten as shell patterns, others are
left out, which the size of the weight files makes good where it is known.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final

from tonnage.checkpoint.model import CheckpointError, Quantization

LINEAR_LAYERS: Final = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "self_attn.q_a_proj",
    "self_attn.q_b_proj",
    "self_attn.kv_a_proj_with_mqa",
    "self_attn.kv_b_proj",
    "self_attn.indexer.wq_b",
    "linear_attn.in_proj_qkv",
    "linear_attn.in_proj_z",
    "linear_attn.in_proj_ba",
    "linear_attn.out_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
    "mlp.experts.0.down_proj",
    "mlp.shared_experts.down_proj",
)
"""The linear layers of a decoder layer under the names that Llama, DeepSeek and Qwen give them."""

_MAX_PATTERNS: Final = 64
_MAX_PATTERN_LENGTH: Final = 256
_LAYER_NUMBER: Final = re.compile(r"(?:^|\.)layers\.([0-9]{1,4})\.")
_REGEX_SIGNS: Final = re.compile(r"[\\()|+?{}^$]")
_SYNONYMS: Final = (
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.", ""),
    ("block_sparse_moe.", "mlp."),
    ("feed_forward.", "mlp."),
    ("shared_expert.", "shared_experts."),
    ("in_proj_qkvz", "in_proj_qkv"),
)


class Exclusions:
    """What a quantised checkpoint's list of ignored layers means for each layer of the model.

    Raises CheckpointError for more patterns than any checkpoint has.
    """

    def __init__(self, ignored: Iterable[str] = ()) -> None:
        self._names, self._patterns = _split(ignored)

    def of_layer(
        self, layer: int, has_experts: bool
    ) -> tuple[tuple[str, Quantization | None], ...]:
        """The linear layers of layer `layer` that keep 16 bits, as exceptions by name."""
        if not self._names and not self._patterns:
            return ()
        return tuple(
            (linear, None)
            for linear in LINEAR_LAYERS
            if _has(has_experts, linear) and _is_ignored(layer, linear, self._names, self._patterns)
        )


def _has(experts: bool, linear: str) -> bool:
    """Whether a layer with or without experts has that linear layer."""
    if not linear.startswith("mlp."):
        return True
    return experts == linear.startswith(("mlp.experts", "mlp.shared_experts"))


def _split(ignored: Iterable[str]) -> tuple[set[str], dict[int | None, list[str]]]:
    """Plain names, and patterns by the layer they speak of (None: any)."""
    names: set[str] = set()
    patterns: dict[int | None, list[str]] = {}
    for entry in ignored:
        pattern = _as_pattern(entry)
        if pattern is None:
            continue
        if not any(sign in pattern for sign in "*?["):
            names.add(pattern)
            continue
        number = _LAYER_NUMBER.search(pattern)
        bucket = patterns.setdefault(int(number[1]) if number else None, [])
        bucket.append(pattern)
        if len(bucket) > _MAX_PATTERNS:
            raise CheckpointError(
                f"quantization_config ignores more than {_MAX_PATTERNS} patterns for one layer"
            )
    return names, patterns


def _as_pattern(entry: str) -> str | None:
    """The entry as a plain name or shell pattern with today's names, None when it cannot be."""
    if len(entry) > _MAX_PATTERN_LENGTH:
        return None
    text = entry
    if entry.startswith("re:"):
        text = entry[3:].removeprefix("^").removesuffix("$")
        text = (
            text.replace("[0-9]+", "*").replace("\\d+", "*").replace(".*", "*").replace("\\.", ".")
        )
        if _REGEX_SIGNS.search(text):
            return None
    for old, new in _SYNONYMS:
        text = text.replace(old, new)
    return text.removesuffix(".weight")


def _is_ignored(
    layer: int, linear: str, names: set[str], patterns: dict[int | None, list[str]]
) -> bool:
    name = f"model.layers.{layer}.{linear}"
    if any(part in names for part in _runs(name)):
        return True
    # The dots at both ends let one pattern stand for every run of dotted parts it may match.
    return any(
        fnmatchcase(f".{name}.", f"*.{pattern}.*")
        for pattern in (*patterns.get(layer, ()), *patterns.get(None, ()))
    )


def _runs(name: str) -> Iterator[str]:
    """Every run of dotted parts of a name: an entry stands for what it is part of."""
    parts = name.split(".")
    for start in range(len(parts)):
        for end in range(start + 1, len(parts) + 1):
            yield ".".join(parts[start:end])
