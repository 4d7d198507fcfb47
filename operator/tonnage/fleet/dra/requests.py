"""What a claim of a pool's pods requests: the DeviceClass, a selector in CEL, and constraints.

The scheduler aborts on a missing key, so each attribute is read only where the device has it. The
expression depends on the accelerator alone, never on the nodes that exist now: it is part of the
pod template.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tonnage.api.pool import AcceleratorPoolSpec, Allocation, DeviceAlignment
from tonnage.catalog.dra_drivers import PCIE_ROOT, DraDriver, StatedAttribute
from tonnage.catalog.model import Accelerator
from tonnage.fleet.devices.resources import dra_driver_of
from tonnage.fleet.model import ClaimRequest

_MIB: Final = 1024**2
_LEAST_SHARE: Final = 0.9
"""Of the catalogue's memory, which is what torch sees. Drivers state a few per cent more."""

_DEVICE_ID: Final = "amd.com/gpu.device-id"
_VIRTUAL_FUNCTION: Final = "_VF"
"""How the amdgpu driver ends the product name of a virtual function."""


def request_of(
    resource: str,
    accelerator: Accelerator | None,
    declared: AcceleratorPoolSpec | None,
    aligned: Mapping[str, int],
    *,
    virtual_function: bool,
) -> ClaimRequest | None:
    """Return what claims of a pool request; None where its pods request an extended resource."""
    driver = dra_driver_of(resource)
    if driver is None or accelerator is None:
        return None
    if declared is not None and declared.allocation is Allocation.EXTENDED_RESOURCE:
        return None
    named = declared is not None and declared.accelerator is not None
    alignment = declared.device_alignment if declared else None
    attribute = aligning_attribute(alignment, driver)
    return ClaimRequest(
        device_class=driver.device_class,
        selectors=(
            _equals(driver, "type", [driver.whole_gpu]),
            *(() if named else _product(driver, accelerator, virtual=virtual_function)),
            *_memory(driver, accelerator, virtual=virtual_function),
        ),
        aligned_by=attribute,
        most_aligned=aligned.get(attribute, 0) if attribute else 0,
    )


def aligning_attribute(alignment: DeviceAlignment | None, driver: DraDriver) -> str | None:
    """The attribute of devices whose value all GPUs of an aligned pod share; None where pods are
    not aligned."""
    match alignment:
        case DeviceAlignment.NUMA_NODE:
            return driver.numa_node
        case DeviceAlignment.PCIE_ROOT:
            return PCIE_ROOT
        case None:
            return None


def _product(driver: DraDriver, accelerator: Accelerator, *, virtual: bool) -> Iterable[str]:
    """One of the attributes that name the accelerator in the catalogue."""
    named = [
        _equals(driver, stated.attribute, values, spaces=stated.spaces)
        for stated in driver.attributes
        if (values := _values_of(stated, accelerator, virtual=virtual))
    ]
    if named:
        yield named[0] if len(named) == 1 else " || ".join(f"({each})" for each in named)


def _values_of(
    stated: StatedAttribute, accelerator: Accelerator, *, virtual: bool
) -> tuple[str, ...]:
    """The values of an attribute that the catalogue has for the accelerator, or for its virtual
    functions."""
    if stated.label == _DEVICE_ID:
        ids = accelerator.pci_device_ids_vf if virtual else accelerator.pci_device_ids
        return tuple(f"0x{each}" for each in ids)
    return tuple(
        value
        for match in accelerator.matches
        if match.label == stated.label
        for value in match.values
        if value.endswith(_VIRTUAL_FUNCTION) == virtual
    )


def _equals(driver: DraDriver, attribute: str, values: Iterable[str], spaces: str = " ") -> str:
    path = f'device.attributes["{driver.driver}"]'
    listed = ", ".join(f'"{value}"' for value in values)
    read = f"{path}.{attribute}"
    if spaces != " ":
        read += f'.replace(" ", "{spaces}")'
    return f'"{attribute}" in {path} && {read} in [{listed}]'


def _memory(driver: DraDriver, accelerator: Accelerator, *, virtual: bool) -> Iterable[str]:
    """As much memory as the fit counts on; 0 is unknown, and such a device is what it is called."""
    whole = accelerator.memory_bytes_vf if virtual else accelerator.memory_bytes
    if whole is None:
        return
    path = f'device.capacity["{driver.driver}"]'
    least = f"{int(whole * _LEAST_SHARE) // _MIB}Mi"
    enough = f'{path}.memory.compareTo(quantity("{least}")) >= 0'
    unknown = f'{path}.memory.compareTo(quantity("0")) == 0'
    yield f'"memory" in {path} && ({enough} || {unknown})'
