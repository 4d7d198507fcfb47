"""What an API server says of objects that it refuses, and the scheduler of pods that fit nowhere.

A table for two tests: the doubles say it (tests/unit/support/test_production.py), and so do the
real ones (tests/integration/test_production.py).
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.production.claims import volume_claim
from tests.support.production.limit_ranges import limit_range
from tests.support.production.quotas import resource_quota
from tonnage.kube.kinds import PODS, SERVICES
from tonnage.kube.protocol import Kind, Object

_GOLDEN: Final = Path(__file__).parents[2] / "golden" / "render" / "70b-on-mi300x.output.yaml"

Change = Callable[[dict[str, Any]], None]
"""Changes the spec of the pod in place."""


def unchanged(spec: dict[str, Any]) -> None:
    """The pod as the operator renders it."""


@dataclass(frozen=True)
class Refused:
    """An object that is refused where `bodies` are; `labels` are those of its namespace.
    `is_invalid`: by 422, not 403."""

    message: str
    bodies: tuple[Object, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    kind: Kind = PODS
    change: Change = unchanged
    is_invalid: bool = False


def pod_of(namespace: str, change: Change = unchanged) -> Object:
    """A pod of one replica on one MI300X: 3 CPUs and 17 GiB."""
    deployment = next(yaml.safe_load_all(_GOLDEN.read_text("utf-8")))
    spec = deployment["spec"]["template"]["spec"]
    change(spec)
    metadata = {"name": "tried", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def holder_of(namespace: str, node: str) -> Object:
    """A pod like it that has its node."""
    pod = pod_of(namespace)
    pod["metadata"]["name"] = "holder"
    pod["spec"]["nodeName"] = node
    return pod


def service_of(namespace: str) -> Object:
    """A Service."""
    metadata = {"name": "tried", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"ports": [{"port": 8000}], "selector": {"a": "b"}},
    }


def in_namespace(body: Object, namespace: str) -> Object:
    """The body in another namespace."""
    moved = deepcopy(body)
    moved["metadata"]["namespace"] = namespace
    return moved


def _account(spec: dict[str, Any]) -> None:
    spec["serviceAccountName"] = "models"


def _limit(spec: dict[str, Any]) -> None:
    spec["containers"][0]["resources"]["limits"]["memory"] = "32Gi"


def _claim(spec: dict[str, Any]) -> None:
    source = {"claimName": "models"}
    spec["volumes"] = [*spec["volumes"], {"name": "model", "persistentVolumeClaim": source}]


REFUSED: Final[Mapping[str, Refused]] = {
    "quota of GPUs": Refused(
        'pods "tried" is forbidden: exceeded quota: quota, requested: requests.amd.com/gpu=1,'
        " used: requests.amd.com/gpu=0, limited: requests.amd.com/gpu=0",
        (resource_quota({"requests.amd.com/gpu": 0}),),
    ),
    "quota of CPU and memory": Refused(
        'pods "tried" is forbidden: exceeded quota: quota,'
        " requested: requests.cpu=3,requests.memory=17Gi, used: requests.cpu=0,requests.memory=0,"
        " limited: requests.cpu=2,requests.memory=16Gi",
        (resource_quota({"requests.cpu": 2, "requests.memory": "16Gi"}),),
    ),
    "quota of limits that the pod does not state": Refused(
        'pods "tried" is forbidden: failed quota: quota: must specify limits.memory for: vllm',
        (resource_quota({"limits.memory": "64Gi"}),),
    ),
    "quota of Services": Refused(
        'services "tried" is forbidden: exceeded quota: quota, requested: services=1,'
        " used: services=0, limited: services=0",
        (resource_quota({"services": 0}),),
        kind=SERVICES,
    ),
    "most of a limit range, which becomes the limit": Refused(
        'Pod "tried" is invalid: spec.containers[0].resources.requests: Invalid value: "17Gi": must'
        " be less than or equal to memory limit of 8Gi",
        (limit_range(max={"memory": "8Gi"}),),
        is_invalid=True,
    ),
    "most of a limit range, and a limit above it": Refused(
        'pods "tried" is forbidden: maximum memory usage per Container is 8Gi, but limit is 32Gi',
        (limit_range(max={"memory": "8Gi"}),),
        change=_limit,
    ),
    "least of a limit range": Refused(
        'pods "tried" is forbidden: minimum cpu usage per Container is 4, but request is 3',
        (limit_range(min={"cpu": "4"}),),
    ),
    "restricted pods": Refused(
        'pods "tried" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
        ' (pod or container "vllm" must set securityContext.runAsNonRoot=true)',
        labels=(("pod-security.kubernetes.io/enforce", "restricted"),),
    ),
    "missing account": Refused(
        'pods "tried" is forbidden: error looking up service account {namespace}/models:'
        ' serviceaccount "models" not found',
        change=_account,
    ),
}


@dataclass(frozen=True)
class Judged:
    """A pod in a namespace with these limits, that enforces this Pod Security Standard."""

    is_admitted: bool
    limits: tuple[Object, ...] = ()
    level: str = "privileged"
    change: Change = unchanged


def _container(**fields: Any) -> Change:
    def change(spec: dict[str, Any]) -> None:
        spec["containers"][0].update(fields)

    return change


def _context(**fields: Any) -> Change:
    """Changes the security context of the container."""

    def change(spec: dict[str, Any]) -> None:
        spec["securityContext"] |= {"runAsNonRoot": True, "runAsUser": 1000}
        spec["containers"][0]["securityContext"].update(fields)

    return change


def _pod(**fields: Any) -> Change:
    def change(spec: dict[str, Any]) -> None:
        spec["securityContext"] |= {"runAsNonRoot": True, "runAsUser": 1000}
        spec.update(fields)

    return change


def _volume(**source: Any) -> Change:
    def change(spec: dict[str, Any]) -> None:
        _context()(spec)
        spec["volumes"] = [*spec["volumes"], {"name": "further", **source}]

    return change


def _limited(**limits: str) -> Change:
    def change(spec: dict[str, Any]) -> None:
        spec["containers"][0]["resources"]["limits"].update(limits)

    return change


def _init_container(**fields: Any) -> Change:
    def change(spec: dict[str, Any]) -> None:
        resources = {"requests": {"memory": "20Gi"}, "limits": {"memory": "20Gi"}}
        spec["initContainers"] = [
            {"name": "first", "image": "busybox", "resources": resources, **fields}
        ]
        spec["containers"][0]["resources"]["limits"]["memory"] = "17Gi"

    return change


def _scoped(scope: str) -> Object:
    quota = resource_quota({"requests.amd.com/gpu": 0})
    return {**quota, "spec": {**quota["spec"], "scopes": [scope]}}


def _of_priority(name: str) -> Object:
    quota = resource_quota({"requests.amd.com/gpu": 0})
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": [name]}
    return {**quota, "spec": {**quota["spec"], "scopeSelector": {"matchExpressions": [expression]}}}


_OF_16 = {"memory": "16Gi"}
_OF_18 = {"memory": "18Gi"}
_OF_30 = {"memory": "30Gi"}

JUDGED: Final[Mapping[str, Judged]] = {
    "most that it does not reach": Judged(True, (limit_range(max=_OF_18),)),
    "most that it exceeds": Judged(False, (limit_range(max=_OF_16),)),
    "most that its limit exceeds": Judged(
        False, (limit_range(max=_OF_18),), change=_limited(memory="19Gi")
    ),
    "most GPUs": Judged(True, (limit_range(max={"amd.com/gpu": "1"}),)),
    "fewer GPUs": Judged(False, (limit_range(max={"amd.com/gpu": "0"}),)),
    "least": Judged(True, (limit_range(min={"cpu": "3"}),)),
    "more than it requests": Judged(False, (limit_range(min={"cpu": "3100m"}),)),
    "least of a resource that it does not request": Judged(
        True, (limit_range(min={"ephemeral-storage": "1Gi"}),)
    ),
    "ratio without a limit": Judged(False, (limit_range(maxLimitRequestRatio={"cpu": "2"}),)),
    "ratio": Judged(
        True, (limit_range(maxLimitRequestRatio={"cpu": "1500m"}),), change=_limited(cpu="4500m")
    ),
    "larger ratio": Judged(
        False, (limit_range(maxLimitRequestRatio={"cpu": "1500m"}),), change=_limited(cpu="4501m")
    ),
    "default": Judged(True, (limit_range(default={"memory": "17Gi"}),)),
    "default below its request": Judged(False, (limit_range(default={"memory": "16Gi"}),)),
    "most of the pod, without a limit": Judged(False, (limit_range(kind="Pod", max=_OF_18),)),
    "most of the pod": Judged(
        True, (limit_range(kind="Pod", max=_OF_18),), change=_limited(memory="18Gi")
    ),
    "least of the pod": Judged(False, (limit_range(kind="Pod", min=_OF_18),)),
    "an init container as large as allowed": Judged(
        True, (limit_range(kind="Pod", max={"memory": "20Gi"}),), change=_init_container()
    ),
    "an init container that exceeds": Judged(
        False, (limit_range(max=_OF_18),), change=_init_container()
    ),
    "a sidecar, with which the pod exceeds": Judged(
        False,
        (limit_range(kind="Pod", max=_OF_30),),
        change=_init_container(restartPolicy="Always"),
    ),
    "quota that it does not reach": Judged(
        True, (resource_quota({"requests.cpu": 3, "memory": "17Gi", "pods": 1}),)
    ),
    "quota of CPU that it exceeds": Judged(False, (resource_quota({"cpu": "2500m"}),)),
    "quota of GPUs that it exceeds": Judged(False, (resource_quota({"requests.amd.com/gpu": 0}),)),
    "quota of pods": Judged(False, (resource_quota({"count/pods": 0}),)),
    "quota of limits that it does not state": Judged(
        False, (resource_quota({"limits.memory": "64Gi"}),)
    ),
    "quota of limits, with a default": Judged(
        True, (resource_quota({"limits.memory": "64Gi"}), limit_range(default=_OF_18))
    ),
    "quota of limits, with a larger default": Judged(
        False, (resource_quota({"limits.memory": "16Gi"}), limit_range(default=_OF_18))
    ),
    "quota for pods that end": Judged(True, (_scoped("Terminating"),)),
    "quota for pods that do not end": Judged(False, (_scoped("NotTerminating"),)),
    "quota for another PriorityClass": Judged(True, (_of_priority("batch"),)),
    "restricted, as root": Judged(False, level="restricted"),
    "baseline, as root": Judged(True, level="baseline"),
    "restricted, as another user": Judged(True, level="restricted", change=_context()),
    "restricted, as user 0": Judged(False, level="restricted", change=_context(runAsUser=0)),
    "restricted, as root of a container": Judged(
        False, level="restricted", change=_context(runAsNonRoot=False)
    ),
    "restricted, as root of a user namespace": Judged(
        True, level="restricted", change=lambda spec: spec.update(hostUsers=False)
    ),
    "restricted, with more privileges": Judged(
        False, level="restricted", change=_context(allowPrivilegeEscalation=None)
    ),
    "restricted, with all capabilities": Judged(
        False, level="restricted", change=_context(capabilities={})
    ),
    "restricted, with a capability for ports": Judged(
        True,
        level="restricted",
        change=_context(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
    ),
    "restricted, with another capability": Judged(
        False,
        level="restricted",
        change=_context(capabilities={"drop": ["ALL"], "add": ["CHOWN"]}),
    ),
    "baseline, with that capability": Judged(
        True,
        level="baseline",
        change=_context(capabilities={"drop": ["ALL"], "add": ["CHOWN"]}),
    ),
    "baseline, with a capability of the host": Judged(
        False, level="baseline", change=_context(capabilities={"add": ["SYS_ADMIN"]})
    ),
    "restricted, with another profile": Judged(
        True, level="restricted", change=_context(seccompProfile={"type": "RuntimeDefault"})
    ),
    "restricted, without a profile": Judged(
        False, level="restricted", change=_pod(securityContext={"runAsNonRoot": True})
    ),
    "baseline, unconfined": Judged(
        False, level="baseline", change=_context(seccompProfile={"type": "Unconfined"})
    ),
    "restricted, with NFS": Judged(
        False, level="restricted", change=_volume(nfs={"server": "nfs", "path": "/"})
    ),
    "baseline, with NFS": Judged(
        True, level="baseline", change=_volume(nfs={"server": "nfs", "path": "/"})
    ),
    "restricted, with a claim": Judged(
        True, level="restricted", change=_volume(persistentVolumeClaim={"claimName": "models"})
    ),
    "baseline, with a directory of the node": Judged(
        False, level="baseline", change=_volume(hostPath={"path": "/data"})
    ),
    "baseline, in the network of the node": Judged(
        False, level="baseline", change=lambda spec: spec.update(hostNetwork=True)
    ),
}
"""Pods that the API server admits or refuses. The operator says the same before it creates them."""


@dataclass(frozen=True)
class Unschedulable:
    """A pod that fits on no node of the groups; another pod like it is on the node `holder`."""

    message: str
    groups: tuple[dict[str, Any], ...]
    bodies: tuple[Object, ...] = ()
    change: Change = unchanged
    holder: str | None = None


def _group(name: str, **machine: Any) -> dict[str, Any]:
    return {"name": name, "accelerator": "mi300x", "gpusPerNode": 1, **machine}


_AFTER: Final = " no new claims to deallocate, preemption: 0/2 nodes are available: "

UNSCHEDULABLE: Final[Mapping[str, Unschedulable]] = {
    "CPU": Unschedulable(
        "0/2 nodes are available: 2 Insufficient cpu."
        f"{_AFTER}2 Preemption is not helpful for scheduling.",
        (_group("small", count=2, cpu=3),),
    ),
    "GPUs that another pod holds": Unschedulable(
        "0/2 nodes are available: 1 Insufficient amd.com/gpu, 1 node(s) didn't match Pod's node"
        " affinity/selector."
        f"{_AFTER}1 No preemption victims found for incoming pod,"
        " 1 Preemption is not helpful for scheduling.",
        (_group("full"), {"name": "cpu", "count": 1}),
        holder="full-0",
    ),
    "CPU here, and a taint there": Unschedulable(
        "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory,"
        " 1 node(s) had untolerated taint(s)."
        f"{_AFTER}2 Preemption is not helpful for scheduling.",
        (
            _group("small", cpu=3, memory="16Gi"),
            _group("kept", taints=[{"key": "team", "effect": "NoSchedule"}]),
        ),
    ),
    "other labels, and a cordon": Unschedulable(
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector,"
        " 1 node(s) were unschedulable."
        f"{_AFTER}2 Preemption is not helpful for scheduling.",
        (
            {"name": "cpu", "count": 1},
            _group("shut", unschedulable=True),
        ),
    ),
    "a claim without a volume": Unschedulable(
        "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
        (_group("large", count=2),),
        (volume_claim("models", bound=False),),
        _claim,
    ),
    "a claim that does not exist": Unschedulable(
        '0/2 nodes are available: persistentvolumeclaim "models" not found. not found',
        (_group("large", count=2),),
        change=_claim,
    ),
}
