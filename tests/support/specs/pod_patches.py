"""Pod specs and strategic merge patches of them, drawn from what platform teams write."""

import random
from typing import Any

BASE: dict[str, Any] = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a"]}]}
                ]
            }
        }
    },
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "containers": [
        {
            "name": "vllm",
            "image": "vllm/vllm-openai:v0.32.0",
            "args": ["m", "--port=8000"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
            "resources": {
                "requests": {"cpu": "3", "memory": "9Gi", "amd.com/gpu": "1"},
                "limits": {"amd.com/gpu": "1"},
            },
            "volumeMounts": [
                {"name": "cache", "mountPath": "/cache"},
                {"name": "shm", "mountPath": "/dev/shm"},
            ],
            "readinessProbe": {
                "httpGet": {"path": "/health", "port": "http"},
                "periodSeconds": 5,
                "failureThreshold": 3,
            },
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        },
        {"name": "proxy", "image": "envoy:1"},
    ],
    "initContainers": [{"name": "wait", "image": "busybox:1"}],
    "volumes": [
        {"name": "cache", "emptyDir": {}},
        {"name": "mine", "secret": {"secretName": "s"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
    ],
    "imagePullSecrets": [{"name": "one"}, {"name": "two"}],
    "topologySpreadConstraints": [
        {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ],
    "securityContext": {
        "fsGroup": 2000,
        "runAsUser": 2000,
        "seccompProfile": {"type": "RuntimeDefault"},
        "supplementalGroups": [44, 109],
    },
    "terminationGracePeriodSeconds": 160,
}
"""A pod spec with every list that merges by a key."""

CONTAINER_PATCHES: list[dict[str, Any]] = [
    {"env": [{"name": "C", "value": "3"}, {"name": "A", "value": "4"}]},
    {"env": [{"name": "A", "$patch": "delete"}, {"name": "Z", "value": "5"}]},
    {"env": [{"$patch": "replace"}, {"name": "Y", "value": "6"}]},
    {
        "env": [
            {"name": "B", "value": None, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        ]
    },
    {"args": ["other"]},
    {"ports": [{"name": "metrics", "containerPort": 9090}]},
    {"ports": [{"containerPort": 8000, "name": "web"}]},
    {"resources": {"limits": {"memory": "16Gi"}, "requests": {"memory": "16Gi", "cpu": None}}},
    {"resources": {"requests": {"$patch": "replace", "cpu": "1"}}},
    {"resources": {"$patch": "delete"}},
    {
        "volumeMounts": [
            {"name": "mine", "mountPath": "/cache"},
            {"name": "mine", "mountPath": "/m"},
        ]
    },
    {"volumeMounts": [{"mountPath": "/dev/shm", "$patch": "delete"}]},
    {"readinessProbe": {"failureThreshold": 9, "httpGet": {"path": "/ready"}}},
    {"readinessProbe": {"httpGet": None, "tcpSocket": {"port": 8000}}},
    {"readinessProbe": {"$retainKeys": ["tcpSocket"], "tcpSocket": {"port": 8000}}},
    {"readinessProbe": None},
    {"livenessProbe": {"$patch": "replace", "tcpSocket": {"port": 1}}},
    {"securityContext": {"capabilities": {"add": ["CHOWN"]}, "readOnlyRootFilesystem": True}},
    {"securityContext": {"$patch": "replace", "runAsUser": 7}},
    {"imagePullPolicy": "Always", "workingDir": "/"},
]
"""Patches of a container, without its name."""

SPEC_PATCHES: list[dict[str, Any]] = [
    {},
    {"containers": [{"name": "side", "image": "side:1"}]},
    {"containers": [{"name": "proxy", "$patch": "delete"}]},
    {"containers": [{"name": "proxy", "image": "envoy:2"}, {"name": "vllm", "tty": True}]},
    {"initContainers": [{"name": "first", "image": "a:1"}, {"name": "wait", "image": "b:2"}]},
    {"initContainers": [{"$patch": "replace"}, {"name": "only", "image": "a:1"}]},
    {"initContainers": None},
    {"volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": "c"}}]},
    {"volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "16Gi"}}]},
    {
        "volumes": [
            {
                "name": "cache",
                "$retainKeys": ["name", "hostPath"],
                "hostPath": {"path": "/mnt/disk"},
            }
        ]
    },
    {"volumes": [{"name": "cache", "emptyDir": None, "configMap": {"name": "c"}}]},
    {"imagePullSecrets": [{"name": "three"}, {"name": "one"}]},
    {"imagePullSecrets": [{"name": "two", "$patch": "delete"}]},
    {"tolerations": [{"key": "spot", "operator": "Exists"}]},
    {"topologySpreadConstraints": [{"topologyKey": "rack", "maxSkew": 2,
                                    "whenUnsatisfiable": "DoNotSchedule"}]},
    {"topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname", "$patch": "delete"}]},
    {"topologySpreadConstraints": [{"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 5}]},
    {"securityContext": {"runAsUser": None, "supplementalGroups": [5]}},
    {"securityContext": {"$patch": "replace", "runAsNonRoot": True}},
    {"securityContext": {"$patch": "delete"}},
    {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
    ]}}},
    {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "b", "operator": "Exists"}]}]}}}},
    {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}]},
    {"nodeSelector": {"a": "b"}, "schedulerName": "volcano", "runtimeClassName": None},
    {"dnsConfig": {"$patch": "replace", "nameservers": ["1.1.1.1"]}},
    {"terminationGracePeriodSeconds": 300, "shareProcessNamespace": True},
]  # fmt: skip
"""Patches of a pod spec that leave its first container alone."""


def random_patch(seed: int) -> dict[str, Any]:
    """A patch of BASE; the same for the same seed."""
    draw = random.Random(seed)
    patch: dict[str, Any] = {}
    for part in draw.sample(SPEC_PATCHES, draw.randint(0, 4)):
        patch |= part
    of_vllm: dict[str, Any] = {"name": "vllm"}
    for part in draw.sample(CONTAINER_PATCHES, draw.randint(0, 3)):
        of_vllm |= part
    containers = [one for one in patch.get("containers", []) if one.get("name") != "vllm"]
    containers.insert(draw.randint(0, len(containers)), of_vllm)
    return {**patch, "containers": containers}
