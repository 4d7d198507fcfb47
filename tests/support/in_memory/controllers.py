"""The controllers of a cluster on the API in memory, as small as can be and deterministic.

Each function is one step of one controller: Deployment controller (without ReplicaSets), kubelet;
the scheduler is in production/scheduler.py. What a step sees is what is stored; nothing is
remembered between steps.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from tests.support.api_server.fake_api import FakeApi
from tests.support.in_memory.rollouts import (
    TEMPLATE_HASH,
    failure_of,
    has_revision,
    keep_revision,
    owner_reference,
    progress_of,
)
from tests.support.production.pod_faults import NotCreated
from tests.support.production.resources import has_finished
from tonnage.api.names import LABEL_OWNER
from tonnage.api.text import digest
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.kube.kinds import DEPLOYMENTS, NODES, PODS
from tonnage.kube.protocol import ForbiddenError, InvalidError, Kind, Object
from tonnage.reconcile.observation.findings import format_time

Behaviour = Callable[[Object], Object]
"""From a pod that is bound to a node to the status that its kubelet gives it next."""


def run_deployments(api: FakeApi) -> None:
    """One step of the Deployment controller for each Deployment."""
    pods: dict[str, list[Object]] = {}
    for pod in api.objects(PODS):
        if not has_finished(pod):
            for owner in pod["metadata"].get("ownerReferences", []):
                pods.setdefault(owner["uid"], []).append(pod)
    for deployment in api.objects(DEPLOYMENTS):
        rolled = _roll(api, deployment, pods.get(deployment["metadata"]["uid"], []))
        _count(api, deployment, *rolled)  # what it has done itself shows at once


def run_pods(
    api: FakeApi, behaviours: Mapping[str, Behaviour], *, collects_orphans: bool = True
) -> None:
    """One step of all kubelets; `behaviours` are by the owner's name, those of Jobs by the
    program's. Pods of nodes that are gone go, unless their collector does not run; those of silent
    ones are marked by the node controller."""
    nodes = {node["metadata"]["name"]: is_ready(node) for node in api.objects(NODES)}
    for pod in api.objects(PODS):
        node = pod["spec"].get("nodeName")
        if node is None:
            continue
        if node not in nodes:
            if collects_orphans:
                api.remove(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
            continue
        if has_finished(pod):
            continue
        labels = pod["metadata"].get("labels", {})
        name = labels.get(LABEL_OWNER) or labels.get("app.kubernetes.io/name", "")
        behave = behaviours.get(name, ready)
        status = behave(pod) if nodes[node] else silent(pod)
        set_status(api, PODS, pod, with_times(api, pod, status))
        if isinstance(behave, NotCreated):
            behave.write_event(api, pod)


def with_times(api: FakeApi, pod: Object, status: Object) -> Object:
    """The status whose conditions have the time of their last change of status."""
    before = {
        (one["type"], one["status"]): one.get("lastTransitionTime")
        for one in pod.get("status", {}).get("conditions", [])
    }
    conditions = [
        {
            **one,
            "lastTransitionTime": before.get((one["type"], one["status"])) or format_time(api.now),
        }
        for one in status.get("conditions", [])
    ]
    return {**status, **({"conditions": conditions} if conditions else {})}


def is_ready(node: Object) -> bool:
    """Whether the node's kubelet is heard of."""
    conditions = node["status"].get("conditions", [])
    return all(
        condition["status"] == "True" for condition in conditions if condition["type"] == "Ready"
    )


def silent(pod: Object) -> Object:
    """The pod's node has no heartbeat: only the condition Ready changes."""
    before = pod.get("status", {})
    others = [
        condition for condition in before.get("conditions", []) if condition["type"] != "Ready"
    ]
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
            {"name": _server(pod), "ready": True, "restartCount": 0, "state": {"running": {}}}
        ],
    }


def loading(pod: Object) -> Object:
    """The server runs and does not answer yet."""
    return _not_ready(pod, {"restartCount": 0, "state": {"running": {}}})


def crashing(exit_code: int = 1, reason: str = "Error", message: str = "") -> Behaviour:
    """The server has ended and waits to be started again."""
    end = {"exitCode": exit_code, "reason": reason, "message": message}
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}
    container = {
        "restartCount": 4,
        "state": {"waiting": waiting},
        "lastState": {"terminated": end},
    }
    return lambda pod: _not_ready(pod, container)


def ended(exit_code: int = 1, reason: str = "Error", message: str = "") -> Behaviour:
    """The server has ended for the first time, and is not started again yet."""
    end = {"exitCode": exit_code, "reason": reason, "message": message}
    return lambda pod: _not_ready(pod, {"restartCount": 0, "state": {"terminated": end}})


def without_image(pod: Object) -> Object:
    """The image cannot be pulled."""
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image: not found"}
    return _not_ready(pod, {"restartCount": 0, "state": {"waiting": waiting}})


def gpus_of(pod: Object) -> dict[str, int]:
    """What the pod asks for, by resource."""
    gpu_pod = read_gpu_pod(pod)
    return gpu_pod.requests if gpu_pod else {}


def gpus_of_node(node: Object) -> Counter[str]:
    """What the node has for pods, by resource."""
    has = node["status"]["allocatable"]
    return Counter({key: int(count) for key, count in has.items() if key.endswith("/gpu")})


def serves(pod: Object) -> bool:
    """Whether the pod is ready."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def _server(pod: Object) -> str:
    """The name of the container with the engine, the first one."""
    containers = pod.get("spec", {}).get("containers") or [{"name": "vllm"}]
    return str(containers[0]["name"])


def _not_ready(pod: Object, container: Object) -> Object:
    return {
        "phase": "Running",
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "False"},
        ],
        "containerStatuses": [{"name": _server(pod), "ready": False, **container}],
    }


Rolled = tuple[list[Object], str | None]
"""The pods that are there after a step, and why not all could be created."""


def _roll(api: FakeApi, deployment: Object, pods: list[Object]) -> Rolled:
    """Replace old pods as the strategy says, then bring the new ones to the wanted number."""
    spec, template = deployment["spec"], digest(deployment["spec"]["template"])
    if spec.get("paused"):
        return _scale(api, deployment, template, pods)
    keep_revision(api, deployment, template)
    new = [pod for pod in pods if pod["metadata"]["labels"][TEMPLATE_HASH] == template]
    old = sorted((pod for pod in pods if pod not in new), key=serves)  # those that fail go first
    wanted = spec["replicas"]
    gone = sorted(new, key=serves)[: max(0, len(new) - wanted)]
    if spec["strategy"]["type"] == "Recreate" and old:
        return _without(api, pods, [*gone, *old]), None
    rolling = spec["strategy"].get("rollingUpdate", {"maxSurge": 1, "maxUnavailable": 0})
    serving = sum(map(serves, pods))
    left = len(old)
    for pod in old:
        if not serves(pod) or serving > wanted - rolling["maxUnavailable"]:
            serving -= serves(pod)
            left -= 1
            gone.append(pod)
    allowed = wanted + (rolling["maxSurge"] if left else 0) - left
    remain = _without(api, pods, gone)
    return _create_pods(api, deployment, template, remain, min(wanted, allowed) - len(new))


def _scale(api: FakeApi, deployment: Object, template: str, pods: list[Object]) -> Rolled:
    """What a paused Deployment does still: it follows the number of replicas, once it has begun a
    rollout (pkg/controller/deployment/sync.go)."""
    lacking = deployment["spec"]["replicas"] - len(pods)
    remain = _without(api, pods, sorted(pods, key=serves)[: max(0, -lacking)])
    has_begun = has_revision(api, deployment)
    return _create_pods(api, deployment, template, remain, lacking if has_begun else 0)


def _without(api: FakeApi, pods: list[Object], gone: list[Object]) -> list[Object]:
    """The pods without those, which are removed."""
    for pod in gone:
        api.remove(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
    return [pod for pod in pods if pod not in gone]


def _create_pods(
    api: FakeApi, deployment: Object, template: str, pods: list[Object], lacking: int
) -> Rolled:
    """Create as many pods as are lacking; the first that is refused ends the attempt."""
    made = list(pods)
    try:
        # Those that were created before a refusal stay.
        made.extend(_create_pod(api, deployment, template) for _ in range(lacking))
    except (ForbiddenError, InvalidError) as error:
        return made, str(error)
    return made, None


def _create_pod(api: FakeApi, deployment: Object, template: str) -> Object:
    metadata, spec = deployment["metadata"], deployment["spec"]["template"]
    taken = {name for _, name, _, _ in api.versions(PODS)}
    stem = f"{metadata['name']}-{template[:5]}"
    name = next(name for number in range(10**6) if (name := f"{stem}-{number:03}") not in taken)
    return api.post(
        PODS,
        {
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": {**spec["metadata"]["labels"], TEMPLATE_HASH: template},
                "ownerReferences": [owner_reference(deployment)],
            },
            "spec": spec["spec"],
            "status": {"phase": "Pending"},
        },
        manager="deployment-controller",
    )


def _count(api: FakeApi, deployment: Object, pods: list[Object], refusal: str | None) -> None:
    template = digest(deployment["spec"]["template"])
    updated = [pod for pod in pods if pod["metadata"]["labels"][TEMPLATE_HASH] == template]
    counts = {
        "replicas": len(pods),
        "updatedReplicas": len(updated),
        "readyReplicas": sum(map(serves, pods)),
    }
    status = {
        "observedGeneration": deployment["metadata"]["generation"],
        **{name: count for name, count in counts.items() if count},
        "conditions": [
            progress_of(api, deployment, template, counts),
            *failure_of(api, deployment, refusal),
        ],
    }
    set_status(api, DEPLOYMENTS, deployment, status)


def set_status(api: FakeApi, kind: Kind, body: Object, status: Object) -> None:
    """Write the status of an object where it changes."""
    if body.get("status") != status:
        metadata = body["metadata"]
        api.set_status(kind, metadata["namespace"], metadata["name"], status)
