"""From a short description of a fleet to Node objects. Pure: no cluster, no clock."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Any

from e2e.harness.failure import HarnessError
from e2e.nodes.labels import (
    Devices,
    amd_devices,
    catalogue,
    known_accelerators,
    nvidia_devices,
    vendor_of,
)

KWOK_ANNOTATION = "kwok.x-k8s.io/node"
GROUP_ANNOTATION = "e2e.tonnage.dev/group"
# "false": the kubelet says that the node is not ready; "unknown": it is silent.
READY_LABEL = "e2e.tonnage.dev/ready"
_KUBELET = "v1.35.4"
_DEFAULT_GPUS = 8
_CHOICES = {
    "sharing.strategy": ("time-slicing", "mps"),
    "mig.strategy": ("single", "mixed"),
    "partition.strategy": ("single", "mixed"),
    "partition.compute": ("spx", "dpx", "qpx", "cpx"),
    "partition.memory": ("nps1", "nps2", "nps4"),
}
_DRA_DRIVERS = ("current", "previous")
_NESTED = {
    "sharing": {"strategy", "replicas", "renameByDefault"},
    "mig": {"strategy", "profile"},
    "partition": {"strategy", "compute", "memory"},
}


@dataclass(frozen=True)
class Group:
    """Equal nodes. The names of the fields are those of the file."""

    name: str
    count: int = 1
    accelerator: str | None = None
    gpusPerNode: int | None = None  # noqa: N815 - spelled as in the file
    labels: dict[str, str] | None = None
    taints: list[dict[str, str]] | None = None
    sharing: dict[str, Any] | None = None
    mig: dict[str, str] | None = None
    partition: dict[str, str] | None = None
    cpu: int | None = None
    memory: str | None = None
    disk: str = "3500Gi"
    resources: dict[str, Any] | None = None
    unschedulable: bool = False
    ready: bool | str = True
    labeller: str | None = None
    draDriver: str | None = None  # noqa: N815 - spelled as in the file


def parse_groups(description: Any) -> list[Group]:
    """Check a description and return its groups; an error names the field and what is expected."""
    entries = description.get("groups") if isinstance(description, dict) else None
    if not isinstance(entries, list) or not entries:
        raise HarnessError("a fleet needs `groups`, a list of {name, count, accelerator, ...}")
    groups = [_parse_group(entry, number) for number, entry in enumerate(entries)]
    twice = [name for name, times in Counter(group.name for group in groups).items() if times > 1]
    if twice:
        raise HarnessError(f"groups[].name {twice[0]!r} is used twice; a node's name comes from it")
    return groups


def _parse_group(entry: Any, number: int) -> Group:
    where = f"groups[{number}]"
    known = {field.name for field in fields(Group)}
    if not isinstance(entry, dict):
        raise HarnessError(f"{where} is {entry!r}, expected a map of {', '.join(sorted(known))}")
    for key in entry.keys() - known:
        raise HarnessError(f"{where}.{key} is not known; known: {', '.join(sorted(known))}")
    group = Group(**{"name": entry.get("accelerator") or "cpu", **entry})
    where = f"{where} ({group.name})"
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", str(group.name)):
        raise HarnessError(f"{where}.name must be a DNS label, as nodes are named after it")
    for name, least in (("count", 0), ("gpusPerNode", 1), ("cpu", 1)):
        value = getattr(group, name)
        if value is not None and (type(value) is not int or value < least):
            raise HarnessError(f"{where}.{name} is {value!r}, expected a number from {least} up")
    for name in ("ready", "unschedulable"):
        value = getattr(group, name)
        if not isinstance(value, bool) and (name, value) != ("ready", "unknown"):
            raise HarnessError(f"{where}.{name} is {value!r}, expected true or false")
    _check_marks(group, where)
    _check_accelerator(group, where)
    _check_dra_driver(group, where)
    for name, keys in _NESTED.items():
        _check_nested(getattr(group, name), keys, f"{where}.{name}", name)
    return group


def _check_marks(group: Group, where: str) -> None:
    """Refuse labels and taints that the API server would refuse later, in less helpful words."""
    if not isinstance(group.labels or {}, dict) or not isinstance(group.taints or [], list):
        raise HarnessError(f"{where}.labels must be a map, and {where}.taints a list")
    for key, value in (group.labels or {}).items():
        if not isinstance(value, str):
            raise HarnessError(f"{where}.labels.{key} is {value!r}, expected text in quotes")
    for number, taint in enumerate(group.taints or []):
        if not isinstance(taint, dict) or not {"key", "effect"} <= taint.keys():
            raise HarnessError(
                f"{where}.taints[{number}] is {taint!r}, expected {{key, value, effect}}"
            )


def _check_accelerator(group: Group, where: str) -> None:
    """Refuse an unknown accelerator, and a mode or labeller of the other vendor."""
    vendor = vendor_of(group.accelerator) if group.accelerator else None
    if group.accelerator and vendor is None:
        known = ", ".join(known_accelerators())
        raise HarnessError(
            f"{where}.accelerator {group.accelerator!r} is not known; known: {known}"
        )
    allowed: dict[str | None, tuple[str, ...]] = {
        "amd": ("amd", "nfd", "none"),
        "nvidia": ("gfd", "nfd", "none"),
        None: ("none",),
    }
    if group.labeller is not None and group.labeller not in allowed[vendor]:
        expected = ", ".join(allowed[vendor])
        raise HarnessError(f"{where}.labeller is {group.labeller!r}, expected one of {expected}")
    for name, owner in (("sharing", "nvidia"), ("mig", "nvidia"), ("partition", "amd")):
        if getattr(group, name) is not None and vendor != owner:
            raise HarnessError(
                f"{where}.{name} needs an accelerator of {owner}, not {group.accelerator!r}"
            )


def _check_dra_driver(group: Group, where: str) -> None:
    """Refuse an unknown release of a driver, and whatever a driver does not publish here."""
    if group.draDriver is None:
        return
    if group.draDriver not in _DRA_DRIVERS:
        expected = " or ".join(_DRA_DRIVERS)
        raise HarnessError(f"{where}.draDriver is {group.draDriver!r}, expected {expected}")
    if group.accelerator is None:
        raise HarnessError(f"{where}.draDriver needs an accelerator")
    for name in ("sharing", "mig", "partition"):
        if getattr(group, name) is not None:
            raise HarnessError(f"{where}.{name} needs a device plugin; remove draDriver")


def _check_nested(value: Any, keys: set[str], where: str, name: str) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise HarnessError(f"{where} is {value!r}, expected a map of {', '.join(sorted(keys))}")
    for key in value.keys() - keys:
        raise HarnessError(f"{where}.{key} is not known; known: {', '.join(sorted(keys))}")
    for key in ("strategy", "compute", "memory"):
        choices = _CHOICES.get(f"{name}.{key}")
        if choices and value.get(key, choices[0]) not in choices:
            raise HarnessError(f"{where}.{key} is {value[key]!r}, expected {' or '.join(choices)}")
    if name == "mig" and not re.fullmatch(r"[12347]g\.\d+gb", str(value.get("profile"))):
        raise HarnessError(f"{where}.profile is {value.get('profile')!r}, expected as 3g.40gb")
    if name == "mig" and "strategy" not in value:
        raise HarnessError(f"{where}.strategy is missing, expected single or mixed")
    if name == "sharing" and not isinstance(value.get("replicas"), int):
        raise HarnessError(f"{where}.replicas is {value.get('replicas')!r}, expected a number")


def render_nodes(description: Any) -> list[dict[str, Any]]:
    """Return the Node objects of a fleet, in the order of the file."""
    return [
        _node(group, number) for group in parse_groups(description) for number in range(group.count)
    ]


def gpus_of(group: Group) -> int:
    """The GPUs of one node of a group with an accelerator."""
    facts = _facts(group)
    return group.gpusPerNode or int(facts.get("gpusPerNode", _DEFAULT_GPUS))


def _facts(group: Group) -> dict[str, Any]:
    vendor = vendor_of(group.accelerator) if group.accelerator else None
    facts: dict[str, Any] = catalogue()[vendor][group.accelerator] if vendor else {}
    return facts


def _devices(group: Group) -> Devices:
    """Return what the group's accelerators add to a node. Without a device plugin, there is no
    resource; a labeller may run next to a DRA driver, where the file names one."""
    if group.draDriver is not None:
        plugin = replace(group, draDriver=None, labeller=group.labeller or "none")
        return Devices(_devices(plugin).labels)
    accelerator = group.accelerator
    if accelerator is None:
        return Devices()
    if vendor_of(accelerator) == "amd":
        return amd_devices(accelerator, gpus_of(group), group.labeller or "amd", group.partition)
    return nvidia_devices(
        accelerator,
        gpus_of(group),
        group.labeller or "gfd",
        sharing=group.sharing,
        mig=group.mig,
    )


def _machine(group: Group, resources: dict[str, int]) -> tuple[dict[str, str], dict[str, str]]:
    """Return capacity and allocatable; a kubelet keeps a core and three percent of memory."""
    facts, gpus = _facts(group), gpus_of(group) if group.accelerator else 1
    cpu = group.cpu or int(facts.get("cpuPerGPU", 32)) * gpus
    memory = group.memory or f"{int(facts.get('memoryGiBPerGPU', 128)) * gpus}Gi"
    gib = re.fullmatch(r"(\d+)Gi", str(memory))
    if not gib:
        raise HarnessError(f"{group.name}.memory is {memory!r}, expected GiB as 512Gi")
    common = {"ephemeral-storage": group.disk, "hugepages-2Mi": "0", "pods": "110"}
    common |= {name: str(number) for name, number in resources.items()}
    common |= {name: str(number) for name, number in (group.resources or {}).items()}
    capacity = common | {"cpu": str(cpu), "memory": str(memory)}
    allocatable = common | {
        "cpu": str(max(1, cpu - 1)),
        "memory": f"{int(gib[1]) * 1024 * 97 // 100}Mi",
    }
    return capacity, allocatable


def _node(group: Group, number: int) -> dict[str, Any]:
    name = f"{group.name}-{number}"
    devices = _devices(group)
    capacity, allocatable = _machine(group, devices.resources)
    architecture = str(_facts(group).get("architecture", "amd64"))
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        **devices.labels,
        **(group.labels or {}),
    }
    if group.ready is not True:
        labels[READY_LABEL] = group.ready or "false"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {KWOK_ANNOTATION: "fake", GROUP_ANNOTATION: group.name},
        },
        "spec": {"unschedulable": group.unschedulable, "taints": group.taints or []},
        "status": {
            "capacity": capacity,
            "allocatable": allocatable,
            "nodeInfo": _node_info(architecture),
        },
    }


def as_played(node: dict[str, Any], name: str) -> dict[str, Any]:
    """A Node as somebody's `kubectl get nodes -o yaml` shows it, made one of this name for KWOK.

    It keeps labels, taints and resources; the rest of a machine is added where it is left out.
    """
    spec, status = node.get("spec") or {}, node.get("status") or {}
    machine = {"cpu": "192", "memory": "2048Gi", "ephemeral-storage": "3500Gi", "pods": "110"}
    labels = node["metadata"].get("labels") or {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {KWOK_ANNOTATION: "fake", GROUP_ANNOTATION: name},
        },
        "spec": {
            "unschedulable": bool(spec.get("unschedulable")),
            "taints": spec.get("taints") or [],
        },
        "status": {
            "capacity": machine | (status.get("capacity") or {}),
            "allocatable": machine | (status.get("allocatable") or {}),
            "nodeInfo": _node_info(labels.get("kubernetes.io/arch", "amd64")),
        },
    }


def _node_info(architecture: str) -> dict[str, str]:
    """Return what a kubelet says about its machine; all fields are required by the API."""
    return {
        "architecture": architecture,
        "operatingSystem": "linux",
        "osImage": "Ubuntu 24.04.3 LTS",
        "kernelVersion": catalogue()["driver"]["amd"]["kernel"],
        "containerRuntimeVersion": "containerd://2.1.4",
        "kubeletVersion": _KUBELET,
        "kubeProxyVersion": "",
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }


def connected_h100s(count: int) -> dict[str, Any]:
    """A group of so many nodes of 8 H100 each, with RDMA between them."""
    return {
        "name": "h100",
        "count": count,
        "accelerator": "h100-sxm-80gb",
        "resources": {"rdma/ib": "1k"},
    }
