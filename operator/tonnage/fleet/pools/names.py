"""The names of pools, which depend on the pools that exist and never on their order of arrival."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tonnage.api.names import MAX_NAME_LENGTH
from tonnage.api.shard import Shard
from tonnage.fleet.devices.recognize import Recognised
from tonnage.fleet.devices.resources import dra_driver_of, vendor_of
from tonnage.fleet.nodes.node_class import DeclaredGroup, GroupKey, KnownGroup, UnknownGroup
from tonnage.fleet.pools.group import Group


def name_groups(groups: Mapping[GroupKey, Group], shard: Shard) -> dict[GroupKey, str]:
    """Name every group, declared ones first, each by name.

    Of groups with the same devices, the one identified by the best label has the plain name. The
    name of a discovered group includes the shard: another shard may have the same devices.
    """
    declared = sorted(key.name for key in groups if isinstance(key, DeclaredGroup))
    taken = set(declared)
    discovered: dict[str, GroupKey] = {}
    for keys in _group_by_devices([key for key in groups if isinstance(key, KnownGroup)]):
        cards = {key: _first_card(groups[key]) for key in keys}
        ranked = sorted(keys, key=lambda key: (cards[key].rank, key.identified_by))
        for place, key in enumerate(ranked):
            label = key.identified_by[0] if place else ""
            name = shard.qualify(name_recognised(cards[key], label))
            discovered[unique(name, taken)] = key
    for resource in sorted(_unknown_resources(groups)):
        name = unique(shard.qualify(name_unrecognised(resource)), taken)
        discovered[name] = UnknownGroup(resource)
    return {
        **{DeclaredGroup(name): name for name in declared},
        **{key: name for name, key in sorted(discovered.items())},
    }


def _group_by_devices(keys: Iterable[KnownGroup]) -> Iterable[list[KnownGroup]]:
    """Return lists of groups with the same devices, in the order of the devices."""
    by_devices: dict[tuple[str, bool, str, str], list[KnownGroup]] = {}
    for key in keys:
        devices = (key.accelerator, key.virtual_function, key.resource, key.mode)
        by_devices.setdefault(devices, []).append(key)
    return (by_devices[devices] for devices in sorted(by_devices))


def _first_card(group: Group) -> Recognised:
    recognitions = (node_class.recognition for node_class in group.classes)
    cards = [card for card in recognitions if isinstance(card, Recognised)]
    return min(cards, key=lambda card: (card.rank, card.selector))


def _unknown_resources(groups: Iterable[GroupKey]) -> Iterable[str]:
    return (key.resource for key in groups if isinstance(key, UnknownGroup))


_CLAIMED: Final = "dra"
"""Part of the name of pools whose pods get GPUs by ResourceClaims. A pool keeps its name when nodes
with the same card come that a device plugin serves."""

_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9]+")


def name_recognised(card: Recognised, label: str) -> str:
    """Name a pool of nodes with this card; `label` distinguishes them from other nodes with the
    same card, empty when there are none."""
    parts = [card.accelerator.vendor.value, card.accelerator.id]
    if card.virtual_function:
        parts.append("vf")
    is_claimed = dra_driver_of(card.resource) is not None
    if card.resource != card.accelerator.resource and not is_claimed:
        parts.append(card.resource.partition("/")[2])
    elif card.partition is not None:
        parts.append(card.partition.mode)
    if is_claimed:
        parts.append(_CLAIMED)
    if label:
        parts.append(label.rpartition("/")[2])
    return _as_name(parts)


def name_unrecognised(resource: str) -> str:
    """Name a pool of nodes that offer this resource and whose card is unknown."""
    kind = _CLAIMED if dra_driver_of(resource) else resource.partition("/")[2]
    parts = [vendor_of(resource).value, "unrecognised"]
    return _as_name(parts if kind == "gpu" else [*parts, kind])


def unique(name: str, taken: set[str]) -> str:
    """Return `name`, with a number when it is taken (a declared pool may have it), and add it to
    `taken`."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name[: MAX_NAME_LENGTH - len(str(number)) - 1]}-{number}"
    taken.add(candidate)
    return candidate


def _as_name(parts: Iterable[str]) -> str:
    return _NOT_IN_A_NAME.sub("-", "-".join(parts).lower())[:MAX_NAME_LENGTH].strip("-")
