"""The Deployment of one placement."""

from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec, Rollout
from tonnage.catalog.catalog import Catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.engines.inputs import Owner, RenderSettings, SurgeMode
from tonnage.engines.replica import Replica
from tonnage.engines.vllm.lifetime import progress_deadline_seconds
from tonnage.placement.model import Option
from tonnage.workloads.metadata import (
    owner_reference,
    placement_annotations,
    placement_labels,
    pod_selector,
    queue_labels,
)
from tonnage.workloads.names import deployment_name, placement_name
from tonnage.workloads.pod.template import render_pod_template

_REVISION_HISTORY: Final = 10
"""Old ReplicaSets that Kubernetes keeps, each an object in etcd. A rollback reads the last ready
template from one of them, which those of later failed plans must not displace."""

_ONE_AT_A_TIME: Final = 1
"""Each replica takes GPUs, and minutes to load."""


def render_deployment(
    owner: Owner,
    spec: InferenceDeploymentSpec,
    checkpoint: Checkpoint,
    option: Option,
    *,
    replicas: int,
    surge: SurgeMode,
    placement_digest: str,
    catalog: Catalog,
    settings: RenderSettings,
) -> dict[str, Any]:
    """The Deployment that runs `replicas` copies of the model in the pool of `option`.

    `placement_digest` is a digest of the inputs of the placement; the next reconcile reads it back.
    `spec` must have passed `check_template`.
    """
    replica = Replica(owner, spec, checkpoint, option, catalog, settings)
    deadline = progress_deadline_seconds(replica.model_gib, replica.vendor, spec.rollout)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": deployment_name(owner.name, placement_name(option)),
            "namespace": owner.namespace,
            "labels": {
                **queue_labels(owner, spec.pod_metadata),
                **placement_labels(owner, option),
            },
            "annotations": placement_annotations(option, placement_digest),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": pod_selector(owner, option)},
            "strategy": render_strategy(surge, spec.rollout),
            "progressDeadlineSeconds": deadline,
            "revisionHistoryLimit": _REVISION_HISTORY,
            "template": render_pod_template(replica),
        },
    }


def render_strategy(surge: SurgeMode, rollout: Rollout) -> dict[str, Any]:
    """The Deployment's update strategy."""
    max_unavailable = rollout.max_unavailable or _ONE_AT_A_TIME
    match surge:
        case SurgeMode.ALL_AT_ONCE:
            return {"type": "Recreate"}
        case SurgeMode.SURGE:
            rolling = {"maxSurge": _ONE_AT_A_TIME, "maxUnavailable": 0}
        case SurgeMode.ONE_BY_ONE:
            rolling = {"maxSurge": 0, "maxUnavailable": max_unavailable}
    return {"type": "RollingUpdate", "rollingUpdate": rolling}
