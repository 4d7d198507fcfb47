"""The catalogue's entries as frozen data."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final

from pydantic import ConfigDict

STRICT: Final = ConfigDict(extra="forbid")
"""Entries of data files with a key that does not exist are refused when they are loaded."""


class Vendor(StrEnum):
    """Who makes the accelerator; decides image, resource name and environment."""

    AMD = "amd"
    NVIDIA = "nvidia"


@dataclass(frozen=True, slots=True)
class LabelMatch:
    """A node label that identifies an accelerator when it has one of `values`."""

    label: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Price:
    """A dated default price of one GPU for an hour in US dollars."""

    usd_per_gpu_hour: Decimal
    date: str
    source: str


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One kind of device.

    `memory_bytes` is what torch reports as total (`memory_bytes_vf`: through an SR-IOV virtual
    function), None when not known: such a device is recognised but never planned on. Bandwidths are
    bytes a second, FLOPS dense operations a second, `link_bandwidth` one direction of a GPU's
    scale-up links to all peers, `pair_bandwidth` to one peer (a mesh has less than a switch).
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
    fp8_dialect: str | None
    native_fp4: bool
    supported: bool
    unsupported_reason: str | None
    matches: tuple[LabelMatch, ...]
    pci_device_ids: tuple[str, ...]
    pci_device_ids_vf: tuple[str, ...]
    price: Price | None
