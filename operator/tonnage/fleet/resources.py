"""Extended resources of GPUs: which names count, whose they are, and how many there are."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

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


def without_sharing(resource: str) -> str:
    """The resource that a shared one (nvidia.com/gpu.shared, under renameByDefault) stands for."""
    return resource.removesuffix(".shared")


def vendor_of(resource: str) -> Vendor:
    """The vendor whose device plugin offers this GPU resource."""
    return _PREFIXES[resource.partition("/")[0]]


def read_count(value: object) -> int | None:
    """The whole number that a quantity such as 8, "8" or "8k" stands for; None when it is none."""
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


@lru_cache(maxsize=4096)
def shared(text: str) -> str:
    """The same object for the same text: what thousands of nodes and pods say is kept once."""
    return text


def gpu_counts(quantities: object) -> tuple[dict[str, int], str | None]:
    """GPUs by resource name out of a capacity, allocatable or requests map.

    The second part names the first quantity that is no whole number; it counts as 0.
    """
    counts: dict[str, int] = {}
    problem = None
    for name, value in as_mapping(quantities).items():
        # Most are cpu, memory and the like, which the prefix tells sooner.
        if not isinstance(name, str) or not name.startswith(_VENDORS):
            continue
        if _GPU_RESOURCE.fullmatch(name) is None:
            continue
        count = read_count(value)
        if count is None:
            problem = problem or f"{name} is {str(value)[:40]!r}, not a whole number of GPUs"
        counts[shared(name)] = count or 0
    return counts, problem


def as_mapping(value: object) -> Mapping[Any, Any]:
    """`value` where it is a map, an empty one where a hostile object has something else."""
    # A dict is asked for first: whether something is a Mapping takes ten times as long.
    return value if isinstance(value, (dict, Mapping)) else {}


def as_sequence(value: object) -> list[Any]:
    """`value` where it is a list, an empty one where a hostile object has something else."""
    return value if isinstance(value, list) else []
