"""A recorded cluster on the API in memory, as its controllers would have left it there.

The recording is of a real control plane. Three things differ in memory: Deployments own their pods
without a ReplicaSet between them, templates are named by another hash, and the status of a
Deployment has fewer fields. `restore` translates these, so that no controller has anything to do.
"""

from typing import Any

from e2e.recordings.recording import FOLDER, Recording
from tests.support.api_server.fake_api import SERVED
from tests.support.in_memory.cluster import Cluster
from tests.support.in_memory.controllers import ready
from tests.support.in_memory.rollouts import TEMPLATE_HASH, owner_reference
from tonnage.api.text import digest
from tonnage.kube.kinds import DEPLOYMENTS, PODS, REPLICA_SETS
from tonnage.kube.protocol import Object

RECORDINGS = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))
"""The commits of the operators whose objects are recorded."""

_KINDS = {kind.kind: kind for kind in SERVED}
_TRANSLATED = ("Deployment", "ReplicaSet", "Pod")
_COUNTS = ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas")
_OF_LATER_RELEASES = ("availableUpdate", "starting")
_REVISED = ("message", "estimate", "slowdownPerRequest", "tokensPerSecond", "fullReplica")


def load_recording(commit: str) -> Recording:
    """The recording of the operator of this commit."""
    return Recording.load(FOLDER / f"{commit}.json.gz")


def restore(recording: Recording) -> Cluster:
    """A cluster with all recorded objects, at the time of the recording, and an operator that has
    just been started on them."""
    cluster = Cluster()
    cluster.clock.wall = cluster.api.now = recording.taken_at
    for body in recording.objects:
        if body["kind"] in _KINDS and body["kind"] not in _TRANSLATED:
            cluster.api.restore(_KINDS[body["kind"]], body)
    _restore_workloads(cluster, recording)
    for body in recording.of_kind("InferenceDeployment"):
        cluster.behaviours[body["metadata"]["name"]] = _as_recorded
    cluster.start_operator()
    return cluster


def _as_recorded(pod: Object) -> Object:
    """The kubelet's report of a recorded pod stays; a pod made later serves at once."""
    status: Object = pod.get("status", {})
    return status if "containerStatuses" in status else ready(pod)


def _restore_workloads(cluster: Cluster, recording: Recording) -> None:
    """Store Deployments, their revisions and their pods."""
    api = cluster.api
    deployments: dict[str, Object] = {}  # by uid
    for body in recording.of_kind("Deployment"):
        restored = api.restore(DEPLOYMENTS, body)
        deployments[body["metadata"]["uid"]] = restored
        metadata, template_hash = body["metadata"], digest(restored["spec"]["template"])
        status = _status(body["status"], template_hash)
        api.set_status(DEPLOYMENTS, metadata["namespace"], metadata["name"], status)
    revisions: dict[str, tuple[Object, str]] = {}  # Deployment and template hash by uid
    for body in recording.of_kind("ReplicaSet"):
        deployment, template_hash = deployments[_controller_uid(body)], digest(_template(body))
        revisions[body["metadata"]["uid"]] = deployment, template_hash
        api.restore(REPLICA_SETS, _revision(body, deployment, template_hash))
    for body in recording.of_kind("Pod"):
        deployment, template_hash = revisions[_controller_uid(body)]
        body["metadata"]["ownerReferences"] = [owner_reference(deployment)]
        body["metadata"]["labels"][TEMPLATE_HASH] = template_hash
        api.restore(PODS, body)


def _controller_uid(body: Object) -> str:
    (owner,) = body["metadata"]["ownerReferences"]
    return str(owner["uid"])


def _template(revision: Object) -> Object:
    """The Deployment's template of a ReplicaSet."""
    template = revision["spec"]["template"]
    labels = {
        key: value for key, value in template["metadata"]["labels"].items() if key != TEMPLATE_HASH
    }
    metadata = {key: value for key, value in template["metadata"].items() if value is not None}
    pod: Object = {**template, "metadata": {**metadata, "labels": labels}}
    return pod


def _revision(body: Object, deployment: Object, template_hash: str) -> Object:
    """The ReplicaSet as the controller in memory keeps it."""
    template = _template(body)
    is_current = template_hash == digest(deployment["spec"]["template"])
    labels = {**template["metadata"]["labels"], TEMPLATE_HASH: template_hash}
    annotations = (deployment if is_current else body)["metadata"]["annotations"]
    metadata = {
        "name": f"{deployment['metadata']['name']}-{template_hash[:10]}",
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [owner_reference(deployment)],
    }
    pods = {**template, "metadata": {**template["metadata"], "labels": labels}}
    kept = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return {**body, "metadata": {**kept, **metadata}, "spec": {"template": pods}, "status": {}}


def _status(status: Object, template_hash: str) -> Object:
    """The status of a Deployment as the controller in memory reports it."""
    progress: list[dict[str, Any]] = [
        {key: one[key] for key in ("type", "status", "reason", "lastUpdateTime")}
        | {"message": template_hash}
        for one in status["conditions"]
        if one["type"] == "Progressing"
    ]
    counts = {key: status[key] for key in _COUNTS if key in status}
    return {**counts, "conditions": progress}


def comparable_status(status: Object) -> object:
    """A status without texts for people and estimates, and without what only a later release
    reports: an update to it, the phases of starts, and the capacity of a replica that served."""
    kept = {key: value for key, value in status.items() if key not in _OF_LATER_RELEASES}
    return _without_wording(kept)


def _without_wording(value: object) -> object:
    """A status, or a part of it, without what a later release may word or estimate anew."""
    match value:
        case dict():
            return {key: _without_wording(val) for key, val in value.items() if key not in _REVISED}
        case list():
            return [_without_wording(item) for item in value]
    return value
