"""Raw ResourceSlices, ResourceClaims and DeviceClasses, as drivers and the API server write them.

Each release of a driver has a function that makes its devices: the names of attributes are those of
its source (dra_drivers.yaml).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.support.fleets.gpu_nodes import raw_node

Raw = dict[str, Any]
NVIDIA = "gpu.nvidia.com"
AMD = "gpu.amd.com"
NVIDIA_RESOURCE = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
AMD_RESOURCE = "deviceclass.resource.kubernetes.io/gpu.amd.com"

H100 = {
    "product": "NVIDIA H100 80GB HBM3",
    "memory": 81559,
    "arch": "Hopper",
    "capability": "9.0.0",
}
MI300X = {
    "product": "AMD_Instinct_MI300X_OAM",
    "device_id": "0x74a1",
    "memory": 196592,
    "units": 304,
}


def nvidia_device(kind: Mapping[str, Any], index: int) -> Raw:
    """A device of kubernetes-sigs/dra-driver-nvidia-gpu@0545e9e5."""
    attributes = _nvidia_attributes(kind, index) | {
        "resource.kubernetes.io/pciBusID": {"string": f"0000:{index:02x}:00.0"},
        "resource.kubernetes.io/numaNode": {"int": index // 4},
    }
    return _device(f"gpu-{index}", attributes, {"memory": f"{kind['memory']}Mi"})


def old_nvidia_device(kind: Mapping[str, Any], index: int) -> Raw:
    """A device of NVIDIA/k8s-dra-driver-gpu@03af8246: another bus id, no NUMA node."""
    attributes = _nvidia_attributes(kind, index) | {
        "pcieBusID": {"string": f"0000:{index:02x}:00.0"},
        "addressingMode": {"string": "HMM"},
    }
    return _device(f"gpu-{index}", attributes, {"memory": f"{kind['memory']}Mi"})


def amd_device(kind: Mapping[str, Any], index: int) -> Raw:
    """A device of ROCm/k8s-gpu-dra-driver@08bc729c."""
    attributes = {
        "type": {"string": "amdgpu"},
        "deviceID": {"string": kind["device_id"]},
        "productName": {"string": kind["product"]},
        "driverVersion": {"version": "6.19.14"},
        "driverVersionFull": {"string": "6.19.14"},
        "partitionProfile": {"string": "spx_nps1"},
        "numaNode": {"int": index // 4},
        "resource.kubernetes.io/pciBusID": {"string": f"0000:{index:02x}:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index:02x}"},
    }
    return _device(f"gpu-{index}-{128 + index}", attributes, _amd_capacity(kind))


def old_amd_device(kind: Mapping[str, Any], index: int) -> Raw:
    """A device of ROCm/k8s-gpu-dra-driver@82fef0ad (2025): its deviceID is an id of KFD."""
    attributes = {
        "type": {"string": "amdgpu"},
        "pciAddr": {"string": f"0003:{index:02x}:02.0"},
        "cardIndex": {"int": index},
        "renderIndex": {"int": 128 + index},
        "deviceID": {"string": str(994913940318892495 + index)},
        "family": {"string": "AI"},
        "productName": {"string": kind["product"]},
        "driverVersion": {"version": "6.12.12"},
        "driverSrcVersion": {"string": "7AA72EC2C8F513519BE86FD"},
        "partitionProfile": {"string": "spx_nps1"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0003:{index:02x}"},
    }
    return _device(f"gpu-{index}-{128 + index}", attributes, _amd_capacity(kind))


DEVICE_OF: dict[str, Callable[[Mapping[str, Any], int], Raw]] = {
    "nvidia-current": nvidia_device,
    "nvidia-previous": old_nvidia_device,
    "amd-current": amd_device,
    "amd-previous": old_amd_device,
}


def driver_of(kind: Mapping[str, Any]) -> str:
    """The driver of a kind of GPU."""
    return AMD if "units" in kind else NVIDIA


def dra_node(name: str, labels: Mapping[str, str] | None = None, **how: Any) -> Raw:
    """A node that no device plugin serves."""
    return raw_node(name, labels or {}, {"cpu": "192", "memory": "2Ti"}, **how)


def gpu_slice(
    node: str,
    kind: Mapping[str, Any] = H100,
    gpus: int = 8,
    *,
    device: Callable[[Mapping[str, Any], int], Raw] | None = None,
    **how: Any,
) -> Raw:
    """The only ResourceSlice of a node with so many GPUs of a kind."""
    make = device or (amd_device if driver_of(kind) == AMD else nvidia_device)
    devices = [make(kind, index) for index in range(gpus)]
    return raw_slice(node, devices, driver=driver_of(kind), **how)


def raw_slice(
    node: str,
    devices: Sequence[Raw],
    *,
    driver: str = NVIDIA,
    name: str | None = None,
    generation: int = 1,
    count: int = 1,
) -> Raw:
    """A ResourceSlice as the API server returns it."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{node}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": count},
            "devices": list(devices),
        },
    }


def claim(
    name: str,
    node: str,
    devices: Sequence[str],
    *,
    driver: str = NVIDIA,
    pods: Sequence[str] = (),
    admin: bool = False,
) -> Raw:
    """An allocated ResourceClaim; `pods` are the uids of those that it is reserved for."""
    access = {"adminAccess": True} if admin else {}
    results = [
        {"request": "gpus", "driver": driver, "pool": node, "device": device, **access}
        for device in devices
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "chat", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpus"}]}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in pods],
        },
    }


def device_class(name: str, extended_resource: str | None = None) -> Raw:
    """A DeviceClass."""
    spec = {"extendedResourceName": extended_resource} if extended_resource else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": spec,
    }


def _nvidia_attributes(kind: Mapping[str, Any], index: int) -> Raw:
    return {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{index:08x}-0000-0000-0000-000000000000"},
        "productName": {"string": kind["product"]},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": kind["arch"]},
        "cudaComputeCapability": {"version": kind["capability"]},
        "driverVersion": {"version": "580.95.5"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index:02x}"},
    }


def _amd_capacity(kind: Mapping[str, Any]) -> dict[str, str]:
    return {
        "memory": f"{kind['memory']}Mi",
        "computeUnits": str(kind["units"]),
        "simdUnits": str(4 * kind["units"]),
    }


def _device(name: str, attributes: Raw, capacity: Mapping[str, str]) -> Raw:
    return {
        "name": name,
        "attributes": attributes,
        "capacity": {key: {"value": value} for key, value in capacity.items()},
    }
