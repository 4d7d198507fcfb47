"""Match the names and patterns of a quantised checkpoint to linear layers.

Checkpoints list layers as names, shell patterns or regular expressions; a name matches a module and
all modules inside it. This module never runs untrusted regular expressions.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Final

from tonnage.checkpoint.quantization.layer_globs import LayerGlobs
from tonnage.checkpoint.quantization.regex_globs import regex_to_globs

HEAD: Final = "lm_head"
"""The output head, which some methods quantise."""

EXPERTS: Final = "mlp.experts.0.down_proj"
"""One name for all of the experts' layers, which have the same format."""

EXPERTS_NEXT_TO_MLP: Final = ("experts.0.down_proj", "moe.experts.0.down_proj")
"""Their names in layers that also have an MLP (Gemma 4), where `mlp` does not include them."""

LINEAR_LAYERS: Final[Mapping[str, tuple[str, ...]]] = {
    "self_attn.q_proj": ("self_attn.qkv_proj", "mixer.q_proj"),
    "self_attn.k_proj": ("self_attn.qkv_proj", "mixer.k_proj"),
    "self_attn.v_proj": ("self_attn.qkv_proj", "mixer.v_proj"),
    "self_attn.o_proj": ("mixer.o_proj",),
    "self_attn.g_proj": (),
    "self_attn.g_a_proj": (),
    "self_attn.g_b_proj": (),
    "self_attn.f_b_proj": (),
    "self_attn.wq": (),
    "self_attn.q_a_proj": ("self_attn.fused_qkv_a_proj",),
    "self_attn.q_b_proj": (),
    "self_attn.kv_a_proj_with_mqa": ("self_attn.fused_qkv_a_proj",),
    "self_attn.kv_b_proj": (),
    "self_attn.indexer.wq_b": (),
    "self_attn.indexer.wk": (),
    "linear_attn.in_proj_qkv": ("linear_attn.in_proj_qkvz",),
    "linear_attn.in_proj_z": ("linear_attn.in_proj_qkvz",),
    "linear_attn.in_proj_ba": ("linear_attn.in_proj_a", "linear_attn.in_proj_b"),
    "linear_attn.out_proj": (),
    "mamba.in_proj": ("mixer.in_proj",),
    "mamba.out_proj": ("mixer.out_proj",),
    "conv.in_proj": (),
    "conv.out_proj": (),
    "mlp.gate_proj": ("mlp.gate_up_proj",),
    "mlp.up_proj": ("mlp.gate_up_proj", "mixer.up_proj"),
    "mlp.down_proj": ("mixer.down_proj",),
    EXPERTS: ("mlp.experts.0.w2", "mixer.experts.0.down_proj"),
    "mlp.shared_experts.down_proj": ("mixer.shared_experts.down_proj",),
    "mlp.fc1_latent_proj": ("mixer.fc1_latent_proj",),
    "mlp.fc2_latent_proj": ("mixer.fc2_latent_proj",),
}
"""The linear layers of a decoder layer by their names in Llama, DeepSeek and Qwen, each with its
other names in checkpoints, mostly those of layers that vLLM fuses."""

_MAX_PATTERN_LENGTH: Final = 1024
_LAYER_NUMBER: Final = re.compile(r"(?:^|[.*])layers\.([0-9]{1,4})\.")
_IN_ONE_LAYER: Final = re.compile(r"(?:model\.)?layers\.([0-9]{1,4})(?:\.(.+))?")
_MATCHES_DIGITS: Final = re.compile(r"[0-9?\[]")
_LAYERS: Final = "model.layers"
_SYNONYMS: Final = (
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.", ""),
    ("backbone.", "model."),
    ("block_sparse_moe.", "mlp."),
    ("feed_forward.", "mlp."),
    ("shared_expert.", "shared_experts."),
)


class ModuleNames:
    """A list of names and patterns of layers.

    Raises CheckpointError for too many patterns.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._names_by_layer: dict[int, set[str]] = {}
        self._globs = LayerGlobs()
        self._layer_globs = LayerGlobs()
        self._globs_by_layer: dict[int, LayerGlobs] = {}
        self._matched: dict[str, bool] = {}
        for entry in entries:
            for pattern in _parse_entry(entry):
                self._add(pattern)

    def __bool__(self) -> bool:
        return bool(self._names or self._globs) or not self.match_all_layers

    @property
    def match_all_layers(self) -> bool:
        """Whether they match every decoder layer equally: none can match a layer's number."""
        return not (self._names_by_layer or self._globs_by_layer or self._layer_globs)

    @property
    def layer_glob_count(self) -> int:
        """Number of patterns that must be matched with each decoder layer."""
        return len(self._layer_globs)

    def join(self, others: "ModuleNames") -> None:
        """Add the names and patterns of `others`."""
        self._names |= others._names
        for layer, names in others._names_by_layer.items():
            self._names_by_layer.setdefault(layer, set()).update(names)
        by_layer = others._globs_by_layer.values()
        for glob in chain(others._globs, others._layer_globs, *by_layer):
            self._add(glob)

    def include(self, layer: int, linears: Iterable[str]) -> bool:
        """Return whether they match a linear layer of decoder layer `layer`, by any name."""
        return any(self._include_name(layer, name) or self._match(layer, name) for name in linears)

    def include_head(self) -> bool:
        """Return whether they match the output head."""
        return HEAD in self._names or self._globs.match(HEAD) or self._layer_globs.match(HEAD)

    def _add(self, pattern: str) -> None:
        if not any(wildcard in pattern for wildcard in "*?["):
            self._add_name(pattern)
            return
        number = _LAYER_NUMBER.search(pattern)
        if number is not None:
            self._globs_by_layer.setdefault(int(number[1]), LayerGlobs()).add(pattern)
        elif _MATCHES_DIGITS.search(pattern):
            self._layer_globs.add(pattern)
        else:
            self._globs.add(pattern)
            self._matched.clear()

    def _add_name(self, name: str) -> None:
        numbered = _IN_ONE_LAYER.fullmatch(name)
        if numbered is None:
            self._names.add(name)
        else:
            self._names_by_layer.setdefault(int(numbered[1]), set()).add(numbered[2] or "")

    def _include_name(self, layer: int, name: str) -> bool:
        if not self._names.isdisjoint(_list_ancestors(name)):
            return True
        names = self._names_by_layer.get(layer)
        return names is not None and not names.isdisjoint(_list_prefixes(name))

    def _match(self, layer: int, name: str) -> bool:
        if name not in self._matched:  # for any layer: no part of these patterns matches a number
            self._matched[name] = self._globs.match(f"{_LAYERS}.0.{name}")
        if self._matched[name] or self.match_all_layers:
            return self._matched[name]
        path, globs = f"{_LAYERS}.{layer}.{name}", self._globs_by_layer.get(layer)
        return self._layer_globs.match(path) or (globs is not None and globs.match(path))


def _parse_entry(entry: str) -> tuple[str, ...]:
    """Return the entry as canonical names or shell patterns, none if it has no equivalent."""
    if len(entry) > _MAX_PATTERN_LENGTH:
        return ()
    patterns = regex_to_globs(entry[3:]) if entry.startswith("re:") else (entry,)
    return tuple(canonical_name(pattern) for pattern in patterns or ())


def canonical_name(pattern: str) -> str:
    """Translate a name or pattern of layers to the names in LINEAR_LAYERS."""
    for old, new in _SYNONYMS:
        pattern = pattern.replace(old, new)
    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    return pattern.removesuffix(".weight")


@cache
def _list_ancestors(name: str) -> frozenset[str]:
    """Return the names that match a linear layer in every decoder layer.

    Cached for the few names of linear layers.
    """
    return frozenset((*_iterate_runs(_LAYERS), *_iterate_runs(name)))


@cache
def _list_prefixes(name: str) -> frozenset[str]:
    """Return the names that match a linear layer after its layer's number; "" matches all of it."""
    parts = name.split(".")
    return frozenset(".".join(parts[:end]) for end in range(len(parts) + 1))


def _iterate_runs(name: str) -> Iterator[str]:
    """Yield each sequence of consecutive dotted parts of a name."""
    parts = name.split(".")
    for start in range(len(parts)):
        for end in range(start + 1, len(parts) + 1):
            yield ".".join(parts[start:end])
