"""The controllers of a cluster on the API in memory, as small as can be and deterministic.

Each function is one step of one controller: Deployment controller (without ReplicaSets), scheduler,
kubelet. What a step sees is what is stored; nothing is remembered between steps.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.fake_api import FakeApi
from tonnage.api.names import LABEL_OWNER, VLLM_CONTAINER
from tonnage.fleet.pod import read_gpu_pod
from tonnage.kube.kinds import DEPLOYMENTS, NODES, PODS
from tonnage.kube.protocol import NotFoundError, Object
from tonnage.reconcile.actions import digest

TEMPLATE_HASH = "pod-template-hash"

Behaviour = Callable[[Object], Object]
"""From a pod that is bound to a node to the status that its kubelet gives it next."""


def run_deployments(api: FakeApi) -> None:
    """One step of the Deployment controller for each Deployment."""
    for deployment in api.objects(DEPLOYMENTS):
        _roll(api, deployment)
        _count(api, deployment)  # what it has done itself shows at once


def keep_order(found: list[Object]) -> None:
    """By namespace and name."""


def schedule_pods(api: FakeApi, arrange: Callable[[list[Object]], None] = keep_order) -> None:
    """Bind each waiting pod to the first node with its labels and enough free GPUs.

    `arrange` puts pods and nodes into the order in which they have their turn.
    """
    pods, nodes = api.objects(PODS), api.objects(NODES)
    arrange(pods)
    arrange(nodes)
    free = {node["metadata"]["name"]: gpus_of_node(node) for node in nodes}
    for pod in pods:
        free.get(pod["spec"].get("nodeName"), Counter()).subtract(gpus_of(pod))
    for pod in pods:
        if pod["spec"].get("nodeName") is None:
            _schedule(api, pod, nodes, free)


def run_pods(api: FakeApi, behaviours: Mapping[str, Behaviour]) -> None:
    """One step of all kubelets; `behaviours` are by the owner's name. Pods of nodes that are gone
    go, those of silent ones are marked by the node controller."""
    nodes = {node["metadata"]["name"]: is_ready(node) for node in api.objects(NODES)}
    for pod in api.objects(PODS):
        node = pod["spec"].get("nodeName")
        if node is None:
            continue
        if node not in nodes:
            api.remove(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
            continue
        behave = behaviours.get(pod["metadata"].get("labels", {}).get(LABEL_OWNER, ""), ready)
        _set_status(api, PODS, pod, behave(pod) if nodes[node] else silent(pod))


def is_ready(node: Object) -> bool:
    """Whether the node's kubelet is heard of."""
    conditions = node["status"].get("conditions", [])
    return all(found["status"] == "True" for found in conditions if found["type"] == "Ready")


def silent(pod: Object) -> Object:
    """Nobody hears of the pod's node: all is as it was, but for the condition Ready."""
    before = pod.get("status", {})
    others = [found for found in before.get("conditions", []) if found["type"] != "Ready"]
    return {**before, "conditions": [*others, {"type": "Ready", "status": "False"}]}


def ready(pod: Object) -> Object:
    """The server answers."""
    return {
        "phase": "Running",
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "True"},
        ],
        "containerStatuses": [
            {"name": VLLM_CONTAINER, "ready": True, "restartCount": 0, "state": {"running": {}}}
        ],
    }


def loading(pod: Object) -> Object:
    """The server runs and does not answer yet."""
    return _not_ready({"restartCount": 0, "state": {"running": {}}})


def crashing(exit_code: int = 1, reason: str = "Error", message: str = "") -> Behaviour:
    """The server has ended and waits to be started again."""
    end = {"exitCode": exit_code, "reason": reason, "message": message}
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}
    container = {
        "restartCount": 4,
        "state": {"waiting": waiting},
        "lastState": {"terminated": end},
    }
    return lambda pod: _not_ready(container)


def without_image(pod: Object) -> Object:
    """The image cannot be pulled."""
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image: not found"}
    return _not_ready({"restartCount": 0, "state": {"waiting": waiting}})


def gpus_of(pod: Object) -> dict[str, int]:
    """What the pod asks for, by resource."""
    found = read_gpu_pod(pod)
    return found.requests if found else {}


def gpus_of_node(node: Object) -> Counter[str]:
    """What the node has for pods, by resource."""
    has = node["status"]["allocatable"]
    return Counter({key: int(count) for key, count in has.items() if key.endswith("/gpu")})


def _not_ready(container: Object) -> Object:
    return {
        "phase": "Running",
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "False"},
        ],
        "containerStatuses": [{"name": VLLM_CONTAINER, "ready": False, **container}],
    }


def _pods_of(api: FakeApi, deployment: Object) -> list[Object]:
    metadata = deployment["metadata"]
    owner, uid = metadata.get("labels", {}).get(LABEL_OWNER), metadata["uid"]
    labelled = [
        api.object(PODS, namespace, name)
        for namespace, name, _, label in api.versions(PODS)
        if namespace == metadata["namespace"] and label == owner
    ]
    return [
        pod
        for pod in labelled
        if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences", []))
        and pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")
    ]


def _roll(api: FakeApi, deployment: Object) -> None:
    """Replace old pods as the strategy says, then bring the new ones to the wanted number."""
    spec, template = deployment["spec"], digest(deployment["spec"]["template"])
    pods = _pods_of(api, deployment)
    new = [pod for pod in pods if pod["metadata"]["labels"][TEMPLATE_HASH] == template]
    old = sorted((pod for pod in pods if pod not in new), key=_serves)  # those that fail go first
    wanted = spec["replicas"]
    for pod in sorted(new, key=_serves)[: max(0, len(new) - wanted)]:
        _remove(api, pod)
    if spec["strategy"]["type"] == "Recreate" and old:
        for pod in old:
            _remove(api, pod)
        return
    rolling = spec["strategy"].get("rollingUpdate", {"maxSurge": 1, "maxUnavailable": 0})
    serving = sum(map(_serves, pods))
    for pod in old:
        if not _serves(pod) or serving > wanted - rolling["maxUnavailable"]:
            serving -= _serves(pod)
            old = [found for found in old if found is not pod]
            _remove(api, pod)
    room = wanted + (rolling["maxSurge"] if old else 0) - len(old)
    for _ in range(min(wanted, room) - len(new)):
        _create_pod(api, deployment, template)


def _create_pod(api: FakeApi, deployment: Object, template: str) -> None:
    metadata, spec = deployment["metadata"], deployment["spec"]["template"]
    taken = {name for _, name, _, _ in api.versions(PODS)}
    stem = f"{metadata['name']}-{template[:5]}"
    name = next(name for number in range(10**6) if (name := f"{stem}-{number:03}") not in taken)
    api.put(
        PODS,
        {
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": {**spec["metadata"]["labels"], TEMPLATE_HASH: template},
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "Deployment",
                        "name": metadata["name"],
                        "uid": metadata["uid"],
                        "controller": True,
                    }
                ],
            },
            "spec": spec["spec"],
            "status": {"phase": "Pending"},
        },
        manager="deployment-controller",
    )


def _count(api: FakeApi, deployment: Object) -> None:
    template = digest(deployment["spec"]["template"])
    pods = _pods_of(api, deployment)
    updated = [pod for pod in pods if pod["metadata"]["labels"][TEMPLATE_HASH] == template]
    status = {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": len(pods),
        "updatedReplicas": len(updated),
        "readyReplicas": sum(map(_serves, pods)),
    }
    _set_status(api, DEPLOYMENTS, deployment, {name: n for name, n in status.items() if n})


def _schedule(
    api: FakeApi, pod: Object, nodes: list[Object], free: Mapping[str, Counter[str]]
) -> None:
    requests = gpus_of(pod)
    for node in nodes:
        name = node["metadata"]["name"]
        enough = all(free[name][resource] >= count for resource, count in requests.items())
        if enough and _admits(node, pod):
            free[name].subtract(requests)
            pod["spec"]["nodeName"] = name
            pod["status"] = {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "True"}],
            }
            api.put(PODS, pod, manager="scheduler")
            return
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    message = f"0/{len(nodes)} nodes are available"
    _set_status(api, PODS, pod, {"phase": "Pending", "conditions": [{**told, "message": message}]})


def _admits(node: Object, pod: Object) -> bool:
    labels, tolerated = node["metadata"]["labels"], pod["spec"].get("tolerations", [])
    if node["spec"].get("unschedulable"):
        return False
    taints = [taint for taint in node["spec"].get("taints", []) if taint["effect"] != "PreferNo"]
    if any(not any(_tolerates(one, taint) for one in tolerated) for taint in taints):
        return False
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(
        all(_matches(labels, wanted) for wanted in term["matchExpressions"])
        for term in required["nodeSelectorTerms"]
    )


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    same_value = toleration.get("operator") == "Exists" or toleration.get("value") == taint.get(
        "value"
    )
    return toleration.get("key") in (None, taint["key"]) and same_value


def _matches(labels: Mapping[str, str], wanted: Mapping[str, Any]) -> bool:
    if wanted["operator"] == "DoesNotExist":
        return wanted["key"] not in labels
    found = labels.get(wanted["key"]) in wanted["values"]
    return found if wanted["operator"] == "In" else not found


def _serves(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


def _remove(api: FakeApi, pod: Object) -> None:
    try:
        api.object(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
    except NotFoundError:
        return
    api.remove(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])


def _set_status(api: FakeApi, kind: Any, body: Object, status: Object) -> None:
    if body.get("status") != status:
        metadata = body["metadata"]
        api.set_status(kind, metadata["namespace"], metadata["name"], status)
