"""Reads amounts of CPU, memory, ephemeral storage, disks for weights and other resources.

Amounts are whole numbers: CPU in thousandths of a core, memory and storage in bytes, GPUs by
number. Foreign values never raise: an unreadable amount is left out.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final

from tonnage.api.pool import NodeDisk
from tonnage.fleet.devices.resources import as_mapping
from tonnage.fleet.resources import UNKNOWN, Resources

Amounts = tuple[tuple[str, int], ...]
"""Resources by name with their amounts, sorted."""

_CPU: Final = "cpu"
_NAMES: Final = (_CPU, "memory", "ephemeral-storage")
"""In the order of the fields of Resources."""

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY: Final = re.compile(
    r"\+?([0-9]{1,32}(?:\.[0-9]{0,32})?|\.[0-9]{1,32})"
    r"(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?"
)
_SUFFIXES: Final[Mapping[str, Fraction]] = {
    "": Fraction(1),
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", start=1)},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


def read_amounts(quantities: object) -> dict[str, int]:
    """Read CPU, memory and storage of a map of quantities such as requests, limits or
    allocatable."""
    given = as_mapping(quantities)
    amounts = {}
    for name in _NAMES:
        amount = read_amount(given.get(name), name == _CPU)
        if amount is not None:
            amounts[name] = amount
    return amounts


def read_all_amounts(quantities: object, in_thousandths: bool = False) -> Amounts:
    """Read the amounts of all resources of a map of quantities, also by the keys of ResourceQuotas
    ("requests.cpu"); `in_thousandths` those of every resource, not of CPU alone."""
    amounts = {}
    for name, value in as_mapping(quantities).items():
        amount = read_amount(value, in_thousandths or str(name).rpartition(".")[2] == _CPU)
        if amount is not None:
            amounts[str(name)] = amount
    return tuple(sorted(amounts.items()))


def read_amount(value: object, in_thousandths: bool = False) -> int | None:
    """Read one quantity, in its own unit or `in_thousandths`; None where it is none."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return _read_amount(str(value), in_thousandths)
    return None


@lru_cache(maxsize=8192)
def _read_amount(text: str, in_thousandths: bool) -> int | None:
    """Read a quantity, rounded up as the API server does; None where it is none."""
    amount = _read_exactly(text)
    if amount is None:
        return None
    return min(UNKNOWN, math.ceil(amount * 1000 if in_thousandths else amount))


def _read_exactly(text: str) -> Fraction | None:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    return Fraction(number) * _SUFFIXES[suffix or ""] * Fraction(10) ** int(exponent or 0)


def read_capacity(disk: NodeDisk) -> int:
    """Read how many bytes a node has for weights: rounded down, in contrast to what is
    requested."""
    capacity = _read_exactly(disk.capacity)
    assert capacity is not None, f"{disk.capacity!r} passed validation"
    return math.floor(capacity)


def read_size(allocatable: object) -> Resources:
    """Read what a node has for pods; what it does not state is unknown."""
    return _resources(read_amounts(allocatable), UNKNOWN)


def as_resources(amounts: Mapping[str, int]) -> Resources:
    """Return the amounts by name as Resources; what they do not name is not requested."""
    return _resources(amounts, 0)


def _resources(amounts: Mapping[str, int], otherwise: int) -> Resources:
    return _shared(Resources(*(amounts.get(name, otherwise) for name in _NAMES)))


@lru_cache(maxsize=4096)
def _shared(resources: Resources) -> Resources:
    """Return the same object for equal ones: tens of thousands of pods have a few."""
    return resources
