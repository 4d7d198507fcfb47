"""Objects of a large GPU cluster as its API server writes them, of the sizes that they have there.

A Node carries the labels of its vendor, thirty images, and the fields of three managers: 14 KiB. A
Pod of vLLM with its environment, probes, volumes and conditions has 6 KiB. Most is never read.
"""

from __future__ import annotations

from typing import Any, Final

from tests.support.fleets.gpu_nodes import H100, MI300X
from tonnage.api.names import (
    API_VERSION,
    INFERENCE_DEPLOYMENT,
    LABEL_MANAGED_BY,
    LABEL_OWNER,
    MANAGED_BY,
)

Raw = dict[str, Any]

NAMESPACE: Final = "chat"
IMAGES, FEATURES, VARIABLES = 32, 30, 30
NODES_PER_POOL: Final = 250


def node(number: int, beat: int = 0) -> Raw:
    """A node whose kubelet reported for the `beat`-th time: nothing of it changes but the times."""
    vendor, labels = ("amd.com/gpu", MI300X) if number % 2 else ("nvidia.com/gpu", H100)
    name = f"gpu-node-{number:05d}.cluster.example.internal"
    features = {
        f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{n:02d}": "true" for n in range(FEATURES)
    }
    resources = {
        "cpu": "192", "ephemeral-storage": "7499248Mi", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
        "memory": "2113407800Ki", "pods": "250", vendor: "8",
    }  # fmt: skip
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "uid": uid_of("node", number),
            "resourceVersion": str(1_000_000 + beat),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "bare-metal.8gpu",
                "topology.kubernetes.io/zone": f"zone-{number // NODES_PER_POOL}",
                **labels,
                **features,
            },
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "nfd.node.kubernetes.io/feature-labels": ",".join(features),
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "managedFields": [managed(who, 8) for who in ("kubelet", "nfd-master", "kcm")],
        },
        "spec": {
            "podCIDR": f"10.{number % 250}.0.0/24",
            "providerID": f"example:///{name}",
            "taints": [{"key": vendor, "value": "present", "effect": "NoSchedule"}],
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [condition(kind, beat) for kind in NODE_CONDITIONS],
            "addresses": [
                {"type": "InternalIP", "address": f"10.0.{number // 250}.{number % 250}"},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": f"{number:032x}",
                "systemUUID": f"{number:032x}",
                "kernelVersion": "6.8.0-1021-gpu",
                "osImage": "Ubuntu 24.04.2 LTS",
                "containerRuntimeVersion": "containerd://2.0.4",
                "kubeletVersion": "v1.35.4",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "images": [image(n) for n in range(IMAGES)],
        },
    }


def pod(number: int, beat: int = 0, *, owner: str | None = None, gpus: int = 1) -> Raw:
    """A pod that runs; at each beat its kubelet reported a restart or a probe."""
    labels = {"app.kubernetes.io/name": "vllm", "pod-template-hash": f"{number % 997:010x}"}
    if owner is not None:
        labels |= {LABEL_OWNER: owner, LABEL_MANAGED_BY: MANAGED_BY}
    name = f"workload-{number % 997:010x}-{number:05d}"
    vendor = "amd.com/gpu" if number % 2 else "nvidia.com/gpu"
    resources = {"cpu": "16", "memory": "200Gi"} | ({vendor: str(gpus)} if gpus else {})
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": uid_of("pod", number),
            "resourceVersion": str(1_000_000 + beat),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": labels,
            "ownerReferences": [owned_by("apps/v1", "ReplicaSet", name[:-6])],
            "managedFields": [managed(who, 10) for who in ("kcm", "kubelet")],
        },
        "spec": {
            "nodeName": node_name(number // 4),
            "containers": [
                {
                    "name": "main",
                    "image": "example.internal/vllm/vllm-openai:v0.32.0",
                    "args": ["--model", "/models/llama", "--max-model-len", "8192"] * 4,
                    "env": [
                        {"name": f"VARIABLE_{n}", "value": f"value-{n}"} for n in range(VARIABLES)
                    ],
                    "resources": {"limits": resources, "requests": resources},
                    "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
                    "volumeMounts": [{"name": f"v{n}", "mountPath": f"/mnt/{n}"} for n in range(6)],
                }
            ],
            "volumes": [{"name": f"v{n}", "emptyDir": {"medium": "Memory"}} for n in range(6)],
            "tolerations": [{"key": f"key-{n}", "operator": "Exists"} for n in range(8)],
            "schedulerName": "default-scheduler",
        },
        "status": {
            "phase": "Running",
            "conditions": [condition(kind, beat) for kind in POD_CONDITIONS],
            "podIP": f"10.{number % 250}.{number // 250 % 250}.7",
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": bool(beat % 2),
                    "restartCount": beat,
                    "imageID": "example.internal/vllm/vllm-openai@sha256:" + "0" * 64,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    }


def deployment(number: int, beat: int = 0) -> Raw:
    """The child of an InferenceDeployment, whose status changes at each beat."""
    body = pod(number, beat, owner=object_name(number))
    owner = owned_by(API_VERSION, INFERENCE_DEPLOYMENT, object_name(number))
    metadata = body["metadata"] | {"name": object_name(number), "ownerReferences": [owner]}
    metadata |= {"uid": uid_of("deployment", number), "generation": 1}
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": metadata,
        "spec": {"replicas": 4, "template": {"spec": body["spec"]}},
        "status": {"observedGeneration": 1, "replicas": 4, "readyReplicas": beat % 5},
    }


def inference_deployment(number: int, beat: int = 0) -> Raw:
    """What a user declared, with a status such as Tonnage writes."""
    message = "8 GPUs of pool mi300x: weights, cache and graphs fit with memory to spare; " * 3
    return {
        "kind": INFERENCE_DEPLOYMENT,
        "apiVersion": API_VERSION,
        "metadata": {
            "name": object_name(number),
            "namespace": NAMESPACE,
            "uid": uid_of("object", number),
            "resourceVersion": str(1_000_000 + beat),
            "generation": 1,
            "labels": {"team": "chat"},
            "managedFields": [managed(who, 10) for who in ("kubectl", "tonnage-status")],
        },
        "spec": {
            "model": {"source": {"huggingFace": {"repo": "example/llama"}}},
            "workload": {"maxModelLen": 8192, "concurrency": 8},
        },
        "status": {
            "observedGeneration": 1,
            "conditions": [
                {**condition(kind, beat), "message": message} for kind in OUR_CONDITIONS
            ],
            "candidates": [{"pool": f"pool-{n}", "message": message} for n in range(6)],
        },
    }


NODE_CONDITIONS: Final = (
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "NetworkUnavailable",
    "Ready",
)
POD_CONDITIONS: Final = (
    "PodReadyToStartContainers",
    "Initialized",
    "ContainersReady",
    "PodScheduled",
    "Ready",
)
OUR_CONDITIONS: Final = ("Accepted", "Placed", "Progressing", "Ready")


def uid_of(kind: str, number: int) -> str:
    """Some uid, the same each time."""
    return f"{kind:0<8.8}-0000-4000-8000-{number:012d}"


def node_name(number: int) -> str:
    """Of the node of this number."""
    return f"gpu-node-{number:05d}.cluster.example.internal"


def object_name(number: int) -> str:
    """Of the InferenceDeployment of this number."""
    return f"llama-{number:05d}"


def condition(kind: str, beat: int) -> Raw:
    """As kubelets report them."""
    at = f"2026-01-01T{beat // 3600 % 24:02d}:{beat // 60 % 60:02d}:{beat % 60:02d}Z"
    return {
        "type": kind,
        "status": "True" if "Pressure" not in kind and "Unavailable" not in kind else "False",
        "lastHeartbeatTime": at,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": f"KubeletHas{kind}",
        "message": f"kubelet has reported on {kind}",
    }


def managed(manager: str, fields: int) -> Raw:
    """Whose which fields are."""
    owned = {
        f'k:{{"type":"Condition{n}"}}': {".": {}, "f:type": {}, "f:status": {}}
        for n in range(fields)
    }
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:conditions": owned}},
        "subresource": "status",
    }


def image(number: int) -> Raw:
    """One that a node has, by digest and by tag."""
    name = f"registry.example.internal/team/workload-{number:02d}"
    return {
        "names": [f"{name}@sha256:{number:064x}", f"{name}:v1.{number}"],
        "sizeBytes": 1_000_000_000 + number,
    }


def owned_by(api_version: str, kind: str, name: str) -> Raw:
    """A controller's ownerReference."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid_of("owner", 0),
        "controller": True,
        "blockOwnerDeletion": True,
    }
