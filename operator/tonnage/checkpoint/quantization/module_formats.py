"""Find the storage format of each linear layer of a model."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from tonnage.checkpoint.model import CheckpointError, Experts, FeedForward, Mlp, Quantization
from tonnage.checkpoint.quantization.module_names import (
    EXPERTS,
    EXPERTS_NEXT_TO_MLP,
    LINEAR_LAYERS,
    ModuleNames,
)
from tonnage.checkpoint.quantization.regex_globs import MAX_GLOBS

FormatRule = tuple[ModuleNames, Quantization | None]
"""Layers, and the quantisation of their weights; None is 16 bits."""

Exceptions = tuple[tuple[str, Quantization | None], ...]
"""Linear layers by name whose quantisation differs from the model's, and theirs."""


class ExpertPlace(StrEnum):
    """The place of a layer's experts: none, instead of its MLP, or next to it."""

    NOWHERE = "nowhere"
    IN_MLP = "in_mlp"
    NEXT_TO_MLP = "next_to_mlp"


def find_expert_place(blocks: Sequence[FeedForward]) -> ExpertPlace:
    """Return the place of the experts among a layer's blocks.

    If there are two MLPs (LongCat), these have other names and `mlp` stands for the experts.
    """
    if not any(isinstance(block, Experts) for block in blocks):
        return ExpertPlace.NOWHERE
    mlps = sum(isinstance(block, Mlp) for block in blocks)
    return ExpertPlace.NEXT_TO_MLP if mlps == 1 else ExpertPlace.IN_MLP


_EXPERTS = ("mlp.experts", "mlp.shared_experts", "mlp.fc1_latent", "mlp.fc2_latent")


_MAX_RULES: Final = 128
_MAX_LAYER_GLOBS: Final = MAX_GLOBS // 2


class ModuleFormats:
    """The format of every linear layer: that of the first matching rule, else `default`.

    `main` is the model's format; layers that differ are exceptions. `head` is the format of the
    output head, `encoders` that of vision and audio encoders; with `mtp_unquantized`, MTP layers
    keep 16 bits. Without rules, every layer has the format `main`.
    """

    def __init__(
        self,
        main: Quantization | None = None,
        rules: Sequence[FormatRule] = (),
        default: Quantization | None = None,
        head: Quantization | None = None,
        mtp_unquantized: bool = False,
        encoders: Quantization | None = None,
    ) -> None:
        self.main = main
        self.encoders = encoders
        self.mtp_unquantized = mtp_unquantized
        self._rules = [(names, scheme) for names, scheme in rules if names]
        _check_bounds(self._rules)
        self._default = default
        self._uniform = not self._rules and default == main
        self._rules_match_all_layers = all(names.match_all_layers for names, _ in self._rules)
        self._exceptions: dict[tuple[int, ExpertPlace], Exceptions] = {}
        self.head = self._find_head_scheme(head)

    def of_layer(self, layer: int, experts: ExpertPlace) -> Exceptions:
        """Return the linear layers of layer `layer`, by name, that differ from `main`."""
        if self._uniform:
            return ()
        key = (0 if self._rules_match_all_layers else layer, experts)
        if key not in self._exceptions:
            self._exceptions[key] = self._find_exceptions(*key)
        return self._exceptions[key]

    def _find_exceptions(self, layer: int, experts: ExpertPlace) -> Exceptions:
        schemes = (
            (linear, self._find_scheme(layer, _list_names(linear, experts)))
            for linear in LINEAR_LAYERS
            if _has_linear(experts, linear)
        )
        return tuple((linear, scheme) for linear, scheme in schemes if scheme != self.main)

    def _find_scheme(self, layer: int, linears: Sequence[str]) -> Quantization | None:
        for names, scheme in self._rules:
            if names.include(layer, linears):
                return scheme
        return self._default

    def _find_head_scheme(self, default: Quantization | None) -> Quantization | None:
        for names, scheme in self._rules:
            if names.include_head():
                return scheme
        return default


def _check_bounds(rules: Sequence[FormatRule]) -> None:
    """Raise CheckpointError for too many rules: each of many layers is matched against all."""
    if len(rules) > _MAX_RULES:
        raise CheckpointError(
            f"quantization_config has {len(rules)} kinds of layers, at most {_MAX_RULES}"
        )
    layer_globs = sum(names.layer_glob_count for names, _ in rules)
    if layer_globs > _MAX_LAYER_GLOBS:
        raise CheckpointError(
            f"quantization_config has {layer_globs} patterns with numbers of layers, "
            f"at most {_MAX_LAYER_GLOBS}"
        )


def _has_linear(experts: ExpertPlace, linear: str) -> bool:
    """Return whether a layer with or without experts has a linear layer."""
    return experts is not ExpertPlace.NOWHERE or not linear.startswith(_EXPERTS)


def _list_names(linear: str, experts: ExpertPlace) -> Sequence[str]:
    """Return all names of a linear layer of LINEAR_LAYERS."""
    if linear == EXPERTS and experts is ExpertPlace.NEXT_TO_MLP:
        return EXPERTS_NEXT_TO_MLP
    return (linear, *LINEAR_LAYERS[linear])
