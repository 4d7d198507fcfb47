"""One InferenceDeployment of each shape that the API has, and the cluster that they need.

`e2e.recordings.record` applies them and waits until each is in its state. A state that takes more
than one step (a change that is paused, an image that failed, a lost pool) is reached by `CHANGES`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from e2e.harness.rest import Json
from e2e.journeys.pools import declared
from e2e.models import OWN_IMAGE, inference, inline_source
from e2e.nodes.behaviours import KEY, LOG_KEY, WELL_KEY

NAMESPACE = "chat"
MODEL = "llama-3.1-8b"
LOST_NODE = "spot-0"
"""The only node of the pool that `fell-back` loses."""

_RESERVED: Json = {"key": "team", "value": "chat", "effect": "NoSchedule"}

FLEET: Json = {
    "groups": [
        {"name": "mi300x", "count": 4, "accelerator": "mi300x"},
        {"name": "h100", "count": 4, "accelerator": "h100-sxm-80gb"},
        {"name": "h200", "count": 2, "accelerator": "h200-sxm-141gb"},
        {"name": "mi355x", "count": 1, "accelerator": "mi355x"},
        {"name": "l40s", "count": 2, "accelerator": "l40s", "gpusPerNode": 4},
        {"name": "reserved", "accelerator": "mi300x", "labels": {"team": "chat"}}
        | {"taints": [_RESERVED]},
        {"name": "spot", "accelerator": "h100-sxm-80gb", "labels": {"zone": "spot"}},
        {"name": "left", "accelerator": "mi300x", "gpusPerNode": 2, "labels": {"zone": "left"}},
        {"name": "right", "accelerator": "h100-sxm-80gb", "gpusPerNode": 3}
        | {"labels": {"zone": "right"}},
        {"name": "full", "accelerator": "mi300x", "gpusPerNode": 2, "labels": {"zone": "full"}},
        {"name": "small", "accelerator": "mi300x", "gpusPerNode": 1, "labels": {"zone": "small"}},
    ]
}
"""The mixed fleet, and small pools so dear that only objects that select them run there."""


def _pool(name: str, zone: Mapping[str, str], tier: str, price: str, **spec: Any) -> Json:
    pool = declared(name, dict(zone), costPerGPUHour=price, **spec)
    pool["metadata"]["labels"] = {"tier": tier}
    return pool


POOLS: tuple[Json, ...] = (
    _pool(
        "reserved",
        {"team": "chat"},
        "reserved",
        "25.00",
        images={"vllm": "registry.example/vllm-rocm:tuned"},
        env=[{"name": "VLLM_ROCM_USE_AITER_MHA", "value": "0"}],
        tolerations=[{**_RESERVED, "operator": "Equal"}],
        maxNodes=2,
        weight=50,
    ),
    _pool("spot", {"zone": "spot"}, "fallback", "20.00"),
    _pool("left", {"zone": "left"}, "spread", "25.00"),
    _pool("right", {"zone": "right"}, "spread", "26.00"),
    _pool("full", {"zone": "full"}, "full", "25.00"),
    _pool("small", {"zone": "small"}, "small", "25.00"),
    _pool("growing", {"zone": "growing"}, "growing", "25.00", accelerator="mi300x", maxNodes=2),
)


def _config_map(name: str) -> Json:
    facts = inline_source(MODEL)["inline"]
    data = {
        "config.json": json.dumps(facts["config"], sort_keys=True),
        "weightsBytes": str(facts["weightsBytes"]),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


_STORAGE: Json = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
_SIZE: Json = {"storage": "200Gi"}
_CLAIM: Json = {"name": "models", "namespace": NAMESPACE}

PREREQUISITES: tuple[Json, ...] = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "serving"},
        "value": 1000,
        "description": "Models that serve users.",
    },
    {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "models", "namespace": NAMESPACE},
    },
    _config_map("facts"),
    {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "models"},
        "spec": {
            **_STORAGE,
            "capacity": _SIZE,
            "hostPath": {"path": "/models"},
            "claimRef": _CLAIM,
        },
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models"},
        "spec": {**_STORAGE, "resources": {"requests": _SIZE}, "volumeName": "models"},
    },
)
"""What the objects name, in an order in which it can be applied."""


def _by_workload(name: str, **spec: Any) -> Json:
    """An object whose replicas follow from what it has to serve."""
    body = inference(name, MODEL, **spec)
    del body["spec"]["replicas"]
    return body


def _in(tier: str, **placement: Any) -> Json:
    """Placement in the declared pools with this label."""
    return {"poolSelector": {"matchLabels": {"tier": tier}}, **placement}


def _engine(**settings: Any) -> Json:
    return {"vllm": settings}


def _full(image: str, **spec: Any) -> Json:
    """An object whose replicas take all GPUs of their pool, and whose rollouts fail early."""
    return inference(
        "rolled-back",
        MODEL,
        engine=_engine(image=image),
        placement=_in("full"),
        replicas=2,
        rollout={"progressDeadline": "10s"},
        **spec,
    )


def _paused(image: str, *, paused: bool) -> Json:
    rollout: Json = {"rollout": {"paused": True}} if paused else {}
    return inference("paused", MODEL, engine=_engine(image=image), replicas=2, **rollout)


def _queued(body: Json) -> Json:
    """The object with a queue of Kueue, whose label its pods get."""
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "models"}
    return body


def approved(name: str, plan: str | None, image: str = "registry.example/vllm:1") -> Json:
    """An object whose plans wait for a person, who has approved this one (None: none yet)."""
    approval: Json = {"approvedPlan": plan} if plan else {}
    return inference(name, MODEL, approval="Manual", engine=_engine(image=image), **approval)


_LONG: Json = {
    "maxModelLen": 131072,
    "concurrency": 112,
    "inputTokens": 1500,
    "outputTokens": 300,
    "latencyTargets": {"timePerOutputToken": "120ms"},
    "longContext": {
        "above": 8192,
        "concurrency": 16,
        "inputTokens": 80000,
        "outputTokens": 500,
        "latencyTargets": {"timePerOutputToken": "400ms"},
    },
}

_TEMPLATE: Json = {
    "metadata": {"labels": {"team": "chat"}, "annotations": {"example.com/contact": "chat"}},
    "spec": {
        "serviceAccountName": "models",
        "priorityClassName": "serving",
        "imagePullSecrets": [{"name": "registry"}],
        "tolerations": [{"key": "team", "operator": "Exists"}],
        "resources": {"requests": {"cpu": "4", "memory": "64Gi"}, "limits": {"memory": "96Gi"}},
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": "10Gi"}},
            {"name": "prompts", "configMap": {"name": "facts"}},
        ],
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "prompts", "mountPath": "/prompts", "readOnly": True},
        ],
    },
}

FELL_BACK = inference(
    "fell-back",
    MODEL,
    placement={"accelerators": ["h100-sxm-80gb", "h200-sxm-141gb"], "fallback": {"after": "2s"}},
)
"""Placed before all others, while its declared pool is the only one there is."""

OBJECTS: tuple[Json, ...] = (
    inference("plain", MODEL),
    _by_workload("by-workload", workload={"maxModelLen": 16384, "concurrency": 64}),
    inference("stopped", MODEL, replicas=0),
    inference("several", MODEL, replicas=3),
    inference("tensor-parallel", "llama-3.3-70b", placement={"accelerators": ["h100-sxm-80gb"]}),
    inference("cheapest", MODEL, placement={"policy": "LowestCost", "maxCostPerHour": "12.00"}),
    inference("fewest-gpus", "llama-3.3-70b", placement={"policy": "FewestGPUs"}),
    inference("fastest", MODEL, placement={"policy": "HighestThroughput"}),
    inference("declared-pool", MODEL, placement=_in("reserved")),
    inference(
        "allow-list",
        MODEL,
        max_model_len=8192,
        placement={
            "accelerators": ["l40s", "mi355x"],
            "tightFit": "Accept",
            "rebalance": {"policy": "WhenCheaperBy", "percent": 30},
        },
    ),
    _by_workload("long-context", workload=_LONG),
    inference("spread", MODEL, placement=_in("spread", spread={"policy": "WhenShort"}), replicas=4),
    inference(
        "gateway",
        MODEL,
        gateway={
            "inferencePool": {"endpointPickerRef": {"name": "picker", "port": {"number": 9002}}}
        },
    ),
    approved("awaits-first-approval", None),
    approved("approved", None),
    approved("awaits-next-approval", None),
    _paused("registry.example/vllm:1", paused=False),
    inference(
        "arguments",
        MODEL,
        engine=_engine(
            extraArgs=["--enable-prefix-caching", "--seed=7"],
            env=[
                {"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"},
                {
                    "name": "PROMPTS",
                    "valueFrom": {"configMapKeyRef": {"name": "facts", "key": "weightsBytes"}},
                },
            ],
            gpuMemoryUtilization=0.85,
            maxNumSeqs=128,
            maxNumBatchedTokens=4096,
            enforceEager=True,
        ),
        rollout={"strategy": "Recreate", "restartedAt": "2026-11-22T05:30:00Z"},
    ),
    inference("template", MODEL, template=_TEMPLATE),
    inference(
        "volume",
        MODEL,
        model={
            "name": "llama",
            "source": {
                "persistentVolumeClaim": {
                    "claimName": "models",
                    "path": "llama",
                    "facts": {"configMap": {"name": "facts"}},
                }
            },
        },
    ),
    inference(
        "config-map",
        MODEL,
        model={"source": {"configMap": {"name": "facts", "loadFrom": "example/llama"}}},
    ),
    inference("quantized", "llama-3.3-70b", quantization="fp8", kvCacheDtype="fp8"),
    inference("quantized-checkpoint", "llama-3.3-70b-fp8-dynamic"),
    inference("pinned", MODEL, engine=_engine(version="v0.11.0")),
    _by_workload("scaled", scaling={"minReplicas": 2, "maxReplicas": 3}),
    _by_workload(
        "scaled-by-load",
        scaling={
            "maxReplicas": 4,
            "targets": {"waitingRequests": 2, "kvCacheUsage": 0.8},
            "scaleDown": {"stabilizationWindow": "10m"},
        },
    ),
    _queued(inference("queued", MODEL)),
    _full("registry.example/vllm:1"),
    inference(
        "adjusted",
        MODEL,
        engine=_engine(image=OWN_IMAGE),
        placement={"accelerators": ["h100-sxm-80gb"]},
        template={
            "metadata": {
                "annotations": {
                    KEY: "out-of-memory",
                    LOG_KEY: "device-full",
                    WELL_KEY: "--max-num-batched-tokens=4096",
                }
            }
        },
    ),
    inference("too-large", "deepseek-v3", placement=_in("full")),
    inference("waits-for-a-node", MODEL, placement=_in("growing")),
    inference("partly-waits", MODEL, placement=_in("small"), replicas=2),
)
"""What is applied together."""

WAITING = inference("waits-for-gpus", MODEL, placement={"accelerators": ["l40s"]}, replicas=12)
"""Applied after all others: its pool has fewer GPUs left than it asks for."""

APPROVED = ("approved", "awaits-next-approval")
"""Objects whose first plan a person approves."""

CHANGES: tuple[Json, ...] = (
    _paused("registry.example/vllm:2", paused=True),
    _full(
        "registry.example/vllm:typo",
        template={"metadata": {"labels": {KEY: "image-pull-failure"}}},
    ),
)
"""What a user applies once all serve: a change that is paused, and an image that is not there."""

READY_REASONS: Mapping[str, str] = {
    "stopped": "ScaledToZero",
    "awaits-first-approval": "AwaitingApproval",
    "awaits-next-approval": "AwaitingApproval",
    "paused": "RolloutPaused",
    "rolled-back": "RolledBack",
    "too-large": "DoesNotFit",
    "waits-for-gpus": "InsufficientGPUs",
    "waits-for-a-node": "InsufficientGPUs",
    "partly-waits": "InsufficientGPUs",
}
"""The reason of condition Ready in the recording; ReplicasReady where an object is not named."""
