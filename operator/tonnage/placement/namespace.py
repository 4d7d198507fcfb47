"""What a namespace allows its pods: GPUs, resources of a pod, a Pod Security Standard."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tonnage.fleet.nodes.amounts import Amounts


@dataclass(frozen=True, slots=True)
class GpuQuota:
    """ResourceQuota `name` allows `most` GPUs of a resource in its namespace, and pods use `used`
    of them."""

    name: str
    resource: str
    most: int
    used: int

    @property
    def left(self) -> int:
        """GPUs that further pods may request."""
        return max(0, self.most - self.used)

    def without(self, own: int) -> "GpuQuota":
        """The quota for an object whose own pods use so many of the GPUs."""
        return replace(self, used=max(0, self.used - own))

    def __str__(self) -> str:
        return f"ResourceQuota {self.name} leaves {self.left} of {self.most} {self.resource}"


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
    """What the objects of a namespace, and its labels, allow its pods. `quotas` has one for each
    resource; what the operator may not read does not limit."""

    quotas: tuple[GpuQuota, ...] = ()
    limit_range_items: tuple[LimitRangeItem, ...] = ()
    pod_security: PodSecurityLevel = PodSecurityLevel.PRIVILEGED

    @property
    def of_pods(self) -> "NamespaceLimits":
        """Those that each pod has to meet by itself."""
        return replace(self, quotas=())


UNLIMITED: Final = NamespaceLimits()
