"""Nodes and pods of a large fleet, as heavy as real ones. Pure.

A node of a GPU cluster is some 12 kB of JSON, with its images and managed fields; a pod some 6 kB.
An operator that reads them all pays for fields that it does not need, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from e2e.harness.rest import Json
from e2e.nodes.descriptions import GROUP_ANNOTATION, render_nodes
from tests.support.node_affinity import admits
from tonnage.fleet.nodes.pod import read_gpu_pod

CREATED: Final = "2026-11-01T08:00:00Z"
OTHER_WORKLOADS: Final = "other-workloads"
"""Namespace of the pods that no InferenceDeployment owns."""

_GPUS_PER_NODE: Final = 8
_GPUS_OF_OTHER_POD: Final = 2
_NAMESPACE: Final = uuid.UUID("7b2f2c1e-6f0e-4d5c-9a52-2c1d7c3f9e10")

_GROUPS: Final = (
    ("mi300x", 30),
    ("h100-sxm-80gb", 30),
    ("h200-sxm-141gb", 20),
    ("mi355x", 10),
    ("l40s", 10),
)
"""Accelerators and their shares of the nodes, in percent."""


def uid_of(kind: str, name: str) -> str:
    """The same for the same object, in each run."""
    return str(uuid.uuid5(_NAMESPACE, f"{kind}/{name}"))


def fleet_nodes(count: int, begin: int = 0) -> list[Json]:
    """The nodes of a fleet of `count`, from number `begin` on; a smaller fleet is the first part of
    a larger one."""
    kinds = [name for name, share in _GROUPS for _ in range(share)]
    nodes = []
    for number in range(begin, count):
        accelerator = kinds[number * 37 % len(kinds)]  # all of them, mixed
        nodes.append(_node(accelerator, number))
    return nodes


def _node(accelerator: str, number: int) -> Json:
    if accelerator not in _TEMPLATES:
        group = {"name": accelerator, "accelerator": accelerator, "gpusPerNode": _GPUS_PER_NODE}
        (_TEMPLATES[accelerator],) = render_nodes({"groups": [group]})
    template, name = _TEMPLATES[accelerator], f"gpu-{number:05}"
    labels = {**template["metadata"]["labels"], "kubernetes.io/hostname": name}
    return {
        **template,
        "metadata": {
            "name": name,
            "uid": uid_of("Node", name),
            "creationTimestamp": CREATED,
            "labels": labels,
            "annotations": {
                GROUP_ANNOTATION: accelerator,
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "managedFields": _managed(("kubelet", "kube-controller-manager"), labels, 24),
        },
        "status": {
            **template["status"],
            "conditions": node_conditions(ready=True, heartbeat=CREATED),
            "addresses": [{"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": _IMAGES,
        },
    }


_TEMPLATES: dict[str, Json] = {}
_IMAGES: Final = [
    {
        "names": [
            f"registry.example.org/platform/component-{number:02}@sha256:{number:064x}",
            f"registry.example.org/platform/component-{number:02}:v1.{number}.0",
        ],
        "sizeBytes": 100_000_000 + number,
    }
    for number in range(40)
]


def node_conditions(*, ready: bool, heartbeat: str) -> list[Json]:
    """The conditions that a kubelet reports, and those that the node controller sets for a kubelet
    that has stopped reporting."""
    healthy = (
        ("MemoryPressure", "KubeletHasSufficientMemory"),
        ("DiskPressure", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "KubeletHasSufficientPID"),
    )
    conditions = [(kind, "False" if ready else "Unknown", reason) for kind, reason in healthy]
    conditions.append(("Ready", "True" if ready else "Unknown", "KubeletReady"))
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason if ready else "NodeStatusUnknown",
            "message": reason if ready else "Kubelet stopped posting node status.",
            "lastHeartbeatTime": heartbeat,
            "lastTransitionTime": CREATED,
        }
        for kind, status, reason in conditions
    ]


def other_pod_on(node: Json, number: int) -> Json:
    """A pod of another workload that runs on the node and holds GPUs of it."""
    (resource,) = (name for name in node["status"]["allocatable"] if name.endswith(".com/gpu"))
    name = f"{node['metadata']['name']}-{number}"
    labels = {"app": f"training-{number}", "pod-template-hash": "6c5f7d8b9"}
    amount = {resource: str(_GPUS_OF_OTHER_POD), "cpu": "16", "memory": "256Gi"}
    container = {
        "name": "main",
        "image": "registry.example.org/research/training:2026-10",
        "command": ["torchrun", f"--nproc-per-node={_GPUS_OF_OTHER_POD}", "train.py"],
        "env": [{"name": f"SETTING_{n:02}", "value": f"value-{n}" * 4} for n in range(24)],
        "resources": {"limits": amount, "requests": amount},
        "volumeMounts": [{"name": f"data-{n}", "mountPath": f"/data/{n}"} for n in range(6)],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": f"data-{n}", "emptyDir": {}} for n in range(6)],
    }
    metadata = {"name": name, "namespace": OTHER_WORKLOADS, "labels": labels}
    return running_pod(metadata, spec, node["metadata"]["name"])


def running_pod(metadata: Json, spec: Json, node: str) -> Json:
    """The pod, bound to a node, running and ready. It has no address, so that nothing answers."""
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": CREATED}
        for kind in ("PodReadyToStartContainers", "Initialized", "PodScheduled")
    ]
    conditions += [
        {"type": kind, "status": "True", "lastTransitionTime": CREATED}
        for kind in ("ContainersReady", "Ready")
    ]
    states = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": f"{container['image']}@sha256:{7:064x}",
            "containerID": f"containerd://{9:064x}",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": CREATED}},
        }
        for container in spec["containers"]
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "uid": uid_of("Pod", f"{metadata['namespace']}/{metadata['name']}"),
            "creationTimestamp": CREATED,
            "managedFields": _managed(
                ("kube-controller-manager", "kubelet"), metadata["labels"], 16
            ),
        },
        "spec": {**spec, "nodeName": node},
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "containerStatuses": states,
            "startTime": CREATED,
            "qosClass": "Burstable",
        },
    }


def _managed(managers: Sequence[str], labels: Json, fields: int) -> list[Json]:
    """Managed fields, as many as a real object has."""
    return [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": CREATED,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {f"f:{name}": {} for name in labels}},
                "f:status": {
                    f"f:field{number:02}": {".": {}, "f:v": {}} for number in range(fields)
                },
            },
        }
        for manager in managers
    ]


@dataclass(slots=True)
class FreeCapacity:
    """GPUs that no pod holds yet, by node, and the nodes of each group in order."""

    nodes: dict[str, Json] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)

    def add_nodes(self, nodes: Sequence[Json]) -> None:
        """Add the GPUs of these nodes."""
        for node in nodes:
            name = node["metadata"]["name"]
            self.nodes[name], self.free[name] = node, _GPUS_PER_NODE
            group = node["metadata"]["annotations"][GROUP_ANNOTATION]
            self.groups.setdefault(group, []).append(name)

    def other_pods(self, count: int, nodes: Sequence[Json]) -> Iterator[Json]:
        """So many pods of other workloads, spread evenly over these nodes."""
        for number in range(count):
            node = nodes[number % len(nodes)]
            self.free[node["metadata"]["name"]] -= _GPUS_OF_OTHER_POD
            yield other_pod_on(node, number // len(nodes))

    def pod_of(self, deployment: Json) -> Json:
        """The first pod of a Deployment, on a node that its template asks for. Raises
        StopIteration where none has capacity."""
        metadata, template = deployment["metadata"], deployment["spec"]["template"]
        name = f"{metadata['name']}-7d9c5b6f8-00000"
        labels = {**template["metadata"]["labels"], "pod-template-hash": "7d9c5b6f8"}
        pod_metadata = {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": template["metadata"].get("annotations") or {},
        }
        wanted = read_gpu_pod({"metadata": pod_metadata, "spec": template["spec"]})
        gpus = sum(wanted.requests.values()) if wanted is not None else 0
        node = next(
            name
            for group in self.groups.values()
            if admits(self.nodes[group[0]]["metadata"]["labels"], template["spec"])
            for name in group
            if self.free[name] >= gpus
        )
        self.free[node] -= gpus
        return running_pod(pod_metadata, template["spec"], node)


def available_deployment(deployment: Json) -> Json:
    """The Deployment with the status that its controller sets once all replicas are available."""
    replicas = deployment["spec"]["replicas"]
    conditions = [
        ("Available", "MinimumReplicasAvailable"),
        ("Progressing", "NewReplicaSetAvailable"),
    ]
    status = {
        "observedGeneration": deployment["metadata"]["generation"],
        **dict.fromkeys(
            ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas
        ),
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": reason,
                "lastUpdateTime": CREATED,
                "lastTransitionTime": CREATED,
            }
            for kind, reason in conditions
        ],
    }
    return {**deployment, "apiVersion": "apps/v1", "kind": "Deployment", "status": status}
