"""Nodes and pods of a large fleet, as heavy as real ones. Pure.

A node of a GPU cluster is some 12 kB of JSON, with its images and managed fields; a pod some 6 kB.
An operator that reads them all pays for fields that it does not need, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from e2e.harness.rest import Json
from e2e.nodes.descriptions import GROUP_ANNOTATION, render_nodes
from e2e.nodes.slices import render_device_classes, render_slices
from tests.support.fleets.node_affinity import admits
from tonnage.api.names import LABEL_PLACEMENT
from tonnage.fleet.nodes.pod import read_gpu_pod

CREATED: Final = "2026-11-01T08:00:00Z"
OTHER_WORKLOADS: Final = "other-workloads"
"""Namespace of the pods that no InferenceDeployment owns."""

GPUS_PER_NODE: Final = 8
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


def fleet_nodes(count: int, begin: int = 0, *, dra: bool = False) -> list[Json]:
    """The nodes of a fleet of `count`, from number `begin` on; a smaller fleet is the first part of
    a larger one. With `dra`, ResourceSlices list their GPUs (`fleet_slices`)."""
    kinds = [name for name, share in _GROUPS for _ in range(share)]
    nodes = []
    for number in range(begin, count):
        accelerator = kinds[number * 37 % len(kinds)]  # all of them, mixed
        nodes.append(_node(accelerator, number, dra=dra))
    return nodes


@lru_cache(maxsize=64)
def _group(accelerator: str, *, dra: bool) -> tuple[Json, Json | None]:
    """A node of this accelerator, and its ResourceSlice where it has one."""
    group = {"name": accelerator, "accelerator": accelerator, "gpusPerNode": GPUS_PER_NODE}
    description = {"groups": [group | ({"draDriver": "current"} if dra else {})]}
    (node,) = render_nodes(description)
    return node, next(iter(render_slices(description)), None)


def _node(accelerator: str, number: int, *, dra: bool) -> Json:
    template, name = _group(accelerator, dra=dra)[0], f"gpu-{number:05}"
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


def fleet_slices(nodes: Sequence[Json]) -> Iterator[Json]:
    """The ResourceSlice of each node. Serial numbers are of each GPU alone."""
    for node in nodes:
        name = node["metadata"]["name"]
        _, template = _group(node["metadata"]["annotations"][GROUP_ANNOTATION], dra=True)
        if template is None:
            raise AssertionError("a group with a driver has a ResourceSlice")
        spec = template["spec"]
        devices = [
            device | {"attributes": device["attributes"] | _serial_number(name, device)}
            for device in spec["devices"]
        ]
        pool = spec["pool"] | {"name": name}
        slice_name = f"{name}-{spec['driver']}"
        yield {
            **template,
            "metadata": {
                "name": slice_name,
                "uid": uid_of("ResourceSlice", slice_name),
                "creationTimestamp": CREATED,
                "managedFields": _managed(("kubelet-plugin",), {}, 12),
            },
            "spec": {**spec, "nodeName": name, "pool": pool, "devices": devices},
        }


def fleet_device_classes(slices: list[Json]) -> Iterator[Json]:
    """The DeviceClasses of the drivers of these ResourceSlices."""
    for body in render_device_classes(slices):
        name = body["metadata"]["name"]
        identity = {"uid": uid_of("DeviceClass", name), "creationTimestamp": CREATED}
        yield body | {"metadata": body["metadata"] | identity}


def _serial_number(node: str, device: Json) -> Json:
    if "uuid" not in device["attributes"]:
        return {}
    return {"uuid": {"string": f"GPU-{uid_of('GPU', node + device['name'])}"}}


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
    """A pod of another workload that runs on the node and holds GPUs of it; by a claim where no
    device plugin offers them."""
    gpus = [name for name in node["status"]["allocatable"] if name.endswith(".com/gpu")]
    name = f"{node['metadata']['name']}-{number}"
    labels = {"app": f"training-{number}", "pod-template-hash": "6c5f7d8b9"}
    amount = {"cpu": "16", "memory": "256Gi"} | dict.fromkeys(gpus, str(_GPUS_OF_OTHER_POD))
    container: Json = {
        "name": "main",
        "image": "registry.example.org/research/training:2026-10",
        "command": ["torchrun", f"--nproc-per-node={_GPUS_OF_OTHER_POD}", "train.py"],
        "env": [{"name": f"SETTING_{n:02}", "value": f"value-{n}" * 4} for n in range(24)],
        "resources": {"limits": amount, "requests": amount},
        "volumeMounts": [{"name": f"data-{n}", "mountPath": f"/data/{n}"} for n in range(6)],
    }
    spec: Json = {
        "containers": [container],
        "volumes": [{"name": f"data-{n}", "emptyDir": {}} for n in range(6)],
    }
    if not gpus:
        container["resources"]["claims"] = [{"name": "gpus"}]
        template = {"name": "gpus", "resourceClaimTemplateName": "training"}
        spec["resourceClaims"] = [template]
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


def claim_of(pod: Json, devices: Sequence[Json]) -> Json:
    """The ResourceClaim by which a pod of a fleet with ResourceSlices holds these devices, as
    results of its allocation."""
    metadata, name = pod["metadata"], f"{pod['metadata']['name']}-gpus-x7k2p"
    request = {"deviceClassName": devices[0]["driver"], "allocationMode": "ExactCount"}
    reserved = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "uid": uid_of("ResourceClaim", f"{metadata['namespace']}/{name}"),
            "creationTimestamp": CREATED,
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpus"},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
            "finalizers": ["resource.kubernetes.io/delete-protection"],
            "managedFields": _managed(("kube-controller-manager", "kube-scheduler"), {}, 8),
        },
        "spec": {
            "devices": {
                "requests": [{"name": "gpus", "exactly": request | {"count": len(devices)}}]
            }
        },
        "status": {"allocation": {"devices": {"results": devices}}, "reservedFor": [reserved]},
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
    """GPUs that no pod holds yet, by node, and the nodes of each group in order. `claims` are those
    of the pods since the caller last took them, where ResourceSlices list the GPUs."""

    nodes: dict[str, Json] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    claims: list[Json] = field(default_factory=list)
    devices: dict[str, list[Json]] = field(default_factory=dict)

    def add_nodes(self, nodes: Sequence[Json]) -> None:
        """Add the GPUs of these nodes."""
        for node in nodes:
            name = node["metadata"]["name"]
            self.nodes[name], self.free[name] = node, GPUS_PER_NODE
            group = node["metadata"]["annotations"][GROUP_ANNOTATION]
            self.groups.setdefault(group, []).append(name)

    def add_slices(self, slices: Sequence[Json]) -> None:
        """Add the devices of the nodes' ResourceSlices, by which pods hold GPUs from now on."""
        for body in slices:
            spec = body["spec"]
            self.devices[spec["nodeName"]] = [
                {
                    "request": "gpus",
                    "driver": spec["driver"],
                    "pool": spec["pool"]["name"],
                    "device": device["name"],
                }
                for device in spec["devices"]
            ]

    def _hold(self, pod: Json, gpus: int) -> Json:
        """Let a pod hold GPUs of its node."""
        node = pod["spec"]["nodeName"]
        self.free[node] -= gpus
        if node in self.devices:
            held = [self.devices[node].pop() for _ in range(gpus)]
            self.claims.append(claim_of(pod, held))
        return pod

    def other_pods(self, count: int, nodes: Sequence[Json]) -> Iterator[Json]:
        """So many pods of other workloads, spread evenly over these nodes."""
        for number in range(count):
            pod = other_pod_on(nodes[number % len(nodes)], number // len(nodes))
            yield self._hold(pod, _GPUS_OF_OTHER_POD)

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
        groups = list(self.groups.values())
        if "resourceClaims" in template["spec"]:
            gpus = 1  # the model fits on one
            # The claim's selector asks for the accelerator, which names the placement.
            groups = [self.groups[labels[LABEL_PLACEMENT]]]
        node = next(
            name
            for group in groups
            if admits(self.nodes[group[0]]["metadata"]["labels"], template["spec"])
            for name in group
            if self.free[name] >= gpus
        )
        return self._hold(running_pod(pod_metadata, template["spec"], node), gpus)


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
