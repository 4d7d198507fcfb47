"""Reads what placement needs from a raw Node object."""

from collections.abc import Mapping
from typing import Any, Final

from tonnage.catalog.interconnects import load_interconnects
from tonnage.fleet.devices.label_index import show_label
from tonnage.fleet.devices.resources import as_mapping, as_sequence, gpu_counts, read_count, shared
from tonnage.fleet.model import Node, Taint
from tonnage.fleet.nodes.amounts import read_size
from tonnage.fleet.nodes.taints import is_starting, why_out_of_order

UNNAMED: Final = "(unnamed)"
"""Name of a node object without a name; such a node is never capacity."""

# The MIG manager of NVIDIA's GPU operator works on the node while its state is one of the first
# two; after `failed` the layout of the GPUs is undefined.
_MIG_STATE: Final = "nvidia.com/mig.config.state"
_MIG_STATES: Final = {
    "pending": "being repartitioned",
    "rebooting": "being repartitioned",
    "failed": "its MIG layout could not be made",
}

# The device config manager of AMD's GPU operator: the requested profile, and whether it has applied
# or rejected it. A profile that failed leaves the GPUs as they were.
_DCM_PROFILE: Final = "dcm.amd.com/gpu-config-profile"
_DCM_STATE: Final = "dcm.amd.com/gpu-config-profile-state"


def read_node(obj: Mapping[str, Any]) -> Node:
    """Read a Node. Never raises: an unreadable part is left out and makes the node unusable."""
    metadata, spec, status = (as_mapping(obj.get(part)) for part in ("metadata", "spec", "status"))
    labels, label_problem = _read_labels(metadata.get("labels"))
    taints = _read_taints(spec.get("taints"))
    capacity, capacity_problem = gpu_counts(status.get("capacity"))
    allocatable, allocatable_problem = gpu_counts(status.get("allocatable"))
    name = metadata.get("name")
    named = isinstance(name, str) and name != ""
    unusable = _why_unusable(metadata, spec, status, labels, taints)
    unreadable = (
        (None if named else "has no name")
        or capacity_problem
        or allocatable_problem
        or label_problem
    )
    starting = unusable is not None and unreadable is None
    return Node(
        name=str(name) if named else UNNAMED,
        labels=labels,
        taints=taints,
        capacity=capacity,
        allocatable=allocatable,
        unusable=unusable or unreadable,
        silent=not _is_ready(status),
        starting=starting and _is_starting(metadata, spec, status, labels, taints),
        size=read_size(status.get("allocatable")),
        networks=_read_networks(status.get("allocatable")),
    )


def _read_networks(allocatable: object) -> Mapping[str, int]:
    """Count the adapters of known networks between nodes, by resource."""
    return {
        shared(name): count
        for name, value in as_mapping(allocatable).items()
        # The prefix excludes cpu, memory and the like faster.
        if isinstance(name, str) and name.startswith(load_interconnects().prefixes)
        if load_interconnects().network_of(name) and (count := read_count(value))
    }


def _read_labels(raw: object) -> tuple[dict[str, str], str | None]:
    """Read labels; equal texts share one object, as thousands of nodes have the same labels."""
    labels, problem = {}, None
    for key, value in as_mapping(raw).items():
        if isinstance(key, str) and isinstance(value, str):
            labels[shared(key)] = shared(value)
        else:
            problem = problem or f"label {str(key)[:80]} is not a string"
    return labels, problem


def _read_taints(raw: object) -> tuple[Taint, ...]:
    taints = (as_mapping(item) for item in as_sequence(raw))
    return tuple(
        Taint(str(taint["key"]), str(taint.get("value") or ""), str(taint.get("effect") or ""))
        for taint in taints
        if "key" in taint
    )


def _why_unusable(
    metadata: Mapping[str, Any],
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    labels: Mapping[str, str],
    taints: tuple[Taint, ...],
) -> str | None:
    """Why no pod can start on the node now, in a few words; None when pods can."""
    if metadata.get("deletionTimestamp"):
        return "being deleted"
    if spec.get("unschedulable"):
        return "cordoned"
    if not _is_ready(status):
        return "NotReady"
    if _operating_system(status, labels) == "windows":
        return "runs Windows"
    return _why_in_transition(labels) or why_out_of_order(taints)


def _is_starting(
    metadata: Mapping[str, Any],
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    labels: Mapping[str, str],
    taints: tuple[Taint, ...],
) -> bool:
    """Whether nothing but the start of the node keeps pods away: its kubelet reports that it is not
    ready yet, or a taint of new nodes is left. A kubelet that reports nothing is no start."""
    ready = [one for one in _conditions(status) if one.get("type") == "Ready"]
    if any(one.get("status") not in ("True", "False") for one in ready):
        return False
    as_if_ready = {**status, "conditions": []}
    return is_starting(taints) and not _why_unusable(metadata, spec, as_if_ready, labels, ())


def _why_in_transition(labels: Mapping[str, str]) -> str | None:
    """Explain that a vendor's operator repartitions the node's GPUs now, None when it does not."""
    state = labels.get(_MIG_STATE, "")
    if state in _MIG_STATES:
        return f"{_MIG_STATES[state]} ({_MIG_STATE}: {state})"
    if _DCM_PROFILE in labels and _DCM_STATE not in labels:
        return f"being repartitioned ({show_label(_DCM_PROFILE, labels[_DCM_PROFILE])})"
    return None


def _is_ready(status: Mapping[str, Any]) -> bool:
    """Whether the node is Ready, or has no conditions yet: such a node has a not-ready taint."""
    conditions = _conditions(status)
    return not conditions or any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in conditions
    )


def _conditions(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [as_mapping(item) for item in as_sequence(status.get("conditions"))]


def _operating_system(status: Mapping[str, Any], labels: Mapping[str, str]) -> object:
    reported = as_mapping(status.get("nodeInfo")).get("operatingSystem")
    return labels.get("kubernetes.io/os") or reported
