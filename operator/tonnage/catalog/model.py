"""The catalogue's entries as frozen data."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final

from pydantic import ConfigDict

STRICT: Final = ConfigDict(extra="forbid", defer_build=True)
"""Loading refuses entries of data files with an unknown key. See `data_files.Entry` on
`defer_build`."""


class Vendor(StrEnum):
    """The maker of the accelerator; decides image, resource name and environment."""

    AMD = "amd"
    NVIDIA = "nvidia"


@dataclass(frozen=True, slots=True)
class LabelMatch:
    """A node label that identifies an accelerator when it has one of `values`.

    `shared`: other cards, perhaps unlisted ones, have these values too, so another label must
    confirm them. `virtual_function`: the values mean SR-IOV virtual functions of the card.
    """

    label: str
    values: tuple[str, ...]
    shared: bool = False
    virtual_function: bool = False


@dataclass(frozen=True, slots=True)
class ComputePartition:
    """A mode (cpx) that divides a GPU into `parts` devices, and the memory modes it goes with."""

    mode: str
    parts: int
    memory_modes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MigGeometry:
    """The MIG devices of a GPU, and the memory that torch reports for one.

    The profile 3g.40gb has 3 of `slices` compute slices. torch reports at least `share_of_label` of
    the memory that NVML reports (label, MiB), or `share_of_name` of the profile's gigabytes on
    nodes without that label.
    """

    slices: int
    share_of_label: float
    share_of_name: float


@dataclass(frozen=True, slots=True)
class Price:
    """A dated default price of one GPU in US dollars per hour."""

    usd_per_gpu_hour: Decimal
    date: str
    source: str


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One kind of device.

    `memory_bytes` is what torch reports as total (`memory_bytes_vf`: through an SR-IOV virtual
    function), None if unknown: Tonnage recognises such a device but never plans on it. Bandwidths
    are bytes per second, FLOPS dense operations per second. `link_bandwidth` is one direction of a
    GPU's scale-up links to all peers, `pair_bandwidth` to one peer (a mesh has less than a switch).
    `compute_partitions` are the modes of AMD's partitioning, `mig` is None without MIG.
    `driver_mib` is the memory that NVML or KFD reports, None if unknown.
    """

    id: str
    vendor: Vendor
    name: str
    arch: str
    resource: str
    gpus_per_node: int | None
    memory_bytes: int | None
    memory_bytes_vf: int | None
    memory_bandwidth: float | None
    bf16_flops: float | None
    fp8_flops: float | None
    fp4_flops: float | None
    link_bandwidth: float | None
    pair_bandwidth: float | None
    fp8_encoding: str | None
    native_fp4: bool
    supported: bool
    unsupported_reason: str | None
    matches: tuple[LabelMatch, ...]
    pci_device_ids: tuple[str, ...]
    pci_device_ids_vf: tuple[str, ...]
    price: Price | None
    compute_partitions: tuple[ComputePartition, ...] = ()
    mig: MigGeometry | None = None
    driver_mib: int | None = None

    def __hash__(self) -> int:
        return hash(self.id)  # equal accelerators share an id; hashing all fields is slow
