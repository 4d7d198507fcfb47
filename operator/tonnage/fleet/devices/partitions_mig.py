"""MIG devices: the profile of the devices behind a resource, and what one of them is.

Under the strategy mixed every profile is a resource of its own, nvidia.com/mig-3g.40gb. Under
the strategy single, nvidia.com/gpu counts MIG devices of one profile, with which the product label
ends (...-MIG-1g.10gb); GKE uses a separate label.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.model import Accelerator, MigGeometry
from tonnage.fleet.devices.label_index import PRODUCT, show_label
from tonnage.fleet.devices.resources import NotPlannableError, read_count
from tonnage.fleet.model import Partition

GKE_PROFILE: Final = "cloud.google.com/gke-gpu-partition-size"
_RESOURCE_PREFIX: Final = "nvidia.com/mig-"
_WHOLE_OR_SINGLE: Final = "nvidia.com/gpu"
_IN_PRODUCT: Final = "-MIG-"
_SHARED_SUFFIX: Final = "-SHARED"
_LAYOUT: Final = "nvidia.com/mig.config"  # the layout that NVIDIA's MIG manager has made

# NVIDIA MIG user guide, device names: [compute slices]c.[slices]g.[memory]gb, then attributes such
# as +me, where the device plugin writes a dot for the plus.
_PROFILE: Final = re.compile(
    r"(?P<compute>[1-9]c\.)?(?P<slices>[1-9])g\.(?P<gigabytes>[0-9]{1,4})gb(?P<more>[a-z.+-]{0,20})"
)
_MIB: Final = 1024**2
_GB: Final = 10**9


@dataclass(frozen=True, slots=True)
class MigDevices:
    """Devices of one profile: its name, the label or resource that names it, and the labels that
    distinguish nodes with this layout from others with the same cards."""

    profile: str
    source: str
    selector: Mapping[str, tuple[str, ...]]


def find_mig(resource: str, labels: Mapping[str, str]) -> MigDevices | None:
    """Find the profile of the devices behind an NVIDIA resource, None when they are whole GPUs."""
    if resource.startswith(_RESOURCE_PREFIX):
        profile = resource.removeprefix(_RESOURCE_PREFIX)
        return MigDevices(profile, f"offers {resource}", _select_by(_LAYOUT, labels))
    product = labels.get(PRODUCT, "")
    profile = product.partition(_IN_PRODUCT)[2].removesuffix(_SHARED_SUFFIX)
    if profile:
        return MigDevices(profile, show_label(PRODUCT, product), {})
    profile = labels.get(GKE_PROFILE, "")
    if profile and resource == _WHOLE_OR_SINGLE:
        source = show_label(GKE_PROFILE, profile)
        return MigDevices(profile, source, _select_by(GKE_PROFILE, labels))
    return None


def _select_by(key: str, labels: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {key: (labels[key],)} if key in labels else {}


def mig_partition(
    devices: MigDevices, resource: str, accelerator: Accelerator, labels: Mapping[str, str]
) -> Partition:
    """Return the partition that one of these devices is.

    Raises NotPlannableError for a profile that does not exist or does not suit the card.
    """
    match = _PROFILE.fullmatch(devices.profile)
    if match is None or match["compute"] is not None:
        raise NotPlannableError(_why_no_device(devices, match), in_parts=True)
    geometry, slices = accelerator.mig, int(match["slices"])
    if geometry is None or slices > geometry.slices:
        has = "no MIG" if geometry is None else f"{geometry.slices} slices"
        raise NotPlannableError(f"{devices.source} contradicts {accelerator.id}, which has {has}")
    device_bytes = _device_bytes(geometry, int(match["gigabytes"]), resource, labels)
    whole = accelerator.memory_bytes
    if whole is not None and device_bytes > whole:
        raise NotPlannableError(
            f"{devices.source} contradicts {accelerator.id}, which has less memory than that"
        )
    return Partition(devices.profile, device_bytes, slices / geometry.slices)


def _why_no_device(devices: MigDevices, match: re.Match[str] | None) -> str:
    if match is not None:
        return (
            f"{devices.source}: compute instances share the memory of their GPU instance; "
            "create one compute instance in each GPU instance"
        )
    if devices.profile == "INVALID":
        return (
            f"{devices.source}: the MIG layout does not suit the strategy single; "
            "partition all GPUs of the node the same way, or use the strategy mixed"
        )
    return f"{devices.source}: {devices.profile[:40]!r} is no MIG profile such as 3g.40gb"


def _device_bytes(
    geometry: MigGeometry, gigabytes: int, resource: str, labels: Mapping[str, str]
) -> int:
    """Return the memory of one device: by the label of its resource, else by the profile name."""
    mebibytes = read_count(labels.get(f"{resource}.memory"))
    if mebibytes:
        return int(mebibytes * _MIB * geometry.share_of_label)
    return int(gigabytes * _GB * geometry.share_of_name)
