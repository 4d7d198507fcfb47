"""What the Deployment controller keeps and says of a rollout, on the API in memory: its revisions
as ReplicaSets, its progress as a condition."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from tests.support.api_server.fake_api import FakeApi
from tonnage.kube.kinds import REPLICA_SETS
from tonnage.kube.protocol import NotFoundError, Object

TEMPLATE_HASH: Final = "pod-template-hash"

_COMPLETE: Final = "NewReplicaSetAvailable"
_OVERDUE: Final = "ProgressDeadlineExceeded"


def keep_revision(api: FakeApi, deployment: Object, template: str) -> None:
    """The ReplicaSet of the Deployment's template, with the Deployment's annotations of now."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    name = f"{metadata['name']}-{template[:10]}"
    pod = {"metadata": {}, **spec["template"]}
    labels = {**pod["metadata"].get("labels", {}), TEMPLATE_HASH: template}
    body = {
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": dict(metadata.get("annotations", {})),
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {"template": {**pod, "metadata": {**pod["metadata"], "labels": labels}}},
    }
    try:
        before = api.object(REPLICA_SETS, metadata["namespace"], name)
    except NotFoundError:
        before = {"metadata": {}}
    if before["metadata"].get("annotations") != body["metadata"]["annotations"]:
        api.put(REPLICA_SETS, body, manager="deployment-controller")


def has_revision(api: FakeApi, deployment: Object) -> bool:
    """Whether the Deployment has a ReplicaSet."""
    owner = owner_reference(deployment)
    return any(owner in body["metadata"]["ownerReferences"] for body in api.objects(REPLICA_SETS))


def owner_reference(workload: Object) -> Object:
    """Makes what has it belong to the workload."""
    metadata = workload["metadata"]
    return {
        "apiVersion": workload["apiVersion"],
        "kind": workload["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def progress_of(
    api: FakeApi, deployment: Object, template: str, counts: Mapping[str, int]
) -> Object:
    """The condition Progressing by now; its message is the template that it speaks of."""
    status, spec = deployment.get("status", {}), deployment["spec"]
    conditions: list[Object] = status.get("conditions", [])
    before = next((one for one in conditions if one["type"] == "Progressing"), {})
    if spec.get("paused"):
        return _progressing(api, before, "DeploymentPaused", template)
    wanted = spec["replicas"]
    if all(counts[name] == wanted for name in ("replicas", "updatedReplicas", "readyReplicas")):
        return _progressing(api, before, _COMPLETE, template)
    if before.get("message") != template or before["reason"] == "DeploymentPaused":
        return _progressing(api, {}, "ReplicaSetUpdated", template)
    if before["reason"] == _COMPLETE:
        return before  # what fails later is no rollout
    if any(counts[name] > status.get(name, 0) for name in ("updatedReplicas", "readyReplicas")):
        return _progressing(api, {}, "ReplicaSetUpdated", template)
    deadline = timedelta(seconds=spec.get("progressDeadlineSeconds", 600))
    if api.now > datetime.fromisoformat(before["lastUpdateTime"]) + deadline:
        return {**_progressing(api, before, _OVERDUE, template), "status": "False"}
    return before


def failure_of(api: FakeApi, deployment: Object, refusal: str | None) -> list[Object]:
    """The condition ReplicaFailure while pods are refused. Its message is that of the first
    refusal, until a pod is created (pkg/controller/replicaset/replica_set_utils.go)."""
    if refusal is None:
        return []
    conditions: list[Object] = deployment.get("status", {}).get("conditions", [])
    before = [one for one in conditions if one["type"] == "ReplicaFailure"]
    at = api.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
    return before or [{**condition, "message": refusal, "lastTransitionTime": at}]


def _progressing(api: FakeApi, before: Object, reason: str, template: str) -> Object:
    if (before.get("reason"), before.get("message")) == (reason, template):
        return before
    at = api.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    condition: Object = {"type": "Progressing", "status": "True", "reason": reason}
    return {**condition, "message": template, "lastUpdateTime": at}
