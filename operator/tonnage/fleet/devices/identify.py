"""Identifies the accelerator that a node's labels name, and the labels needed to do so.

All labels that name a card have to agree; labels that fit several cards identify none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.model import Accelerator, Vendor
from tonnage.fleet.devices.label_index import (
    DEVICE_ID,
    INSTANCE_TYPE,
    PRIMARY,
    PRODUCT,
    CardLabel,
    LabelIndex,
    show_label,
)
from tonnage.fleet.devices.resources import (
    ContradictionError,
    NotPlannableError,
    UnlabelledError,
)

PRIMARY_OF: Final = {Vendor.AMD: DEVICE_ID, Vendor.NVIDIA: PRODUCT}
"""The label by which each vendor's labeller identifies the device."""

_LABELLERS: Final = {Vendor.AMD: "AMD's node labeller", Vendor.NVIDIA: "GPU feature discovery"}

# NFD's rule of ROCm/gpu-operator writes these; the first says only that the card is AMD's.
_AMD_GPU: Final = "feature.node.kubernetes.io/amd-gpu"
_VIRTUAL_FUNCTION: Final = "feature.node.kubernetes.io/amd-vgpu"
# The GPU operator writes this where NFD sees a device of NVIDIA.
_NVIDIA_GPU: Final = "nvidia.com/gpu.present"
_NOT_ENOUGH: Final = (_AMD_GPU, _VIRTUAL_FUNCTION, _NVIDIA_GPU, INSTANCE_TYPE)

_PRESENCE: Final = {
    Vendor.AMD: (_AMD_GPU, _VIRTUAL_FUNCTION),
    Vendor.NVIDIA: (_NVIDIA_GPU,),
}
"""Labels by which a vendor's software marks nodes with its devices: present where "true"."""


@dataclass(frozen=True, slots=True)
class Identified:
    """The one accelerator that all labels allow, and the labels needed to identify it; none where
    a pool declares it."""

    accelerator: Accelerator
    needed: tuple[CardLabel, ...]


def identify(
    cards: Sequence[CardLabel], index: LabelIndex, vendor: Vendor, labels: Mapping[str, str]
) -> Identified:
    """Return the accelerator that the labels name.

    Raises NotPlannableError where they name none or several, ContradictionError where some exclude
    others.
    """
    ids, needed = _match_identifying(cards, index)
    if not needed:
        raise UnlabelledError(_what_is_missing(vendor, labels))
    for card in cards:
        narrowed = ids & index.named_by(card) if card.kind in index.supporting else ids
        if len(ids) > 1 and narrowed and narrowed != ids:
            ids, needed = narrowed, (*needed, card)
    if len(ids) > 1:
        raise NotPlannableError(f"{needed[0]} may be {_any_of(ids)}; no other label decides")
    accelerator = index.catalog.accelerator(min(ids))
    return Identified(accelerator, _confirmed(accelerator, needed, cards, index))


def _match_identifying(
    cards: Sequence[CardLabel], index: LabelIndex
) -> tuple[frozenset[str], tuple[CardLabel, ...]]:
    """Return the accelerators that all identifying labels allow, and the labels that narrow them
    down."""
    ids: frozenset[str] = frozenset()
    needed: tuple[CardLabel, ...] = ()
    for card in (card for card in cards if card.kind in index.identifying):
        named = index.named_by(card)
        if not named and card.kind in PRIMARY:
            raise _unknown(card, cards)
        if not named:
            continue
        if not needed:
            ids, needed = named, (card,)
            continue
        both = ids & named
        if not both:
            raise ContradictionError(
                f"labels contradict: {needed[0]} is {_any_of(ids)}, {card} is {_any_of(named)}"
            )
        if both != ids or all(index.is_shared(other) for other in needed):
            ids, needed = both, (*needed, card)
    return ids, needed


def _unknown(card: CardLabel, cards: Iterable[CardLabel]) -> NotPlannableError:
    """Return the error for a card that the catalogue does not have, alone or among others."""
    reason = f"{card} is no accelerator of the catalogue"
    others = [other for other in cards if other.kind == card.kind and other.value != card.value]
    if others:
        return ContradictionError(f"{reason}, and the node has {others[0]} as well")
    return NotPlannableError(reason)


def _confirmed(
    accelerator: Accelerator,
    needed: tuple[CardLabel, ...],
    cards: Iterable[CardLabel],
    index: LabelIndex,
) -> tuple[CardLabel, ...]:
    """Return the needed labels, plus one where cards outside the catalogue have all of these."""
    if not all(index.is_shared(card) for card in needed):
        return needed
    confirming = (
        card
        for card in cards
        if card.kind in index.supporting and accelerator.id in index.named_by(card)
    )
    card = next(confirming, None)
    if card is None:
        raise NotPlannableError(
            f"{needed[0]} may be {accelerator.id} or a card that is not in the catalogue; "
            "no other label decides"
        )
    return (*needed, card)


def _what_is_missing(vendor: Vendor, labels: Mapping[str, str]) -> str:
    """Explain that no label identifies the card, with related labels and the missing one."""
    related = [show_label(name, labels[name]) for name in _NOT_ENOUGH if name in labels]
    insufficient = f"{', '.join(related)} does not identify it, and " if related else ""
    missing = f"{PRIMARY_OF[vendor]} is missing, which {_LABELLERS[vendor]} writes"
    return f"no label names the accelerator: {insufficient}{missing}"


def _any_of(ids: frozenset[str]) -> str:
    return " or ".join(sorted(ids))


def labelled_vendor(
    cards: Sequence[CardLabel], index: LabelIndex, labels: Mapping[str, str]
) -> tuple[Vendor, str] | None:
    """Return whose GPUs the labels of a node state, and the first label that does; None where no
    label does."""
    for card in cards:
        for vendor, primary in PRIMARY_OF.items():
            if card.kind == primary:
                return vendor, str(card)
        named = index.named_by(card) if card.kind in index.identifying else ()
        if named:
            return index.catalog.accelerator(min(named)).vendor, str(card)
    for vendor, keys in _PRESENCE.items():
        for key in keys:
            if labels.get(key) == "true":
                return vendor, show_label(key, labels[key])
    return None


def is_virtual_function(
    cards: Sequence[CardLabel], index: LabelIndex, labels: Mapping[str, str]
) -> bool:
    """Whether the GPUs are SR-IOV virtual functions, which show a little less memory."""
    device_ids = [card for card in cards if card.kind == DEVICE_ID]
    if device_ids:
        return any(index.is_virtual(card) for card in device_ids)
    return labels.get(_VIRTUAL_FUNCTION) == "true" or any(index.is_virtual(card) for card in cards)
