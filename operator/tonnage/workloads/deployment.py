"""The Deployment of a placement whose replicas have one pod each."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from tonnage.api.inference import Rollout
from tonnage.api.names import LABEL_OWNER, LABEL_PLACEMENT
from tonnage.engines.inputs import SurgeMode
from tonnage.kube.kinds import DEPLOYMENTS, REPLICA_SETS
from tonnage.kube.protocol import Kind, Object
from tonnage.workloads.interface import (
    Rendering,
    ServingPods,
    WorkloadKind,
    WorkloadState,
    with_spec,
    without_label,
)
from tonnage.workloads.metadata import pod_selector, workload_metadata
from tonnage.workloads.names import deployment_name
from tonnage.workloads.pod.template import render_pod_template

TEMPLATE_LABEL: Final = "pod-template-hash"
"""The label by which the Deployment controller marks ReplicaSets and pods of one template."""

_REVISION_HISTORY: Final = 10
"""Old ReplicaSets that Kubernetes keeps, each an object in etcd. A rollback reads the last ready
template from one of them, which those of later failed plans must not displace."""

_ONE_AT_A_TIME: Final = 1
"""Each replica takes GPUs, and minutes to load."""

_COMPLETED: Final = "NewReplicaSetAvailable"
_OVERDUE: Final = "ProgressDeadlineExceeded"

_RENDERED: Final = ("selector", "strategy", "progressDeadlineSeconds", "revisionHistoryLimit")
"""Fields of the spec that are rendered, next to replicas and template."""


class DeploymentKind(WorkloadKind):
    """Deployments, one pod a replica."""

    kind = DEPLOYMENTS

    def name(self, owner: str, placement: str) -> str:
        """The name of the Deployment of a placement."""
        return deployment_name(owner, placement)

    def render(self, rendering: Rendering) -> Object:
        """Render the Deployment."""
        replica, owner = rendering.replica, rendering.owner
        option = replica.option
        name = self.name(owner.name, option.placement_name)
        return {
            "apiVersion": "apps/v1",
            "kind": DEPLOYMENTS.kind,
            "metadata": workload_metadata(name, replica, rendering.placement_digest),
            "spec": {
                "replicas": rendering.replicas,
                "selector": {"matchLabels": pod_selector(owner, option)},
                "strategy": render_strategy(rendering.surge, rendering.rollout),
                "progressDeadlineSeconds": rendering.deadline_seconds,
                "revisionHistoryLimit": _REVISION_HISTORY,
                "template": render_pod_template(replica),
            },
        }

    def template(self, body: Object) -> Object:
        """The pod template without the hash that the controller adds to those of ReplicaSets."""
        return without_label(body["spec"].get("template") or {}, TEMPLATE_LABEL)

    def with_template(self, body: Object, template: Object) -> Object:
        """The Deployment with another template."""
        return with_spec(body, template=template)

    def with_templates_of(self, body: Object, source: Object) -> Object:
        """The Deployment with the pod template of another one."""
        return self.with_template(body, self.template(source))

    def selector(self, body: Object) -> Mapping[str, str]:
        """The labels by which the Deployment selects its pods."""
        labels = body["metadata"].get("labels") or {}
        names = (LABEL_OWNER, LABEL_PLACEMENT)
        return {name: labels[name] for name in names if name in labels}

    def pod_labels(self, body: Object) -> tuple[Mapping[str, str], ...]:
        """The labels of the pods."""
        return (self.template(body)["metadata"]["labels"],)

    def revisions(self, body: Object) -> tuple[Kind, Mapping[str, str]]:
        """ReplicaSets, which have the labels of the pods."""
        return REPLICA_SETS, self.selector(body)

    def at_revision(self, body: Object, revision: Object) -> Object | None:
        """The Deployment with the template of a ReplicaSet, and with its annotations, which the
        controller copies from the Deployment."""
        annotations = revision["metadata"].get("annotations") or {}
        metadata = {**body["metadata"], "annotations": annotations}
        return with_spec({**body, "metadata": metadata}, template=revision["spec"]["template"])

    def surge_mode(self, body: Object, rollout: Rollout) -> SurgeMode | None:
        """The mode of the strategy; None where a user wrote another strategy."""
        strategy = body["spec"].get("strategy")
        return next(
            (mode for mode in SurgeMode if render_strategy(mode, rollout) == strategy), None
        )

    def with_surge_mode(self, body: Object, mode: SurgeMode, rollout: Rollout) -> Object:
        """The Deployment with another strategy."""
        return with_spec(body, strategy=render_strategy(mode, rollout))

    def is_paused(self, body: Object) -> bool:
        """Whether the Deployment is paused."""
        return bool(body["spec"].get("paused"))

    def with_pause(self, body: Object, *, paused: bool) -> Object:
        """The Deployment, paused or not."""
        return with_spec(body, paused=paused)

    def deadline_seconds(self, body: Object) -> int | None:
        """The progress deadline."""
        seconds = body["spec"].get("progressDeadlineSeconds")
        return seconds if type(seconds) is int else None

    def with_deadline(self, body: Object, seconds: int) -> Object:
        """The Deployment with another progress deadline."""
        return with_spec(body, progressDeadlineSeconds=seconds)

    def rendered_spec(self, body: Object) -> Object:
        """The fields that are rendered, without replicas and template."""
        spec = body["spec"]
        return {name: spec[name] for name in _RENDERED if name in spec}

    def without_template(self, body: Object) -> Object:
        """The Deployment without its template."""
        spec = {name: value for name, value in body["spec"].items() if name != "template"}
        return {**body, "spec": spec}

    def read_state(
        self, body: Object, pods: ServingPods | None, *, is_observed: bool
    ) -> WorkloadState:
        """Read what the Deployment controller reports."""
        status: Mapping[str, Any] = body.get("status") or {}
        conditions = (status.get("conditions") or []) if is_observed else []
        progress = _read_progress(conditions)
        reason = progress.get("reason")
        return WorkloadState(
            existing=status.get("replicas", 0),
            ready=status.get("readyReplicas", 0),
            updated=status.get("updatedReplicas", 0),
            observed=is_observed,
            completed=reason == _COMPLETED,
            has_served=reason == _COMPLETED and _has_served(progress, pods),
            overdue=None if reason == _COMPLETED else reason == _OVERDUE,
            refused=_read_refusal(conditions),
        )


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


def _read_progress(conditions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Condition Progressing, which is about the newest ReplicaSet; empty where there is none."""
    return next((one for one in conditions if one.get("type") == "Progressing"), {})


def _has_served(progress: Mapping[str, Any], pods: ServingPods | None) -> bool:
    """Whether a rollout that is complete had replicas. The controller completes one without any,
    too, and leaves the condition as it is when replicas are added, or when pods fail later. Both
    times are whole seconds, and no engine starts within one."""
    if pods is None:
        return True
    completed_at = progress.get("lastUpdateTime")
    if pods.oldest is None or completed_at is None:
        return False
    return pods.oldest < datetime.fromisoformat(completed_at)


def _read_refusal(conditions: Iterable[Mapping[str, Any]]) -> str | None:
    return next(
        (
            condition.get("message") or condition.get("reason", "")
            for condition in conditions
            if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True"
        ),
        None,
    )
