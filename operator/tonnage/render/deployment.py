"""The Deployment of one placement."""

from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec, Rollout
from tonnage.catalog.catalog import Catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.placement.model import Option
from tonnage.render.lifetime import progress_deadline_seconds, whole_seconds
from tonnage.render.metadata import (
    owner_reference,
    placement_annotations,
    placement_labels,
    pod_selector,
    queue_labels,
)
from tonnage.render.model import Owner, RenderSettings, SurgeMode
from tonnage.render.names import deployment_name, placement_name
from tonnage.render.pod import pod_template
from tonnage.render.replica import Replica

_REVISION_HISTORY: Final = 10
"""Old ReplicaSets kept, each an object in etcd. The template that served last is found in one of
them again, and those of failed plans after it must not push it out."""

_ONE_AT_A_TIME: Final = 1
"""Each replica takes GPUs and minutes to load."""


def render_deployment(
    owner: Owner,
    spec: InferenceDeploymentSpec,
    checkpoint: Checkpoint,
    option: Option,
    *,
    replicas: int,
    surge: SurgeMode,
    placed_for: str,
    catalog: Catalog,
    settings: RenderSettings,
) -> dict[str, Any]:
    """The Deployment that runs `replicas` copies of the model in the pool of `option`.

    `placed_for` is a digest of what the place was chosen for; it comes back with the next
    observation. `spec` must have passed `check_template`.
    """
    replica = Replica(owner, spec, checkpoint, option, catalog, settings)
    rollout = spec.rollout
    deadline = progress_deadline_seconds(replica.model_gib, replica.vendor)
    if rollout.progress_deadline is not None:
        deadline = whole_seconds(rollout.progress_deadline)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": deployment_name(owner.name, placement_name(option)),
            "namespace": owner.namespace,
            "labels": {
                **queue_labels(owner, spec.template.metadata),
                **placement_labels(owner, option),
            },
            "annotations": placement_annotations(option, placed_for),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": pod_selector(owner, option)},
            "strategy": render_strategy(surge, rollout),
            "progressDeadlineSeconds": deadline,
            "revisionHistoryLimit": _REVISION_HISTORY,
            "template": pod_template(replica),
        },
    }


def render_strategy(surge: SurgeMode, rollout: Rollout) -> dict[str, Any]:
    """The Deployment's update strategy."""
    at_a_time = rollout.max_unavailable or _ONE_AT_A_TIME
    match surge:
        case SurgeMode.ALL_AT_ONCE:
            return {"type": "Recreate"}
        case SurgeMode.SURGE:
            rolling = {"maxSurge": _ONE_AT_A_TIME, "maxUnavailable": 0}
        case SurgeMode.ONE_BY_ONE:
            rolling = {"maxSurge": 0, "maxUnavailable": at_a_time}
    return {"type": "RollingUpdate", "rollingUpdate": rolling}
