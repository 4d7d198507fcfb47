"""Renders PodDisruptionBudgets, which keep a drain from evicting several replicas at once."""

from collections.abc import Mapping
from typing import Any

from tonnage.api.names import LABEL_OWNER
from tonnage.engines.inputs import Owner
from tonnage.kube.protocol import Object
from tonnage.workloads.metadata import owner_labels, owner_reference
from tonnage.workloads.names import disruption_budget_name
from tonnage.workloads.registry import workload_kind_of


def render_disruption_budget(owner: Owner, min_available: int) -> dict[str, Any]:
    """A budget over the pods of all placements with one pod a replica: an eviction leaves
    `min_available` of them ready."""
    name = disruption_budget_name(owner.name)
    return _render(owner, name, {LABEL_OWNER: owner.name}, min_available)


def render_workload_budget(owner: Owner, workload: Object, min_available: int) -> dict[str, Any]:
    """A budget over all pods of one workload: an eviction leaves `min_available` replicas ready.

    An eviction of one pod of a group ends the group, so as many pods less one as one more replica
    has must be ready. A worker is ready before its leader is: whatever is missing, no other group
    is evicted.
    """
    kind = workload_kind_of(workload)
    pods = kind.pods_per_replica(workload)
    ready_pods = (min_available + 1) * pods - 1
    return _render(owner, workload["metadata"]["name"], kind.selector(workload), ready_pods)


def _render(
    owner: Owner, name: str, selector: Mapping[str, str], min_available: int
) -> dict[str, Any]:
    """The budget over the pods with these labels.

    Not `maxUnavailable`, which counts from the replicas of the Deployments: a Deployment on nodes
    that are drained is scaled to the replicas that still have capacity, so the last of them could
    be evicted. The disruption controller also knows no number of pods for a LeaderWorkerSet. A pod
    that is not ready serves nothing: without AlwaysAllow, one that never gets ready would block the
    drain of its node.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": owner_labels(owner),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "minAvailable": min_available,
            "selector": {"matchLabels": dict(selector)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
