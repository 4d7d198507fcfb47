"""The labels and resources of one node, as the vendor's labeller and device plugin write them.

Pure: data in, data out. The data are in `fleets/labels.yaml`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Labels = dict[str, str]
_DATA = Path(__file__).parents[1] / "fleets" / "labels.yaml"
_PARTITIONS = {"spx": 1, "dpx": 2, "qpx": 4, "cpx": 8}
_MIG_SLICES = {1: 7, 2: 3, 3: 2, 4: 1, 7: 1}  # instances that fit on a GPU, by their `g`
# A MIG instance shows a little less than its name says: 1g.10gb of an A100 has 9728 MiB.
_MIG_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Devices:
    """What a node advertises: labels, extended resources, and the CPU architecture it implies."""

    labels: Labels = field(default_factory=dict)
    resources: dict[str, int] = field(default_factory=dict)


@cache
def catalogue() -> dict[str, Any]:
    """Return the shipped data: drivers, and accelerators by vendor."""
    data: dict[str, Any] = yaml.safe_load(_DATA.read_text(encoding="utf-8"))
    return data


def vendor_of(accelerator: str) -> str | None:
    """Return `amd` or `nvidia`, None for an id that is not known."""
    vendors = (vendor for vendor in ("amd", "nvidia") if accelerator in catalogue()[vendor])
    return next(vendors, None)


def known_accelerators() -> list[str]:
    """Return all ids that a fleet may name."""
    return [*catalogue()["amd"], *catalogue()["nvidia"]]


def amd_devices(
    accelerator: str, count: int, labeller: str, partition: dict[str, str] | None
) -> Devices:
    """Return what ROCm's node labeller and device plugin say about `count` equal devices."""
    facts = catalogue()["amd"][accelerator]
    mode = partition or {}
    compute, memory = mode.get("compute", "spx"), mode.get("memory", "nps1")
    parts = _PARTITIONS[compute]
    resource = f"amd.com/{compute}_{memory}" if mode.get("strategy") == "mixed" else "amd.com/gpu"
    labels: Labels = {}
    if labeller == "amd":
        labels = _amd_labels(facts, count * parts, parts, f"{compute}_{memory}")
    elif labeller == "nfd":
        labels = {"feature.node.kubernetes.io/amd-gpu": "true"}
        if "nfd" in facts:
            labels[f"feature.node.kubernetes.io/{facts['nfd']}"] = "true"
    return Devices(labels, {resource: count * parts})


def _amd_labels(facts: dict[str, Any], devices: int, parts: int, mode: str) -> Labels:
    units = facts["computeUnits"] // parts
    driver = catalogue()["driver"]["amd"]["version"]
    values = {
        "device-id": str(facts["deviceId"]),
        "product-name": facts["product"],
        "family": "AI",
        "vram": f"{facts['vramGiB'] // parts}G",
        "cu-count": str(units),
        "simd-count": str(units * 4),
        "driver-version": driver,
    }
    labels: Labels = {}
    for kind, value in values.items():
        labels[f"amd.com/gpu.{kind}"] = value
        # The older key, and the older counter that carries the value in its name.
        labels[f"beta.amd.com/gpu.{kind}"] = value
        labels[f"beta.amd.com/gpu.{kind}.{value}"] = str(devices)
    if facts.get("partitions"):
        labels["amd.com/gpu.compute-memory-partition"] = mode
        labels["amd.com/gpu.compute-partitioning-supported"] = "true"
        labels["amd.com/gpu.memory-partitioning-supported"] = "true"
    return labels


def nvidia_devices(
    accelerator: str,
    count: int,
    labeller: str,
    *,
    sharing: dict[str, Any] | None = None,
    mig: dict[str, str] | None = None,
) -> Devices:
    """Return what GPU feature discovery and the device plugin say about `count` equal devices."""
    facts = catalogue()["nvidia"][accelerator]
    strategy, replicas = (sharing or {}).get("strategy", "none"), (sharing or {}).get("replicas", 1)
    resource = (
        "nvidia.com/gpu.shared" if (sharing or {}).get("renameByDefault") else "nvidia.com/gpu"
    )
    suffix = "-SHARED" if sharing and resource == "nvidia.com/gpu" else ""
    resources = {resource: count * replicas}
    labels = _nvidia_labels(facts, count) | {
        "nvidia.com/gpu.product": f"{facts['product']}{suffix}",
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.sharing-strategy": strategy,
    }
    if mig:
        extra, resources = _mig(facts, count, mig)
        labels |= extra
    if labeller == "nfd":
        labels = {"feature.node.kubernetes.io/pci-10de.present": "true"}
    return Devices(labels if labeller != "none" else {}, resources)


def _nvidia_labels(facts: dict[str, Any], count: int) -> Labels:
    versions = catalogue()["driver"]["nvidia"]
    major, minor = facts["compute"].split(".")
    driver = dict(zip(("major", "minor", "revision"), versions["driver"].split("."), strict=True))
    runtime = dict(zip(("major", "minor"), versions["runtime"].split("."), strict=True))
    labels = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.memory": str(facts["memoryMiB"]),
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.family": facts["family"],
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/mig.capable": str(bool(facts.get("mig"))).lower(),
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/mps.capable": "false",
        "nvidia.com/vgpu.present": "false",
        "nvidia.com/cuda.driver-version.full": versions["driver"],
        "nvidia.com/cuda.runtime-version.full": versions["runtime"],
    }
    labels |= {f"nvidia.com/cuda.driver-version.{part}": value for part, value in driver.items()}
    return labels | {f"nvidia.com/cuda.runtime-version.{part}": v for part, v in runtime.items()}


def _mig(facts: dict[str, Any], count: int, mig: dict[str, str]) -> tuple[Labels, dict[str, int]]:
    """Return the labels and resources of GPUs that are all cut into one MIG profile."""
    profile = mig["profile"]
    slices, _, memory = profile.partition("g.")
    instances = count * _MIG_SLICES[int(slices)]
    memory_mib = str(int(int(memory.removesuffix("gb")) * 1024 * _MIG_SHARE))
    product = f"{facts['product']}-MIG-{profile}"
    if mig["strategy"] == "single":
        labels = {
            "nvidia.com/mig.strategy": "single",
            "nvidia.com/gpu.product": product,
            "nvidia.com/gpu.memory": memory_mib,
            "nvidia.com/gpu.count": str(instances),
            "nvidia.com/gpu.slices.gi": slices,
            "nvidia.com/gpu.slices.ci": slices,
        }
        return labels, {"nvidia.com/gpu": instances}
    key = f"nvidia.com/mig-{profile}"
    labels = {
        "nvidia.com/mig.strategy": "mixed",
        f"{key}.product": product,
        f"{key}.count": str(instances),
        f"{key}.memory": memory_mib,
        f"{key}.replicas": "1",
        f"{key}.sharing-strategy": "none",
        f"{key}.slices.gi": slices,
        f"{key}.slices.ci": slices,
    }
    return labels, {key: instances, "nvidia.com/gpu": 0}
