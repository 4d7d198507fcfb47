"""Names of discovered pools: "<vendor>-<accelerator>", and more only where two would be alike."""

import re
from collections.abc import Iterable
from typing import Final

from tonnage.api.names import MAX_NAME_LENGTH
from tonnage.fleet.recognise import Recognised
from tonnage.fleet.resources import vendor_of

_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9]+")


def name_recognised(card: Recognised, told_by: str) -> str:
    """Name for nodes with this card; `told_by` is the label that tells them from others with the
    same card, empty when there are none."""
    parts = [card.accelerator.vendor.value, card.accelerator.id]
    if card.virtual_function:
        parts.append("vf")
    if card.resource != card.accelerator.resource:
        parts.append(card.resource.partition("/")[2])
    elif card.partition is not None:
        parts.append(card.partition.mode)
    if told_by:
        parts.append(told_by.rpartition("/")[2])
    return _as_name(parts)


def name_unrecognised(resource: str) -> str:
    """Name for nodes that offer this resource and whose card is not known."""
    kind = resource.partition("/")[2]
    parts = [vendor_of(resource).value, "unrecognised"]
    return _as_name(parts if kind == "gpu" else [*parts, kind])


def unique(name: str, taken: set[str]) -> str:
    """`name`, or with a number when it is taken (a declared pool may have it), added to `taken`."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name[: MAX_NAME_LENGTH - len(str(number)) - 1]}-{number}"
    taken.add(candidate)
    return candidate


def _as_name(parts: Iterable[str]) -> str:
    return _NOT_IN_A_NAME.sub("-", "-".join(parts).lower())[:MAX_NAME_LENGTH].strip("-")
