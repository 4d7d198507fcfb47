"""Whether what a node offers are replicas of shared GPUs: such a replica is not a GPU.

Time-slicing and MPS hand out one GPU several times, with no memory of its own to each. GPU feature
discovery says so per resource, and GKE with labels of its own.
"""

from collections.abc import Mapping
from typing import Final

from tonnage.fleet.label_index import show_label
from tonnage.fleet.refusal import NotPlannableError
from tonnage.fleet.resources import read_count, without_sharing

# Sources: NVIDIA/k8s-device-plugin internal/lm/resource.go (suffix, replicas, sharing-strategy per
# resource, renameByDefault); Google Cloud documentation, GPU time-sharing and MPS on GKE.
GKE_STRATEGY: Final = "cloud.google.com/gke-gpu-sharing-strategy"
_GKE_CLIENTS: Final = "cloud.google.com/gke-max-shared-clients-per-gpu"
_VGPU: Final = "nvidia.com/vgpu.present"
_SHARED_SUFFIX: Final = "-SHARED"
_NOT_A_GPU: Final = "a share of a GPU is not a whole GPU; turn off GPU sharing on this node"


def refuse_shared(resource: str, count: int, labels: Mapping[str, str]) -> None:
    """Raises NotPlannableError where `count` units of an NVIDIA resource are shares of GPUs."""
    if labels.get(_VGPU) == "true":
        raise NotPlannableError(
            f"{_VGPU}=true: a vGPU is not a whole GPU; pass whole GPUs to this node", in_parts=True
        )
    owner = without_sharing(resource)
    if owner != resource:
        raise NotPlannableError(f"offers {resource}: {_NOT_A_GPU}", in_parts=True)
    told = _told_by_discovery(owner, labels) or _told_by_gke(labels)
    if told is not None:
        raise NotPlannableError(f"{told}: {_NOT_A_GPU}", in_parts=True)
    present = read_count(labels.get(f"{owner}.count"))
    if present and count > present:
        raise NotPlannableError(
            f"offers {count} of {owner} but {owner}.count={present}: the GPUs are shared or of "
            "several kinds; turn off GPU sharing, or keep one kind of GPU on a node",
            in_parts=True,
        )


def _told_by_discovery(resource: str, labels: Mapping[str, str]) -> str | None:
    """The label of GPU feature discovery that says that a resource is shared."""
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


def _told_by_gke(labels: Mapping[str, str]) -> str | None:
    if labels.get(GKE_STRATEGY, "") != "":
        return show_label(GKE_STRATEGY, labels[GKE_STRATEGY])
    if (read_count(labels.get(_GKE_CLIENTS)) or 0) > 1:
        return show_label(_GKE_CLIENTS, labels[_GKE_CLIENTS])
    return None
