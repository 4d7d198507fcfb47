"""Taints: those that every GPU node has, those that mark it as out of order, and all others."""

from collections.abc import Iterable, Sequence
from typing import Final

from tonnage.api.pod import Toleration
from tonnage.fleet.model import Taint

# Clouds and platform teams set these on every GPU node to keep other pods away; they say nothing
# about one node. Older OKE images put nvidia.com/gpu on MI300X nodes, so the vendor does not count;
# sku is the convention on AKS.
_GPU_NODE_KEYS: Final = frozenset({"nvidia.com/gpu", "amd.com/gpu", "sku"})

# Keys that mark a node as out of order, with the text for status. Sources: ROCm/gpu-operator
# (auto-remediation, device config manager), Karpenter and cluster-autoscaler disruption taints.
_OUT_OF_ORDER: Final = {
    "amd-gpu-unhealthy": "GPU unhealthy (amd-gpu-unhealthy)",
    "amd-dcm": "being repartitioned (amd-dcm)",
    "node.kubernetes.io/not-ready": "NotReady",
    "node.kubernetes.io/unreachable": "unreachable",
    "node.kubernetes.io/unschedulable": "cordoned",
    "ToBeDeletedByClusterAutoscaler": "being removed by the cluster autoscaler",
    "karpenter.sh/disrupted": "being removed by Karpenter",
    "karpenter.sh/unregistered": "not registered with Karpenter yet",
    "node.cloudprovider.kubernetes.io/uninitialized": "not initialised by its cloud yet",
    "node.cloudprovider.kubernetes.io/shutdown": "shut down",
}
_NODE_PROBLEM_PREFIX: Final = "node.kubernetes.io/"

# A new node has these until its kubelet, its network and its cloud are done. Sources: Kubernetes
# (node lifecycle, cloud-provider), Karpenter (registration), cluster-autoscaler (startup taints).
_STARTING: Final = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "karpenter.sh/unregistered",
    }
)
_STARTUP_PREFIX: Final = "startup-taint.cluster-autoscaler.kubernetes.io/"
_HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})


def is_gpu_node_taint(taint: Taint) -> bool:
    """Whether the taint only marks a GPU node: every inference pod tolerates it."""
    return taint.key in _GPU_NODE_KEYS


def why_out_of_order(taints: Iterable[Taint]) -> str | None:
    """Explain the first taint that marks a node as out of order, None when none does."""
    for taint in taints:
        if not _is_hard(taint):
            continue
        if taint.key in _OUT_OF_ORDER:
            return _OUT_OF_ORDER[taint.key]
        if taint.key.startswith(_NODE_PROBLEM_PREFIX):
            return f"tainted {taint.key.removeprefix(_NODE_PROBLEM_PREFIX)}"
        if taint.key.startswith(_STARTUP_PREFIX):
            return f"not initialised yet ({taint.key.removeprefix(_STARTUP_PREFIX)})"
    return None


def is_starting(taints: Iterable[Taint]) -> bool:
    """Whether all taints that mark the node as out of order are those of a new node."""
    out_of_order = [taint for taint in taints if why_out_of_order([taint]) is not None]
    return all(
        taint.key in _STARTING or taint.key.startswith(_STARTUP_PREFIX) for taint in out_of_order
    )


def first_untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first taint that keeps away an inference pod with these tolerations, or None."""
    return next(
        (
            taint
            for taint in taints
            if _is_hard(taint)
            and not is_gpu_node_taint(taint)
            and not any(_tolerates(toleration, taint) for toleration in tolerations)
        ),
        None,
    )


def _is_hard(taint: Taint) -> bool:
    return taint.effect in _HARD_EFFECTS


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether it does by Kubernetes' rule: an absent key or effect matches every one."""
    if toleration.effect is not None and toleration.effect != taint.effect:
        return False
    if toleration.toleration_seconds is not None and taint.effect == "NoExecute":
        return False  # the pod would be evicted again
    if toleration.operator == "Exists":
        return toleration.key is None or toleration.key == taint.key
    return toleration.key == taint.key and (toleration.value or "") == taint.value
