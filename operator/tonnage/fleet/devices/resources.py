"""Extended resources of GPUs: names, vendors, and quantities."""

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from tonnage.catalog.dra_drivers import DraDriver, load_dra_drivers
from tonnage.catalog.model import Vendor

_PREFIXES: Final = {"amd.com": Vendor.AMD, "nvidia.com": Vendor.NVIDIA}
_VENDORS: Final = tuple(f"{prefix}/" for prefix in _PREFIXES)

# Names of the vendors' device plugins. AMD: resource naming strategies `single` and `mixed` of
# ROCm/k8s-device-plugin; NVIDIA: whole GPUs, shared ones under renameByDefault, MIG `mixed`.
_GPU_RESOURCE: Final = re.compile(
    r"amd\.com/(gpu|[sdtqc]px_nps[0-9])|nvidia\.com/(gpu|gpu\.shared|mig-[0-9a-z.+-]{1,40})"
)

# Kubernetes' quantity: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY: Final = re.compile(r"([0-9]{1,15})(?:([kMGTPE]|[KMGTPE]i)|[eE]([0-9]{1,2}))?")
_SUFFIXES: Final = {
    **{suffix: 1000**power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": 1024**power for power, suffix in enumerate("KMGTPE", start=1)},
}


_WHOLE_GPUS: Final = {vendor: f"{prefix}/gpu" for prefix, vendor in _PREFIXES.items()}


def whole_gpus(vendor: Vendor) -> str:
    """The resource of a vendor's whole GPUs."""
    return _WHOLE_GPUS[vendor]


def without_sharing(resource: str) -> str:
    """Return the resource that a shared one (nvidia.com/gpu.shared, renameByDefault) replaces."""
    return resource.removesuffix(".shared")


def vendor_of(resource: str) -> Vendor:
    """The vendor whose device plugin or DRA driver offers this GPU resource."""
    driver = dra_driver_of(resource)
    return driver.vendor if driver else _PREFIXES[resource.partition("/")[0]]


def dra_driver_of(resource: str) -> DraDriver | None:
    """The DRA driver whose whole GPUs the resource stands for; None for one of a device plugin."""
    return load_dra_drivers().by_resource.get(resource)


def read_count(value: object) -> int | None:
    """Read the whole number of a quantity such as 8, "8" or "8k"; None when it is not one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    factor: int = _SUFFIXES.get(suffix, 1) * 10 ** int(exponent or 0)
    return int(number) * factor


def shared(text: str) -> str:
    """Return the same object for equal texts, which thousands of nodes and pods repeat, as long as
    one of them exists."""
    return sys.intern(text)


@lru_cache(maxsize=1024)
def shared_counts(counts: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """Return the same object for equal counts of resources, never to be changed: tens of
    thousands of nodes and pods have a few."""
    return dict(counts)


def gpu_counts(quantities: object) -> tuple[dict[str, int], str | None]:
    """Read GPUs by resource name from a capacity, allocatable or requests map.

    The second part names the first quantity that is not a whole number; it counts as 0.
    """
    counts: dict[str, int] = {}
    problem = None
    published = load_dra_drivers().by_resource
    for name, value in as_mapping(quantities).items():
        # Most are cpu, memory and the like: the prefix excludes them faster.
        if not isinstance(name, str) or (name not in published and not name.startswith(_VENDORS)):
            continue
        if name not in published and _GPU_RESOURCE.fullmatch(name) is None:
            continue
        count = read_count(value)
        if count is None:
            problem = problem or f"{name} is {str(value)[:40]!r}, not a whole number of GPUs"
        counts[shared(name)] = count or 0
    return counts, problem


def as_mapping(value: object) -> Mapping[Any, Any]:
    """Return `value` where it is a map, else an empty one: the object may be malformed."""
    # dict comes first: the check for Mapping takes ten times as long.
    return value if isinstance(value, (dict, Mapping)) else {}


def as_sequence(value: object) -> list[Any]:
    """Return `value` where it is a list, else an empty one: the object may be malformed."""
    return value if isinstance(value, list) else []


class NotPlannableError(Exception):
    """Nothing can be planned on these devices; the message names the cause and the remedy.

    `in_parts`: the devices are shares or parts of GPUs that no declaration makes plannable.
    """

    def __init__(self, reason: str, *, in_parts: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.in_parts = in_parts


class UnlabelledError(NotPlannableError):
    """No label names the card; the vendor's labeller may not have run yet."""


class ContradictionError(NotPlannableError):
    """Labels that cannot all be true of one kind of card; no declaration makes them so."""
