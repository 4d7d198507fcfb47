"""Which accelerator a node carries, told from its labels and never guessed.

Every label that names a card has to agree; a card that several labels could mean is no card. A
prefix is never enough (MI308X is not MI300X), nor is the amount of memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator
from tonnage.fleet.label_index import (
    DEVICE_ID,
    PRIMARY,
    PRODUCT_NAME,
    CardLabel,
    LabelIndex,
    index_labels,
    read_card_labels,
)
from tonnage.fleet.model import Node
from tonnage.fleet.resources import is_whole_gpu, vendor_of
from tonnage.fleet.whole import why_not_all_of, why_not_whole

_VIRTUAL_FUNCTION: Final = "feature.node.kubernetes.io/amd-vgpu"  # NFD rule of ROCm/gpu-operator
_VF_PRODUCT_SUFFIX: Final = "_VF"


@dataclass(frozen=True, slots=True)
class Recognised:
    """Whole GPUs of a known kind. `selector` are the labels that tell such nodes from others:
    (key, values) pairs, the label that identifies best first; `rank` is its place among all."""

    resource: str
    accelerator: Accelerator
    virtual_function: bool
    selector: tuple[tuple[str, tuple[str, ...]], ...] = ()
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Unrecognised:
    """GPUs that nothing is planned on, and why. `in_parts`: slices or shares of GPUs, which no
    declaration makes whole."""

    resource: str
    reason: str
    in_parts: bool = False


Recognition = Recognised | Unrecognised

Identified = tuple[Accelerator, tuple[CardLabel, ...]]
"""The one accelerator that all labels allow, and the labels that it takes to tell."""


class Recogniser:
    """Recognises the nodes of one snapshot; nodes of a cluster are alike, so answers are kept."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._index = index_labels(catalog)
        self._answers: dict[object, Recognition | None] = {}

    def recognise(self, node: Node, declared: Accelerator | None = None) -> Recognition | None:
        """What a node carries, None when it offers no GPU at all.

        A declared accelerator stands in for labels that do not name the card; that a GPU is
        shared, sliced or another vendor's is true all the same.
        """
        alike = (
            frozenset(item for item in node.labels.items() if self._index.matters(item[0])),
            *node.capacity.items(),
            *node.allocatable.items(),
            declared and declared.id,
        )
        if alike not in self._answers:
            self._answers[alike] = _recognise(node, self._index, declared)
        return self._answers[alike]


def offered(node: Node, resource: str) -> int:
    """Units of a resource that a node has, usable or not."""
    return max(node.capacity.get(resource, 0), node.allocatable.get(resource, 0))


def offered_gpus(node: Node) -> dict[str, int]:
    """GPUs of a node by resource, usable or not."""
    resources = sorted({*node.capacity, *node.allocatable})
    counts = {resource: offered(node, resource) for resource in resources}
    return {resource: count for resource, count in counts.items() if count > 0}


def _recognise(node: Node, index: LabelIndex, declared: Accelerator | None) -> Recognition | None:
    resource = _one_resource(node)
    if not isinstance(resource, str):
        return resource
    cards = read_card_labels(node.labels, index)
    problem = why_not_whole(resource, offered(node, resource), node.labels, cards)
    if problem is not None:
        return Unrecognised(resource, problem, in_parts=True)
    if declared is not None:
        return _recognise_declared(node, resource, declared, cards)
    identified = _identify(cards, index)
    if isinstance(identified, str):
        return Unrecognised(resource, identified)
    return _recognise_labelled(node, resource, identified, cards, index)


def _recognise_declared(
    node: Node, resource: str, declared: Accelerator, cards: Sequence[CardLabel]
) -> Recognition:
    if vendor_of(resource) is not declared.vendor:
        other = f"offers {resource}, but {declared.id} is {declared.vendor.value}'s"
        return Unrecognised(resource, other)
    return Recognised(resource, declared, _is_virtual_function(node, declared, cards))


def _recognise_labelled(
    node: Node,
    resource: str,
    identified: Identified,
    cards: Sequence[CardLabel],
    index: LabelIndex,
) -> Recognition:
    accelerator, needed = identified
    if accelerator.vendor is not vendor_of(resource):
        other = f"labels contradict: {needed[0]} is {accelerator.id}, the node offers {resource}"
        return Unrecognised(resource, other)
    problem = why_not_all_of(accelerator, offered(node, resource), cards)
    if problem is not None:
        return Unrecognised(resource, problem)
    virtual = _is_virtual_function(node, accelerator, cards)
    return Recognised(
        resource=resource,
        accelerator=accelerator,
        virtual_function=virtual,
        selector=tuple(_selecting(label, accelerator, index, virtual=virtual) for label in needed),
        rank=index.identifying.index(needed[0].kind),
    )


def _is_virtual_function(node: Node, accelerator: Accelerator, cards: Iterable[CardLabel]) -> bool:
    """Whether the GPUs are SR-IOV virtual functions, which show a little less memory."""
    ids = {card.value for card in cards if card.kind == DEVICE_ID}
    if ids:
        return not ids.isdisjoint(accelerator.pci_device_ids_vf)
    return node.labels.get(_VIRTUAL_FUNCTION) == "true" or any(
        card.kind == PRODUCT_NAME and card.value.endswith(_VF_PRODUCT_SUFFIX) for card in cards
    )


def _one_resource(node: Node) -> str | Unrecognised | None:
    """The resource of the node's whole GPUs, or why there is not exactly one such resource."""
    resources = list(offered_gpus(node))
    if not resources:
        return None
    whole = [resource for resource in resources if is_whole_gpu(resource)]
    if len({vendor_of(resource) for resource in resources}) > 1 or len(whole) > 1:
        return Unrecognised(resources[0], f"offers {' and '.join(resources)} at once")
    if not whole:
        slices = f"offers {resources[0]}: slices of GPUs, not whole GPUs"
        return Unrecognised(resources[0], slices, in_parts=True)
    return whole[0]


def _identify(cards: Sequence[CardLabel], index: LabelIndex) -> Identified | str:
    """The accelerator that the labels name, or why they name none."""
    possible = _name_by_identifying(cards, index)
    if isinstance(possible, str):
        return possible
    ids, needed = possible
    for card in cards:
        narrowed = ids & index.named_by(card) if card.kind in index.supporting else ids
        if len(ids) > 1 and narrowed and narrowed != ids:
            ids, needed = narrowed, (*needed, card)
    if len(ids) > 1:
        return f"{needed[0]} may be {' or '.join(sorted(ids))}; no other label decides"
    return index.catalog.accelerator(min(ids)), needed


def _name_by_identifying(
    cards: Sequence[CardLabel], index: LabelIndex
) -> tuple[frozenset[str], tuple[CardLabel, ...]] | str:
    ids: frozenset[str] = frozenset()
    needed: tuple[CardLabel, ...] = ()
    for card in (card for card in cards if card.kind in index.identifying):
        named = index.named_by(card)
        if not named:
            if card.kind in PRIMARY:
                return f"{card} is no accelerator of the catalogue"
            continue
        if not needed:
            ids, needed = named, (card,)
            continue
        both = ids & named
        if not both:
            return f"labels contradict: {needed[0]} is {_any_of(ids)}, {card} is {_any_of(named)}"
        if both != ids:
            ids, needed = both, (*needed, card)
    if not needed:
        return "no label names the accelerator"
    return ids, needed


def _any_of(ids: frozenset[str]) -> str:
    return " or ".join(sorted(ids))


def _selecting(
    label: CardLabel, accelerator: Accelerator, index: LabelIndex, *, virtual: bool
) -> tuple[str, tuple[str, ...]]:
    """The label with all values that mean this card, so that the selector, and with it the pods'
    template, does not change when a node with another of these values joins."""
    if label.raw != label.value:  # a counter's value is a number of cards
        return label.key, (label.raw,)
    values = index.values_of(label.kind, accelerator.id)
    if label.kind == DEVICE_ID:
        values = tuple(
            value for value in values if (value in accelerator.pci_device_ids_vf) == virtual
        )
    if label.kind == PRODUCT_NAME:
        values = tuple(value for value in values if value.endswith(_VF_PRODUCT_SUFFIX) == virtual)
    others = tuple(value for value in values if value != label.raw)
    return label.key, (label.raw, *others)
