"""Nodes, pods and pools as an API server writes them, as small as can be."""

from typing import Any

from tonnage.kube.protocol import Object


def node(name: str = "gpu-1", uid: str = "u1", gpus: int = 8, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "uid": uid, "labels": {"pool": "amd"}},
        "spec": spec,
        "status": {
            "capacity": {"amd.com/gpu": str(gpus), "cpu": "96"},
            "allocatable": {"amd.com/gpu": str(gpus), "cpu": "96"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}],
        },
    }


def pod(uid: str = "p1", node_name: str | None = "gpu-1", gpus: int = 1, phase: str = "") -> Object:
    return {
        "metadata": {"name": f"pod-{uid}", "namespace": "chat", "uid": uid},
        "spec": {
            "nodeName": node_name,
            "containers": [{"resources": {"limits": {"amd.com/gpu": str(gpus)}}}] if gpus else [],
        },
        "status": {"phase": phase or "Running"},
    }


def pool(name: str = "amd", uid: str = "u1", cost: str = "3.98", **labels: str) -> Object:
    return {
        "metadata": {"name": name, "uid": uid, "labels": labels},
        "spec": {"nodeSelector": {"pool": "amd"}, "costPerGPUHour": cost},
    }
