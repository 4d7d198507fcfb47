"""What a namespace allows its pods: resources of all and of each, a Pod Security Standard."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tonnage.fleet.nodes.affinity import Expression
from tonnage.fleet.nodes.amounts import Amounts

PODS: Final = "pods"
"""The resource of which each pod uses one."""

_GIB: Final = 2**30
_UNITS: Final = {
    "cpu": (1000, "CPUs"),
    "memory": (_GIB, "GiB of memory"),
    "ephemeral-storage": (_GIB, "GiB of ephemeral storage"),
}


def _show(resource: str, *amounts: int) -> tuple[str, ...]:
    """The amounts of a resource in its unit, without an exponent, and the unit."""
    divisor, unit = _UNITS.get(resource, (1, resource))
    numbers = (f"{amount / divisor:.2f}".rstrip("0").rstrip(".") for amount in amounts)
    return *numbers, unit


def format_amount(resource: str, amount: int) -> str:
    """Format an amount of a resource with its unit."""
    return " ".join(_show(resource, amount))


@dataclass(frozen=True, slots=True)
class Quota:
    """ResourceQuota `name` allows the pods of its namespace `most` of a resource, and they use
    `used` of it: of their requests, or of their limits. `priority` is what the PriorityClass of a
    pod has to meet to be counted."""

    name: str
    resource: str
    most: int
    used: int
    of_limits: bool = False
    priority: tuple[Expression, ...] = ()

    @property
    def left(self) -> int:
        """What further pods may use."""
        return max(0, self.most - self.used)

    @property
    def key(self) -> str:
        """The resource, and whether it is of requests or limits, in the keys of usage."""
        if self.resource == PODS:
            return PODS
        return f"{'limits' if self.of_limits else 'requests'}.{self.resource}"

    def counts(self, priority_class: str | None) -> bool:
        """Whether it counts pods of this PriorityClass."""
        return all(expression.admits(priority_class) for expression in self.priority)

    def without(self, own: int) -> "Quota":
        """The quota for an object whose own pods use so much."""
        return replace(self, used=max(0, self.used - own))

    def explain(self, need: int) -> str:
        """Say that it leaves too little for replicas that need so much each."""
        left, most, needed, unit = _show(self.resource, self.left, self.most, need)
        kind = " as limits" if self.of_limits else ""
        return (
            f"ResourceQuota {self.name} leaves {left} of {most} {unit}{kind}, and a replica needs"
            f" {needed}; raise the quota"
        )


class LimitType(StrEnum):
    """What an item of a LimitRange limits; items for claims do not concern pods."""

    CONTAINER = "Container"
    POD = "Pod"


@dataclass(frozen=True, slots=True)
class LimitRangeItem:
    """An item of the LimitRange `name`, with the amounts of the API fields of the same name."""

    name: str
    type: LimitType
    min: Amounts = ()
    max: Amounts = ()
    default: Amounts = ()
    default_request: Amounts = ()
    max_limit_request_ratio: Amounts = ()
    """In thousandths, of every resource."""


class PodSecurityLevel(StrEnum):
    """The Pod Security Standard that a namespace enforces."""

    PRIVILEGED = "privileged"
    BASELINE = "baseline"
    RESTRICTED = "restricted"


@dataclass(frozen=True, slots=True)
class NamespaceLimits:
    """What the objects of a namespace, and its labels, allow its pods. What the operator may not
    read does not limit. `own_usage` is what the pods of one object use of the quotas, by their
    keys; without quotas it is not read."""

    quotas: tuple[Quota, ...] = ()
    limit_range_items: tuple[LimitRangeItem, ...] = ()
    pod_security: PodSecurityLevel = PodSecurityLevel.PRIVILEGED
    own_usage: Amounts = ()

    @property
    def of_pods(self) -> "NamespaceLimits":
        """Those that each pod has to meet by itself, whatever others use."""
        quotas = tuple(replace(quota, used=0) for quota in self.quotas)
        return replace(self, quotas=quotas, own_usage=())


UNLIMITED: Final = NamespaceLimits()
