"""The controller of LeaderWorkerSets on the API in memory, as small as can be and deterministic.

A group is a leader and its workers, and is created, replaced and deleted as a whole; StatefulSets
are left out. A group whose container restarts is not recreated: the real controller does it.
Source: kubernetes-sigs/lws v0.7.0, pkg/controllers.
"""

from collections import defaultdict
from typing import Final

from tests.support.controllers import serves, set_status
from tests.support.fake_api import FakeApi
from tests.support.rollouts import TEMPLATE_HASH, owner_reference
from tonnage.api.text import digest
from tonnage.kube.kinds import LEADER_WORKER_SETS, PODS
from tonnage.kube.protocol import Object

SET_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
WORKER: Final = "leaderworkerset.sigs.k8s.io/worker-index"

Groups = dict[int, list[Object]]
"""Pods by the index of their group."""


def run_leader_worker_sets(api: FakeApi) -> None:
    """One step of the controller for each LeaderWorkerSet."""
    pods: dict[tuple[str, str], Groups] = defaultdict(lambda: defaultdict(list))
    for pod in api.objects(PODS):
        labels = pod["metadata"].get("labels", {})
        if SET_NAME in labels:
            of_set = pods[(pod["metadata"]["namespace"], labels[SET_NAME])]
            of_set[int(labels[GROUP])].append(pod)
    for body in api.objects(LEADER_WORKER_SETS):
        groups = pods[(body["metadata"]["namespace"], body["metadata"]["name"])]
        _replace(api, body, groups)
        _create(api, body, groups)
        _count(api, body, groups)


def _replace(api: FakeApi, body: Object, groups: Groups) -> None:
    """Delete what is not wanted, broken, or old and may be unavailable."""
    spec = body["spec"]
    wanted, size = spec["replicas"], spec["leaderWorkerTemplate"]["size"]
    rolling = spec["rolloutStrategy"]["rollingUpdateConfiguration"]
    unavailable = rolling["maxUnavailable"]
    allowed = wanted if unavailable == "100%" else int(unavailable)
    whole = {index: pods for index, pods in groups.items() if len(pods) == size}
    serving = sum(map(_is_serving, whole.values()))
    old = _old(body, groups)
    last = wanted + (_surge(body) if old else 0)
    for index in sorted(groups, reverse=True):
        pods = groups[index]
        gone = index >= last or index not in whole
        if not gone and index in old and index >= rolling.get("partition", 0):
            gone = not _is_serving(pods) or serving > wanted - allowed
            serving -= gone and _is_serving(pods)
        if gone:
            for pod in pods:
                api.remove(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
            del groups[index]


def _create(api: FakeApi, body: Object, groups: Groups) -> None:
    """Create the groups that are missing, each with all of its pods."""
    spec = body["spec"]
    templates, metadata = spec["leaderWorkerTemplate"], body["metadata"]
    surge = _surge(body) if _old(body, groups) else 0
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


def _count(api: FakeApi, body: Object, groups: Groups) -> None:
    old = _old(body, groups)
    status = {
        "replicas": len(groups),
        "updatedReplicas": len(groups) - len(old),
        "readyReplicas": sum(map(_is_serving, groups.values())),
    }
    set_status(api, LEADER_WORKER_SETS, body, status)


def _is_serving(pods: list[Object]) -> bool:
    return all(map(serves, pods))


def _old(body: Object, groups: Groups) -> set[int]:
    """The groups of an earlier template."""
    template = digest(body["spec"]["leaderWorkerTemplate"])
    return {
        index
        for index, pods in groups.items()
        if any(pod["metadata"]["labels"][TEMPLATE_HASH] != template for pod in pods)
    }


def _surge(body: Object) -> int:
    """How many groups there are beyond the wanted number while some are old. None where no more are
    wanted than that: a defect of v0.7.0 (kubernetes-sigs/lws #491)."""
    spec = body["spec"]
    surge = int(spec["rolloutStrategy"]["rollingUpdateConfiguration"]["maxSurge"])
    return surge if spec["replicas"] > surge else 0
