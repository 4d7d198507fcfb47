"""Raw Node and Pod objects with the labels that the vendors' labellers write."""

from collections.abc import Mapping
from typing import Any

from tonnage.fleet.model import FleetSnapshot
from tonnage.fleet.nodes.node import read_node

Raw = dict[str, Any]

MI300X = {
    "amd.com/gpu.device-id": "74a1",
    "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
    "amd.com/gpu.family": "AI",
    "amd.com/gpu.vram": "192G",
    "amd.com/gpu.cu-count": "304",
    "amd.com/gpu.simd-count": "1216",
    "amd.com/gpu.driver-version": "6.12.12",
    "amd.com/gpu.compute-memory-partition": "spx_nps1",
    "amd.com/gpu.compute-partitioning-supported": "true",
    "amd.com/gpu.memory-partitioning-supported": "true",
    "beta.amd.com/gpu.device-id": "74a1",
    "beta.amd.com/gpu.device-id.74a1": "8",
    "beta.amd.com/gpu.vram": "192G",
    "beta.amd.com/gpu.vram.192G": "8",
    "beta.amd.com/gpu.cu-count.304": "8",
}
MI355X = MI300X | {
    "amd.com/gpu.device-id": "75a3",
    "amd.com/gpu.product-name": "AMD_Instinct_MI355X_OAM",
    "amd.com/gpu.vram": "288G",
    "amd.com/gpu.cu-count": "256",
    "amd.com/gpu.simd-count": "1024",
    "beta.amd.com/gpu.device-id": "75a3",
}

UNPRICED = {"amd.com/gpu.device-id": "75a0"}
"""MI350X: the price list has none."""


def nvidia_labels(product: str, memory_mib: int, count: int = 8, **further: str) -> dict[str, str]:
    """What GPU feature discovery writes; `further` by the label's last part (dots as `_`)."""
    labels = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": str(memory_mib),
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/vgpu.present": "false",
    }
    return labels | further


H100 = nvidia_labels("NVIDIA-H100-80GB-HBM3", 81559)
H200 = nvidia_labels("NVIDIA-H200", 143771)
L40S = nvidia_labels("NVIDIA-L40S", 46068, count=4)


def raw_node(
    name: str,
    labels: Mapping[str, Any],
    resources: Mapping[str, Any],
    *,
    taints: list[Raw] | None = None,
    cordoned: bool = False,
    ready: str = "True",
) -> Raw:
    """A Node as the API server returns it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **labels,
            },
        },
        "spec": {"taints": taints or [], "unschedulable": cordoned},
        "status": {
            "capacity": {"cpu": "192", "memory": "2Ti", **resources},
            "allocatable": {"cpu": "191", "memory": "2000Gi", **resources},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": ready},
            ],
        },
    }


def amd_node(name: str, labels: Mapping[str, str] = MI300X, gpus: int = 8, **how: Any) -> Raw:
    return raw_node(name, labels, {"amd.com/gpu": str(gpus)}, **how)


def nvidia_node(name: str, labels: Mapping[str, str] = H100, gpus: int = 8, **how: Any) -> Raw:
    return raw_node(name, labels, {"nvidia.com/gpu": str(gpus)}, **how)


def with_resources(node: Raw, resources: Mapping[str, str]) -> Raw:
    """The node with more extended resources."""
    status = dict(node["status"])
    for name in ("capacity", "allocatable"):
        status[name] = {**status[name], **resources}
    return {**node, "status": status}


def mixed_fleet(*, amd: bool = True, **amd_how: Any) -> list[Raw]:
    """4 x 8 MI300X, 4 x 8 H100 SXM, 2 x 8 H200, 1 x 8 MI355X, 2 x 4 L40S."""
    nodes = [nvidia_node(f"h100-{number}") for number in range(4)]
    nodes += [nvidia_node(f"h200-{number}", H200) for number in range(2)]
    nodes += [nvidia_node(f"l40s-{number}", L40S, gpus=4) for number in range(2)]
    if amd:
        nodes += [amd_node(f"mi300x-{number}", **amd_how) for number in range(4)]
        nodes += [amd_node("mi355x-0", MI355X, **amd_how)]
    return nodes


def snapshot_of(nodes: list[Raw], **more: Any) -> FleetSnapshot:
    return FleetSnapshot(nodes=tuple(read_node(node) for node in nodes), **more)


def gpu_pod_body(
    name: str,
    *,
    node: str | None = None,
    labels: Mapping[str, Any] | None = None,
    phase: str = "Running",
    gpus: Mapping[str, Any] | None = None,
) -> Raw:
    """A Pod of one container; `gpus` by vendor, for example {"nvidia": "1"}."""
    limits = {f"{vendor}.com/gpu": count for vendor, count in (gpus or {}).items()}
    return {
        "metadata": {"name": name, "namespace": "chat", "uid": f"uid-{name}", "labels": labels},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}],
        },
        "status": {"phase": phase},
    }
