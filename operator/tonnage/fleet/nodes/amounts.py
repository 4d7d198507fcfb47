"""Reads amounts of CPU, memory, storage and GPUs, and what a pod takes of a node.

Amounts are whole numbers: CPU in thousandths of a core, memory and storage in bytes, everything
else in units. Foreign values never raise: an unreadable amount is left out.
"""

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from tonnage.fleet.devices.resources import as_mapping, as_sequence, shared
from tonnage.fleet.resources import UNKNOWN, Resources

CPU: Final = "cpu"
MEMORY: Final = "memory"
STORAGE: Final = "ephemeral-storage"

Amounts = dict[str, int]
"""Amounts by the name of the resource."""

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY: Final = re.compile(
    r"\+?([0-9]{1,24}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(?:([numkMGTPE]|[KMGTPE]i)|[eE](-?[0-9]{1,2}))?"
)
_SUFFIXES: Final[Mapping[str, Fraction]] = {
    "": Fraction(1),
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", start=1)},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


@lru_cache(maxsize=8192)
def read_amount(text: str, name: str) -> int | None:
    """Read a quantity of the resource `name`, rounded up as the API server does; None where it is
    none."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    amount = Fraction(number) * _SUFFIXES[suffix or ""] * Fraction(10) ** int(exponent or 0)
    return min(UNKNOWN, math.ceil(amount * 1000 if name in _IN_THOUSANDTHS else amount))


_IN_THOUSANDTHS: Final = frozenset({CPU, f"requests.{CPU}", f"limits.{CPU}"})


def read_amounts(quantities: object) -> Amounts:
    """Read a map of quantities such as requests, limits, capacity or hard."""
    amounts: Amounts = {}
    for name, value in as_mapping(quantities).items():
        if isinstance(name, str) and isinstance(value, (str, int, float)):
            amount = read_amount(str(value), name)
            if amount is not None:
                amounts[shared(name)] = amount
    return amounts


def read_size(allocatable: object) -> Resources:
    """Read the allocatable CPU, memory and storage of a node; what it does not state is unknown."""
    amounts = read_amounts(
        {name: value for name, value in as_mapping(allocatable).items() if name in _OF_EVERY_NODE}
    )
    return Resources(0, *(amounts.get(name, UNKNOWN) for name in _OF_EVERY_NODE))


def without_gpus(amounts: Mapping[str, int]) -> Resources:
    """CPU, memory and storage of these amounts."""
    return _share(Resources(0, *(amounts.get(name, 0) for name in _OF_EVERY_NODE)))


_OF_EVERY_NODE: Final = (CPU, MEMORY, STORAGE)


@lru_cache(maxsize=1024)
def _share(resources: Resources) -> Resources:
    """Return the same object for equal ones: tens of thousands of pods have a few."""
    return resources


def pod_requests(spec: Mapping[str, Any]) -> Amounts:
    """Return what the scheduler counts for a pod with this spec.

    The larger of two sums: all containers that run together (containers and sidecars), and the
    peak of the start, when an init container runs next to the sidecars started before it. Requests
    of the pod as a whole replace those sums, and the overhead of its RuntimeClass is added. Source:
    Kubernetes documentation, "Resource sharing within containers" of sidecar containers, "Assign
    Pod-level CPU and memory resources", and "Pod Overhead".
    """
    running = add_amounts(map(container_requests, as_sequence(spec.get("containers"))))
    sidecars: Amounts = {}
    start: Amounts = {}
    for container in as_sequence(spec.get("initContainers")):
        requests = container_requests(container)
        if as_mapping(container).get("restartPolicy") == "Always":
            sidecars = add_amounts((sidecars, requests))
        else:
            start = _largest((start, add_amounts((sidecars, requests))))
    effective = (
        _largest((add_amounts((running, sidecars)), start)) if sidecars or start else running
    )
    whole = spec.get("resources")
    if whole is not None:
        effective = {**effective, **container_requests({"resources": whole})}
    overhead = spec.get("overhead")
    return add_amounts((effective, read_amounts(overhead))) if overhead is not None else effective


def container_requests(container: object) -> Amounts:
    """Read one container's requests; the API server copies a limit without a request to the
    request."""
    resources = as_mapping(as_mapping(container).get("resources"))
    limits, requests = resources.get("limits"), resources.get("requests")
    if not limits:
        return read_amounts(requests)
    return {**read_amounts(limits), **read_amounts(requests)}


def add_amounts(parts: Iterable[Mapping[str, int]]) -> Amounts:
    """Add amounts of the same resources."""
    total: Amounts = {}
    for part in parts:
        for resource, amount in part.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _largest(parts: Iterable[Amounts]) -> Amounts:
    largest: Amounts = {}
    for part in parts:
        for resource, amount in part.items():
            largest[resource] = max(largest.get(resource, 0), amount)
    return largest
