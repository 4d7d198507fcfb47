"""Refuses shared GPUs: a share of a GPU is not a GPU.

Time-slicing and MPS offer one GPU several times, without dedicated memory. GPU feature discovery
labels this per resource, GKE with labels of its own.
"""

from collections.abc import Mapping
from typing import Final

from tonnage.fleet.devices.label_index import show_label
from tonnage.fleet.devices.resources import NotPlannableError, read_count, without_sharing

# Sources: NVIDIA/k8s-device-plugin internal/lm/resource.go (suffix, replicas, sharing-strategy per
# resource, renameByDefault); Google Cloud documentation, GPU time-sharing and MPS on GKE.
GKE_STRATEGY: Final = "cloud.google.com/gke-gpu-sharing-strategy"
_GKE_CLIENTS: Final = "cloud.google.com/gke-max-shared-clients-per-gpu"
_VGPU: Final = "nvidia.com/vgpu.present"
_SHARED_SUFFIX: Final = "-SHARED"
_NOT_A_GPU: Final = "a share of a GPU is not a whole GPU; turn off GPU sharing on this node"


def refuse_shared(resource: str, count: int, labels: Mapping[str, str]) -> None:
    """Raise NotPlannableError where `count` units of an NVIDIA resource are shares of GPUs."""
    if labels.get(_VGPU) == "true":
        raise NotPlannableError(
            f"{_VGPU}=true: a vGPU is not a whole GPU; pass whole GPUs to this node", in_parts=True
        )
    unshared = without_sharing(resource)
    if unshared != resource:
        raise NotPlannableError(f"offers {resource}: {_NOT_A_GPU}", in_parts=True)
    label = _gfd_sharing_label(unshared, labels) or _gke_sharing_label(labels)
    if label is not None:
        raise NotPlannableError(f"{label}: {_NOT_A_GPU}", in_parts=True)
    present = read_count(labels.get(f"{unshared}.count"))
    if present and count > present:
        raise NotPlannableError(
            f"offers {count} of {unshared} but {unshared}.count={present}: the GPUs are shared or "
            "of several kinds; turn off GPU sharing, or keep one kind of GPU on a node",
            in_parts=True,
        )


def _gfd_sharing_label(resource: str, labels: Mapping[str, str]) -> str | None:
    """Return the label of GPU feature discovery that marks a resource as shared."""
    product, strategy, replicas = (
        f"{resource}.{name}" for name in ("product", "sharing-strategy", "replicas")
    )
    if labels.get(product, "").endswith(_SHARED_SUFFIX):
        return show_label(product, labels[product])
    if labels.get(strategy, "none") not in ("none", ""):
        return show_label(strategy, labels[strategy])
    if (read_count(labels.get(replicas)) or 0) > 1:
        return show_label(replicas, labels[replicas])
    return None


def _gke_sharing_label(labels: Mapping[str, str]) -> str | None:
    if labels.get(GKE_STRATEGY, "") != "":
        return show_label(GKE_STRATEGY, labels[GKE_STRATEGY])
    if (read_count(labels.get(_GKE_CLIENTS)) or 0) > 1:
        return show_label(_GKE_CLIENTS, labels[_GKE_CLIENTS])
    return None
