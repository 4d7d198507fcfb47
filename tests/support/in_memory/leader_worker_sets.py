"""The controller of LeaderWorkerSets on the API in memory, as small as can be and deterministic.

A group is a leader and its workers, and is created, replaced and deleted as a whole, also where a
container of it restarts; StatefulSets are left out.
Source: kubernetes-sigs/lws v0.7.0, pkg/controllers.
"""

from collections import defaultdict
from typing import Final

from tests.support.api_server.fake_api import FakeApi
from tests.support.in_memory.controllers import serves, set_status
from tests.support.in_memory.rollouts import TEMPLATE_HASH, owner_reference
from tonnage.api.text import digest
from tonnage.kube.kinds import CONTROLLER_REVISIONS, LEADER_WORKER_SETS, PODS, SERVICES
from tonnage.kube.protocol import Object

SET_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
REVISION: Final = "leaderworkerset.sigs.k8s.io/template-revision-hash"
WORKER: Final = "leaderworkerset.sigs.k8s.io/worker-index"

Groups = dict[int, list[Object]]
"""Pods by the index of their group."""


def run_leader_worker_sets(api: FakeApi, *, surges: bool = False) -> None:
    """One step of the controller for each LeaderWorkerSet: of v0.9.0, which can begin a surge with
    any number of groups and writes observedGeneration, or of v0.7.0."""
    pods: dict[tuple[str, str], Groups] = defaultdict(lambda: defaultdict(list))
    for pod in api.objects(PODS):
        labels = pod["metadata"].get("labels", {})
        if SET_NAME in labels:
            of_set = pods[(pod["metadata"]["namespace"], labels[SET_NAME])]
            of_set[int(labels[GROUP])].append(pod)
    for body in api.objects(LEADER_WORKER_SETS):
        groups = pods[(body["metadata"]["namespace"], body["metadata"]["name"])]
        _keep_revision(api, body)
        _ensure_service(api, body)
        surge = _surge(body, any_number=surges) if _is_rolling(body, groups) else 0
        _replace(api, body, groups, surge)
        _create(api, body, groups, surge)
        _count(api, body, groups, has_generation=surges)
        _truncate_revisions(api, body, groups)


def _keep_revision(api: FakeApi, body: Object) -> None:
    """The ControllerRevision of the present templates, as a strategic merge patch."""
    metadata, templates = body["metadata"], body["spec"]["leaderWorkerTemplate"]
    key = digest(templates)
    revision = {
        "metadata": {
            "name": f"{metadata['name']}-{key}",
            "namespace": metadata["namespace"],
            "labels": {SET_NAME: metadata["name"], REVISION: key},
            "ownerReferences": [owner_reference(body)],
        },
        "data": {"spec": {"leaderWorkerTemplate": {**templates, "$patch": "replace"}}},
    }
    if revision["metadata"]["name"] not in {one["metadata"]["name"] for one in _kept(api, body)}:
        api.put(CONTROLLER_REVISIONS, revision, manager="lws-controller")


def _ensure_service(api: FakeApi, body: Object) -> None:
    """The headless Service by which the pods of a group find their leader. The controller takes any
    Service of the name for it."""
    metadata = body["metadata"]
    place = metadata["namespace"], metadata["name"]
    services = (one["metadata"] for one in api.objects(SERVICES))
    if place in {(one["namespace"], one["name"]) for one in services}:
        return
    service = {
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {SET_NAME: metadata["name"]},
            "ownerReferences": [owner_reference(body)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {SET_NAME: metadata["name"]},
            "publishNotReadyAddresses": True,
        },
    }
    api.put(SERVICES, service, manager="lws-controller")


def _truncate_revisions(api: FakeApi, body: Object, groups: Groups) -> None:
    """Delete all others when every group serves from the present templates; also at zero."""
    old, spec = _old(body, groups), body["spec"]
    updated = [pods for index, pods in groups.items() if index not in old]
    partition = spec["rolloutStrategy"]["rollingUpdateConfiguration"].get("partition", 0)
    if partition == 0 and sum(map(_is_serving, updated)) == spec["replicas"]:
        for revision in _kept(api, body):
            if revision["metadata"]["labels"][REVISION] != digest(spec["leaderWorkerTemplate"]):
                metadata = revision["metadata"]
                api.remove(CONTROLLER_REVISIONS, metadata["namespace"], metadata["name"])


def _kept(api: FakeApi, body: Object) -> list[Object]:
    """The revisions of the LeaderWorkerSet."""
    uid = body["metadata"]["uid"]
    return [
        revision
        for revision in api.objects(CONTROLLER_REVISIONS)
        if revision["metadata"]["ownerReferences"][0]["uid"] == uid
    ]


def _replace(api: FakeApi, body: Object, groups: Groups, surge: int) -> None:
    """Delete what is not wanted, broken, or old and may be unavailable."""
    spec = body["spec"]
    wanted, size = spec["replicas"], spec["leaderWorkerTemplate"]["size"]
    rolling = spec["rolloutStrategy"]["rollingUpdateConfiguration"]
    unavailable = rolling["maxUnavailable"]
    allowed = wanted if unavailable == "100%" else int(unavailable)
    whole = {index: pods for index, pods in groups.items() if len(pods) == size}
    serving = sum(map(_is_serving, whole.values()))
    old = _old(body, groups)
    last = wanted + surge
    for index in sorted(groups, reverse=True):
        pods = groups[index]
        gone = index >= last or index not in whole or any(map(_has_restarted, pods))
        if not gone and index in old and index >= rolling.get("partition", 0):
            gone = not _is_serving(pods) or serving > wanted - allowed
            serving -= gone and _is_serving(pods)
        if gone:
            for pod in pods:
                api.remove(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
            del groups[index]


def _create(api: FakeApi, body: Object, groups: Groups, surge: int) -> None:
    """Create the groups that are missing, each with all of its pods."""
    spec = body["spec"]
    templates, metadata = spec["leaderWorkerTemplate"], body["metadata"]
    for index in range(spec["replicas"] + surge):
        if index in groups:
            continue
        leader = f"{metadata['name']}-{index}"
        for worker in range(templates["size"]):
            template = templates["workerTemplate" if worker else "leaderTemplate"]
            labels = {
                SET_NAME: metadata["name"],
                GROUP: str(index),
                WORKER: str(worker),
                TEMPLATE_HASH: digest(templates),
            }
            pod = {
                "metadata": {
                    "name": f"{leader}-{worker}" if worker else leader,
                    "namespace": metadata["namespace"],
                    "labels": {**template["metadata"]["labels"], **labels},
                    "ownerReferences": [owner_reference(body)],
                },
                "spec": template["spec"],
                "status": {"phase": "Pending"},
            }
            groups[index].append(api.post(PODS, pod, manager="lws-controller"))


def _count(api: FakeApi, body: Object, groups: Groups, *, has_generation: bool) -> None:
    old = _old(body, groups)
    status = {
        "replicas": len(groups),
        "updatedReplicas": len(groups) - len(old),
        "readyReplicas": sum(map(_is_serving, groups.values())),
    }
    if has_generation:
        status["observedGeneration"] = body["metadata"]["generation"]
    set_status(api, LEADER_WORKER_SETS, body, status)


def _is_serving(pods: list[Object]) -> bool:
    return all(map(serves, pods))


def _has_restarted(pod: Object) -> bool:
    """RecreateGroupOnPodRestart: whatever the exit code, and without end."""
    kinds = ("containerStatuses", "initContainerStatuses")
    containers = [one for kind in kinds for one in pod["status"].get(kind) or []]
    return any(container.get("restartCount") for container in containers)


def _old(body: Object, groups: Groups) -> set[int]:
    """The groups of an earlier template."""
    template = digest(body["spec"]["leaderWorkerTemplate"])
    return {
        index
        for index, pods in groups.items()
        if any(pod["metadata"]["labels"][TEMPLATE_HASH] != template for pod in pods)
    }


def _is_rolling(body: Object, groups: Groups) -> bool:
    """Whether groups are old, or those in their place do not serve yet while one more exists."""
    wanted = range(body["spec"]["replicas"])
    has_more = any(index not in wanted for index in groups)
    serving = all(index in groups and _is_serving(groups[index]) for index in wanted)
    return bool(_old(body, groups)) or (has_more and not serving)


def _surge(body: Object, *, any_number: bool) -> int:
    """How many groups there are beyond the wanted number during a rollout. With v0.7.0, none where
    no more are wanted than that (kubernetes-sigs/lws #491)."""
    spec = body["spec"]
    surge = int(spec["rolloutStrategy"]["rollingUpdateConfiguration"]["maxSurge"])
    return surge if any_number or spec["replicas"] > surge else 0
