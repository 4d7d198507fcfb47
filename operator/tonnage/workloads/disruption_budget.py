"""Renders the PodDisruptionBudget, which keeps a drain from evicting several replicas at once."""

from typing import Any

from tonnage.api.names import LABEL_OWNER
from tonnage.engines.inputs import Owner
from tonnage.workloads.metadata import owner_labels, owner_reference
from tonnage.workloads.names import disruption_budget_name


def render_disruption_budget(owner: Owner, min_available: int) -> dict[str, Any]:
    """A budget over the pods of all placements: an eviction leaves `min_available` of them ready.

    Not `maxUnavailable`, which counts from the replicas of the Deployments: a Deployment on nodes
    that are drained is scaled to the replicas that still have capacity, so the last of them could
    be evicted. A pod that is not ready serves nothing: without AlwaysAllow, one that never gets
    ready would block the drain of its node.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": disruption_budget_name(owner.name),
            "namespace": owner.namespace,
            "labels": owner_labels(owner),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "minAvailable": min_available,
            "selector": {"matchLabels": {LABEL_OWNER: owner.name}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
