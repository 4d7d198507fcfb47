"""The labels by which a pod's affinity selects nodes with certain devices, and no others.

One cluster may have the same cards whole and partitioned, identified by different labels on
different nodes, under one resource name. So the selector names the mode, too, and nodes that are
identified by a less specific label must not have a more specific one: they are in another pool.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tonnage.catalog.model import Accelerator, Vendor
from tonnage.fleet.devices.identify import PRIMARY_OF, Identified
from tonnage.fleet.devices.label_index import (
    CU_COUNT,
    PARTITION,
    PRIMARY,
    VRAM,
    CardLabel,
    LabelIndex,
)
from tonnage.fleet.devices.partitions_mig import GKE_PROFILE, find_mig
from tonnage.fleet.devices.sharing import GKE_STRATEGY

Selection = tuple[tuple[str, tuple[str, ...]], ...]
"""(key, values) pairs; a node has one of the values of every key."""

ANY_LINUX_NODE: Final[Selection] = (("kubernetes.io/os", ("linux",)),)
"""Selects every node that can run vLLM, by the label that each kubelet sets: for GPUs that a claim
selects by their attributes."""


def selector_for(
    identified: Identified,
    resource: str,
    cards: Sequence[CardLabel],
    labels: Mapping[str, str],
    index: LabelIndex,
) -> Selection:
    """Return the labels that select such nodes, the best first; none where the accelerator is
    declared."""
    if not identified.needed:
        return ()
    accelerator = identified.accelerator
    selector = dict(_selecting(label, accelerator, index) for label in identified.needed)
    mig = find_mig(resource, labels) if accelerator.vendor is Vendor.NVIDIA else None
    if mig is not None:
        return tuple({**selector, **mig.selector}.items())
    if accelerator.compute_partitions and not any(card.kind == PARTITION for card in cards):
        # No label for the mode: the size of a device identifies it.
        sizes = [card for card in cards if card.kind in (CU_COUNT, VRAM)]
        selector |= {card.key: (card.raw,) for card in sizes[:1] if card.key not in selector}
    return tuple(selector.items())


def absent_labels(identified: Identified, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return labels that such nodes do not have with any value, and that others with the same
    selector may have: those of the vendor's labeller, and GKE's for shared GPUs."""
    if not identified.needed or identified.needed[0].kind in PRIMARY:
        return ()
    vendor = identified.accelerator.vendor
    keys = [PRIMARY_OF[vendor]]
    if vendor is Vendor.NVIDIA:
        keys += [GKE_STRATEGY, GKE_PROFILE]
    return tuple(key for key in keys if key not in labels)


def _selecting(
    label: CardLabel, accelerator: Accelerator, index: LabelIndex
) -> tuple[str, tuple[str, ...]]:
    """Return the label with all values for this card, so that the selector, and with it the pod
    template, does not change when a node with another of these values joins."""
    if label.raw != label.value:  # a counter's value is a number of cards, a MIG product a profile
        return label.key, (label.raw,)
    values = index.values_like(label, accelerator.id)
    others = tuple(value for value in values if value != label.raw)
    return label.key, (label.raw, *others)
