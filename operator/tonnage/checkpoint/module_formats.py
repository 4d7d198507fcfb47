"""How each linear layer of a model is stored."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from tonnage.checkpoint.model import CheckpointError, Experts, FeedForward, Mlp, Quantization
from tonnage.checkpoint.module_names import (
    EXPERTS,
    EXPERTS_BESIDE_MLP,
    LINEAR_LAYERS,
    ModuleNames,
)
from tonnage.checkpoint.regex_globs import MAX_GLOBS

FormatRule = tuple[ModuleNames, Quantization | None]
"""What is stored how; None is 16 bits."""

Exceptions = tuple[tuple[str, Quantization | None], ...]
"""Linear layers that are stored in another way than the model, by name, and how."""


class ExpertPlace(StrEnum):
    """Where the experts of a layer lie: it has none, or in place of its MLP, or beside it."""

    NOWHERE = "nowhere"
    IN_MLP = "in_mlp"
    BESIDE_MLP = "beside_mlp"


def expert_place(blocks: Sequence[FeedForward]) -> ExpertPlace:
    """Where the experts are among a layer's blocks.

    Two MLPs beside them (LongCat) have names of their own and leave `mlp` to the experts.
    """
    if not any(isinstance(block, Experts) for block in blocks):
        return ExpertPlace.NOWHERE
    mlps = sum(isinstance(block, Mlp) for block in blocks)
    return ExpertPlace.BESIDE_MLP if mlps == 1 else ExpertPlace.IN_MLP


_EXPERTS = ("mlp.experts", "mlp.shared_experts", "mlp.fc1_latent", "mlp.fc2_latent")


_MAX_RULES: Final = 128
_MAX_NUMBERING_GLOBS: Final = MAX_GLOBS // 2


class ModuleFormats:
    """The format of every linear layer: that of the first rule that names it, else `otherwise`.

    `main` is the model's own, what differs from it is an exception; `head` is how the output head
    is stored, `towers` how encoders are, `drafts_kept` tells that layers that predict ahead keep 16
    bits. Without rules everything is as `main` says.
    """

    def __init__(
        self,
        main: Quantization | None = None,
        rules: Sequence[FormatRule] = (),
        otherwise: Quantization | None = None,
        head: Quantization | None = None,
        drafts_kept: bool = False,
        towers: Quantization | None = None,
    ) -> None:
        self.main = main
        self.towers = towers
        self.drafts_kept = drafts_kept
        self._rules = [(names, stored) for names, stored in rules if names]
        _check_bounds(self._rules)
        self._otherwise = otherwise
        self._uniform = not self._rules and otherwise == main
        self._alike = all(names.are_for_all_layers for names, _ in self._rules)
        self._found: dict[tuple[int, ExpertPlace], Exceptions] = {}
        self.head = self._head(head)

    def of_layer(self, layer: int, experts: ExpertPlace) -> Exceptions:
        """The linear layers of layer `layer` that are not stored as `main` says, by name."""
        if self._uniform:
            return ()
        key = (0 if self._alike else layer, experts)
        if key not in self._found:
            self._found[key] = self._find(*key)
        return self._found[key]

    def _find(self, layer: int, experts: ExpertPlace) -> Exceptions:
        stored = (
            (linear, self._of(layer, _names_of(linear, experts)))
            for linear in LINEAR_LAYERS
            if _has(experts, linear)
        )
        return tuple((linear, found) for linear, found in stored if found != self.main)

    def _of(self, layer: int, linears: Sequence[str]) -> Quantization | None:
        for names, stored in self._rules:
            if names.include(layer, linears):
                return stored
        return self._otherwise

    def _head(self, unless_named: Quantization | None) -> Quantization | None:
        for names, stored in self._rules:
            if names.include_head():
                return stored
        return unless_named


def _check_bounds(rules: Sequence[FormatRule]) -> None:
    """Raises CheckpointError for more than could be looked through for each of many layers."""
    if len(rules) > _MAX_RULES:
        raise CheckpointError(
            f"quantization_config tells {len(rules)} kinds of layers apart, at most {_MAX_RULES}"
        )
    numbering = sum(names.numbering_globs for names, _ in rules)
    if numbering > _MAX_NUMBERING_GLOBS:
        raise CheckpointError(
            f"quantization_config has {numbering} patterns with numbers of layers, "
            f"at most {_MAX_NUMBERING_GLOBS}"
        )


def _has(experts: ExpertPlace, linear: str) -> bool:
    """Whether a layer with or without experts has that linear layer."""
    return experts is not ExpertPlace.NOWHERE or not linear.startswith(_EXPERTS)


def _names_of(linear: str, experts: ExpertPlace) -> Sequence[str]:
    """All names of a linear layer of LINEAR_LAYERS."""
    if linear == EXPERTS and experts is ExpertPlace.BESIDE_MLP:
        return EXPERTS_BESIDE_MLP
    return (linear, *LINEAR_LAYERS[linear])
