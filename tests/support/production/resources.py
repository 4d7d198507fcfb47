"""What pods ask for and nodes have, in the numbers of the scheduler."""

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from tonnage.engines.quantity import parse_quantity
from tonnage.kube.protocol import Object

Amounts = Counter[str]
"""By resource. The amounts are fractions, which a Counter adds as it adds whole numbers."""


def amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    """A resource list as numbers."""
    parsed = {name: parse_quantity(str(text)) for name, text in (quantities or {}).items()}
    return Counter(parsed)


def requests_of(pod: Object) -> Amounts:
    """What the scheduler sets aside for the pod: its containers together, or the largest init
    container. A limit without a request is the request."""
    spec = pod["spec"]
    running = _sum(map(container_requests, spec["containers"]))
    for container in spec.get("initContainers", []):
        running |= container_requests(container)
    return running


def limits_of(pod: Object) -> Amounts:
    """The limits of its containers together."""
    return _sum(map(container_limits, pod["spec"]["containers"]))


def container_requests(container: Mapping[str, Any]) -> Amounts:
    """What one container asks for."""
    resources = container.get("resources", {})
    return amounts({**resources.get("limits", {}), **resources.get("requests", {})})


def container_limits(container: Mapping[str, Any]) -> Amounts:
    """What one container may take at most."""
    return amounts(container.get("resources", {}).get("limits"))


def has_finished(pod: Object) -> bool:
    """Whether the pod has ended for good: it takes nothing any more."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = Counter()
    for part in parts:
        total.update(part)
    return total


def format_quantity(amount: Fraction | int) -> str:
    """Whole numbers, binary where that is shorter, as Go prints a Quantity made of sums."""
    number = Fraction(amount)
    if number.denominator != 1:
        return f"{int(number * 1000)}m"
    whole = int(number)
    for power, suffix in ((3, "Gi"), (2, "Mi"), (1, "Ki")):
        if whole and whole % 1024**power == 0:
            return f"{whole // 1024**power}{suffix}"
    return str(whole)
