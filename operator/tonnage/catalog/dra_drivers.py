"""Drivers of Dynamic Resource Allocation that publish GPUs, from dra_drivers.yaml."""

import re
from collections.abc import Mapping
from datetime import date
from functools import cached_property, lru_cache
from typing import Final

from tonnage.catalog.data_files import Entry, PositiveInt, read_data_file
from tonnage.catalog.model import Vendor

PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
"""Kubernetes' own attribute: equal for devices of one PCIe root complex."""


class StatedAttribute(Entry):
    """An attribute of a device that states what a node label states."""

    attribute: str
    label: str
    spaces: str = " "
    pattern: str = ".+"

    def label_value(self, value: str) -> str | None:
        """The value as the label has it; None for a value that states nothing."""
        if re.fullmatch(self.pattern, value) is None:
            return None
        return value.strip().replace(" ", self.spaces) or None


class StatedCapacity(Entry):
    """A capacity of a device that states what a node label states, in units of `unit` bytes."""

    capacity: str
    label: str
    unit: PositiveInt
    suffix: str = ""

    def label_value(self, amount: int) -> str | None:
        """The amount as the label has it; None for 0, which drivers publish for unknown."""
        return f"{round(amount / self.unit)}{self.suffix}" if amount > 0 else None


class DraDriver(Entry):
    """A driver: how its devices state what they are.

    `whole_gpu` is the `type` of a whole GPU, `other_types` says what devices of other types are.
    """

    driver: str
    vendor: Vendor
    device_class: str
    whole_gpu: str
    other_types: Mapping[str, str]
    attributes: tuple[StatedAttribute, ...]
    capacities: tuple[StatedCapacity, ...]
    arch: str | None = None
    cuda: str | None = None
    driver_version: str
    numa_node: str
    source: str
    date: date

    @cached_property
    def read_names(self) -> Mapping[str, str]:
        """The attributes and capacities that say what a device is, as a ResourceSlice may write
        them: each with its domain."""
        names = ["type", self.arch, self.cuda, self.numa_node, PCIE_ROOT]
        names += [one.attribute for one in self.attributes]
        names += [one.capacity for one in self.capacities]
        qualified = {self.qualify(name) for name in names if name}
        own = f"{self.driver}/"
        return {name: name for name in qualified} | {
            name.removeprefix(own): name for name in qualified
        }

    def qualify(self, name: str) -> str:
        """The attribute or capacity with its domain, which is the driver's name by default."""
        return name if "/" in name else f"{self.driver}/{name}"


class DraDrivers(Entry):
    """The content of dra_drivers.yaml."""

    compiled: date
    extended_resource_prefix: str
    drivers: tuple[DraDriver, ...]

    @cached_property
    def by_name(self) -> Mapping[str, DraDriver]:
        """The drivers by name."""
        return {driver.driver: driver for driver in self.drivers}

    @cached_property
    def by_resource(self) -> Mapping[str, DraDriver]:
        """The drivers by the resource that stands for their whole GPUs."""
        return {self.resource_of(driver): driver for driver in self.drivers}

    def resource_of(self, driver: DraDriver) -> str:
        """The resource of a driver's whole GPUs: Kubernetes' implicit extended resource of the
        DeviceClass (KEP-5004)."""
        return f"{self.extended_resource_prefix}{driver.device_class}"


@lru_cache(maxsize=1)
def load_dra_drivers() -> DraDrivers:
    """Return the drivers in this package, cached.

    Raises pydantic.ValidationError for an invalid data file.
    """
    return DraDrivers.model_validate(read_data_file("dra_drivers.yaml"))
