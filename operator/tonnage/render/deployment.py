"""The Deployment of one placement."""

from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.placement.model import Option
from tonnage.render.lifetime import progress_deadline_seconds
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

_REVISION_HISTORY: Final = 3
"""Old ReplicaSets kept for `kubectl rollout history`; each is an object in etcd."""

_ROLLING: Final = {
    SurgeMode.SURGE: {"maxSurge": 1, "maxUnavailable": 0},
    SurgeMode.ONE_BY_ONE: {"maxSurge": 0, "maxUnavailable": 1},
}
"""One replica at a time, either way: each takes GPUs and minutes to load."""


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
    deadline = progress_deadline_seconds(replica.model_gib, replica.vendor)
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
            "strategy": render_strategy(surge),
            "progressDeadlineSeconds": deadline,
            "revisionHistoryLimit": _REVISION_HISTORY,
            "template": pod_template(replica),
        },
    }


def render_strategy(surge: SurgeMode) -> dict[str, Any]:
    """The Deployment's update strategy."""
    if surge is SurgeMode.ALL_AT_ONCE:
        return {"type": "Recreate"}
    return {"type": "RollingUpdate", "rollingUpdate": dict(_ROLLING[surge])}
