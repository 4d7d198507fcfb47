"""The ResourceSlices of a fleet whose GPUs a driver for Dynamic Resource Allocation publishes, and
the DeviceClasses of the drivers. Pure: no cluster, no clock."""

from __future__ import annotations

from typing import Any

from e2e.nodes.descriptions import GROUP_ANNOTATION, Group, gpus_of, parse_groups
from e2e.nodes.labels import catalogue, vendor_of
from tests.support.fleets.dra_objects import (
    AMD,
    DEVICE_OF,
    NVIDIA,
    device_class,
    driver_of,
    gpu_slice,
)

_MIB_PER_GIB = 1024
_WHOLE_GPU = {AMD: "amdgpu", NVIDIA: "gpu"}


def render_slices(description: Any) -> list[dict[str, Any]]:
    """Return the ResourceSlice of each node of a group with a `draDriver`."""
    return [
        _slice(group, f"{group.name}-{number}")
        for group in parse_groups(description)
        if group.draDriver is not None
        for number in range(group.count)
    ]


def render_device_classes(slices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the DeviceClass of each driver that publishes slices, as the driver's chart has it."""
    drivers = sorted({body["spec"]["driver"] for body in slices})
    return [device_class(driver) | {"spec": _selector(driver)} for driver in drivers]


def _selector(driver: str) -> dict[str, Any]:
    whole = f'device.attributes["{driver}"].type == "{_WHOLE_GPU[driver]}"'
    return {"selectors": [{"cel": {"expression": f'device.driver == "{driver}" && {whole}'}}]}


def _slice(group: Group, node: str) -> dict[str, Any]:
    kind = _kind(str(group.accelerator))
    vendor = "amd" if driver_of(kind) == AMD else "nvidia"
    device = DEVICE_OF[f"{vendor}-{group.draDriver}"]
    body = gpu_slice(node, kind, gpus_of(group), device=device)
    body["metadata"]["labels"] = {GROUP_ANNOTATION: group.name}
    return body


def _kind(accelerator: str) -> dict[str, Any]:
    """What the driver states of an accelerator, from what the labeller states of it."""
    vendor = vendor_of(accelerator)
    assert vendor is not None, "parse_groups refuses unknown accelerators"
    facts = catalogue()[vendor][accelerator]
    if vendor == "amd":
        return {
            "product": facts["product"],
            "device_id": f"0x{facts['deviceId']}",
            "memory": facts["vramGiB"] * _MIB_PER_GIB,
            "units": facts["computeUnits"],
        }
    return {
        # The labeller replaces the spaces of the product name.
        "product": facts["product"].replace("-", " "),
        "memory": facts["memoryMiB"],
        "arch": facts["family"].title(),
        "capability": f"{facts['compute']}.0",
    }
