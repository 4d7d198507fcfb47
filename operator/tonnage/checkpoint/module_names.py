"""Which linear layers the names and patterns of a quantised checkpoint speak of.

Checkpoints list layers as names, shell patterns or regular expressions; a name stands for the layer
and for all it is part of. Names of strangers are matched, never run as expressions.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Final

from tonnage.checkpoint.layer_globs import LayerGlobs
from tonnage.checkpoint.regex_globs import regex_to_globs

HEAD: Final = "lm_head"
"""The output head, which some methods quantise."""

EXPERTS: Final = "mlp.experts.0.down_proj"
"""The experts' layers, which are stored alike, under the name of one."""

EXPERTS_BESIDE_MLP: Final = ("experts.0.down_proj", "moe.experts.0.down_proj")
"""Their names where the layer has an MLP as well (Gemma 4): no part of what `mlp` means there."""

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
"""The linear layers of a decoder layer, as Llama, DeepSeek and Qwen call them, and the other names
that checkpoints have for each, most often those of layers that vLLM fuses."""

_MAX_PATTERN_LENGTH: Final = 1024
_LAYER_NUMBER: Final = re.compile(r"(?:^|[.*])layers\.([0-9]{1,4})\.")
_IN_ONE_LAYER: Final = re.compile(r"(?:model\.)?layers\.([0-9]{1,4})(?:\.(.+))?")
_TELLS_NUMBERS: Final = re.compile(r"[0-9?\[]")
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

    Raises CheckpointError for more patterns than any checkpoint has.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._names_by_layer: dict[int, set[str]] = {}
        self._globs = LayerGlobs()
        self._numbering_globs = LayerGlobs()
        self._globs_by_layer: dict[int, LayerGlobs] = {}
        self._matched: dict[str, bool] = {}
        for entry in entries:
            for pattern in _as_patterns(entry):
                self._add(pattern)

    def __bool__(self) -> bool:
        return bool(self._names or self._globs) or not self.are_for_all_layers

    @property
    def are_for_all_layers(self) -> bool:
        """Whether they speak of every layer alike: nothing in them could be a layer's number."""
        return not (self._names_by_layer or self._globs_by_layer or self._numbering_globs)

    @property
    def numbering_globs(self) -> int:
        """How many patterns have to be matched with every layer anew."""
        return len(self._numbering_globs)

    def join(self, others: "ModuleNames") -> None:
        """Let these names speak of what the others do, too."""
        self._names |= others._names
        for layer, names in others._names_by_layer.items():
            self._names_by_layer.setdefault(layer, set()).update(names)
        by_layer = others._globs_by_layer.values()
        for glob in chain(others._globs, others._numbering_globs, *by_layer):
            self._add(glob)

    def include(self, layer: int, linears: Iterable[str]) -> bool:
        """Whether they speak of a linear layer of that layer, by any of its names."""
        return any(self._include_name(layer, name) or self._match(layer, name) for name in linears)

    def include_head(self) -> bool:
        """Whether they speak of the output head."""
        return HEAD in self._names or self._globs.match(HEAD) or self._numbering_globs.match(HEAD)

    def _add(self, pattern: str) -> None:
        if not any(sign in pattern for sign in "*?["):
            self._add_name(pattern)
            return
        number = _LAYER_NUMBER.search(pattern)
        if number is not None:
            self._globs_by_layer.setdefault(int(number[1]), LayerGlobs()).add(pattern)
        elif _TELLS_NUMBERS.search(pattern):
            self._numbering_globs.add(pattern)
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
        if not self._names.isdisjoint(_runs_in_layer(name)):
            return True
        own = self._names_by_layer.get(layer)
        return own is not None and not own.isdisjoint(_beginnings(name))

    def _match(self, layer: int, name: str) -> bool:
        if name not in self._matched:  # whatever the layer: no part of a pattern matches a number
            self._matched[name] = self._globs.match(f"{_LAYERS}.0.{name}")
        if self._matched[name] or self.are_for_all_layers:
            return self._matched[name]
        full, own = f"{_LAYERS}.{layer}.{name}", self._globs_by_layer.get(layer)
        return self._numbering_globs.match(full) or (own is not None and own.match(full))


def _as_patterns(entry: str) -> tuple[str, ...]:
    """The entry as names or shell patterns with today's names, none when it cannot be."""
    if len(entry) > _MAX_PATTERN_LENGTH:
        return ()
    found = regex_to_globs(entry[3:]) if entry.startswith("re:") else (entry,)
    return tuple(modern_name(pattern) for pattern in found or ())


def modern_name(pattern: str) -> str:
    """A name or pattern of layers in the words that LINEAR_LAYERS has for them."""
    for old, new in _SYNONYMS:
        pattern = pattern.replace(old, new)
    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    return pattern.removesuffix(".weight")


@cache
def _runs_in_layer(name: str) -> frozenset[str]:
    """What stands for a linear layer in every decoder layer: an entry stands for all of its parts.

    Remembered for the few names that linear layers have.
    """
    return frozenset((*_runs(_LAYERS), *_runs(name)))


@cache
def _beginnings(name: str) -> frozenset[str]:
    """What stands for a linear layer behind the number of its decoder layer; nothing: all of it."""
    parts = name.split(".")
    return frozenset(".".join(parts[:end]) for end in range(len(parts) + 1))


def _runs(name: str) -> Iterator[str]:
    """Every run of dotted parts of a name."""
    parts = name.split(".")
    for start in range(len(parts)):
        for end in range(start + 1, len(parts) + 1):
            yield ".".join(parts[start:end])
